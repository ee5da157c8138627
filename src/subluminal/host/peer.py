"""Who is at the other end of a unix socket: only the owner of the ledger may speak to its daemon."""

from __future__ import annotations

import os
import socket
import struct
import sys

_LOCAL_PEERCRED = 1  # <sys/un.h> on macOS and the BSDs; level 0 is SOL_LOCAL
_XUCRED = struct.Struct("=IIh")  # cr_version, cr_uid, cr_ngroups; the groups that follow do not matter here


def peer_uid(connection: socket.socket) -> int:
    if hasattr(socket, "SO_PEERCRED"):
        raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        return int(struct.unpack("3i", raw)[1])
    if sys.platform == "darwin" or "bsd" in sys.platform:
        raw = connection.getsockopt(0, _LOCAL_PEERCRED, 128)
        return int(_XUCRED.unpack_from(raw)[1])
    return -1


def is_owner(connection: socket.socket) -> bool:
    try:
        return peer_uid(connection) in (os.geteuid(), 0)
    except OSError:
        return False
