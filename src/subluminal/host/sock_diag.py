"""Which socket of this machine is at one end of a TCP connection: asked of the kernel by both addresses.

One request of `sock_diag` names the connection exactly, and costs the same with ten sockets open as with ten thousand.
Where the kernel does not offer it, the row is looked for in `/proc/net/tcp` and `tcp6`.

Traps:
- A kernel that finds no such connection may answer with a listening socket of that port: what it answers is compared.
- A socket that no process holds any more (closed, TIME_WAIT) has inode 0 and says that its owner is root. It has none.
- A connection over IPv4 may have an IPv6 socket at either end, with mapped addresses. Here it is IPv4.
"""

from __future__ import annotations

import socket
import struct
import sys
from errno import ENOENT

# The address and the port, as `getsockname` tells them; what IPv6 has beside these does not name a socket.
Address = tuple[str, int]

# Of the table. 100,000 connections take half of it.
MAX_TABLE_BYTES = 32 << 20

_HEAD = struct.Struct("=IHHII")
_REQUEST = struct.Struct("=BBBBI")
_PORTS = struct.Struct("!HH")
_REPLY_BYTES = 72
_REPLY_OWNER = struct.Struct("=II")
_SOCK_DIAG_BY_FAMILY = 20
_NLMSG_ERROR = 2
_NLM_F_REQUEST = 1
_NETLINK_SOCK_DIAG = 4
_ANY_INTERFACE_OR_COOKIE = struct.pack("=III", 0, 0xFFFFFFFF, 0xFFFFFFFF)
_ANY_STATE = 0xFFFFFFFF
_MAPPED = b"\0" * 10 + b"\xff\xff"
# Whoever has yet to connect has said nothing to us: SYN_SENT, LISTEN.
_NOT_CONNECTED = (2, 10)

_answers = False  # the kernel has answered a request: from then on its "no" is a no


class Owner:
    """`uid` made the socket; `inode` is what its holders' descriptors lead to."""

    __slots__ = ("inode", "uid")

    def __init__(self, uid: int, inode: int) -> None:
        self.uid = uid
        self.inode = inode


def owner_of(own: Address, other: Address) -> Owner | None:
    """Of the socket whose own address is `own` and which is connected to `other`. None: there is none, or who knows."""
    if sys.platform != "linux":
        return None
    try:
        ends = _packed(own[0]), own[1], _packed(other[0]), other[1]
        if len(ends[0]) != len(ends[2]):
            return None
        found = _ask(*ends)
        if found is None:
            found = _look_up(*ends)
    except (OSError, ValueError, OverflowError, struct.error):
        return None
    return found if found is not None and found.inode else None


def _packed(address: str) -> bytes:
    """4 bytes or 16. Without the scope that an address of IPv6 may carry."""
    if ":" not in address:
        return socket.inet_pton(socket.AF_INET, address)
    packed = socket.inet_pton(socket.AF_INET6, address.partition("%")[0])
    return packed[12:] if packed.startswith(_MAPPED) else packed


# -- sock_diag ------------------------------------------------------------------------------------------------


def _ask(own: bytes, own_port: int, other: bytes, other_port: int) -> Owner | None:
    """An `Owner` without an inode: there is no such socket. None: not to be had in this way."""
    global _answers
    family = socket.AF_INET if len(own) == 4 else socket.AF_INET6
    ends = _PORTS.pack(own_port, other_port) + own.ljust(16, b"\0") + other.ljust(16, b"\0")
    body = _REQUEST.pack(family, socket.IPPROTO_TCP, 0, 0, _ANY_STATE) + ends + _ANY_INTERFACE_OR_COOKIE
    request = _HEAD.pack(_HEAD.size + len(body), _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, 1, 0) + body
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG) as kernel:
            kernel.sendto(request, (0, 0))
            reply = kernel.recv(8192, socket.MSG_DONTWAIT)  # it has answered by the time that it has taken the request
    except OSError:
        return None
    if len(reply) < _HEAD.size:
        return None
    kind, body = _HEAD.unpack_from(reply)[1], reply[_HEAD.size :]
    if kind == _NLMSG_ERROR and len(body) >= 4:
        # Also said where the kernel has no such service at all.
        absent = int.from_bytes(body[:4], sys.byteorder, signed=True) == -ENOENT
        return Owner(-1, 0) if absent and _answers else None
    if kind != _SOCK_DIAG_BY_FAMILY or len(body) < _REPLY_BYTES:
        return None
    _answers = True
    return _read_reply(body, own, own_port, other, other_port)


def _read_reply(body: bytes, own: bytes, own_port: int, other: bytes, other_port: int) -> Owner:
    family, state = body[0], body[1]
    ports = _PORTS.unpack_from(body, 4)
    here, there = body[8:24], body[24:40]
    if family == socket.AF_INET:
        here, there = here[:4], there[:4]
    elif len(own) == 4 and here.startswith(_MAPPED) and there.startswith(_MAPPED):
        here, there = here[12:], there[12:]
    if (here, *ports, there) != (own, own_port, other_port, other) or state in _NOT_CONNECTED:
        return Owner(-1, 0)
    return Owner(*_REPLY_OWNER.unpack_from(body, _REPLY_BYTES - 8))


# -- the table ------------------------------------------------------------------------------------------------


def _look_up(own: bytes, own_port: int, other: bytes, other_port: int) -> Owner | None:
    forms = [("tcp", own, other)] if len(own) == 4 else []
    forms.append(("tcp6", own, other) if len(own) == 16 else ("tcp6", _MAPPED + own, _MAPPED + other))
    for name, here, there in forms:
        row = _row(f"/proc/net/{name}", b" %b %b " % (_hex(here, own_port), _hex(there, other_port)))
        if row is not None:
            return row
    return None


def _hex(address: bytes, port: int) -> bytes:
    """As the kernel prints it: words of 32 bits, each in the order of this machine."""
    words = struct.unpack(f"={len(address) // 4}I", address)
    return b"%b:%04X" % (b"".join(b"%08X" % word for word in words), port)


def _row(path: str, ends: bytes) -> Owner | None:
    try:
        with open(path, "rb") as file:
            table = file.read(MAX_TABLE_BYTES)
    except OSError:
        return None
    at = table.find(ends)
    if at < 0:
        return None
    # st tx:rx tr:when retransmits uid timeout inode
    fields = table[at + len(ends) : at + len(ends) + 200].partition(b"\n")[0].split()
    if len(fields) < 7 or int(fields[0], 16) in _NOT_CONNECTED:
        return None
    return Owner(int(fields[4]), int(fields[6]))
