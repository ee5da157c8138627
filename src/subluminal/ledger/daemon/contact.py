"""Reach the ledger daemon from any other process: connect, ask, and start it where it is not there.

`sub tail` connects too: what only some of these need is imported where it is needed.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from time import monotonic, sleep
from typing import Any

from subluminal.contracts.errors import LedgerError
from subluminal.host import home
from subluminal.host.files import read_private
from subluminal.host.record.ledgerd import socket_address, spawn_ledgerd

_RETRY_S = 0.02


def private_home() -> str:
    """The absolute SUB_HOME, made if need be; LedgerError if it cannot be."""
    directory = os.path.abspath(home.sub_home())
    try:
        return home.ensure_private_dir(directory)
    except OSError as error:
        hint = "Set SUB_HOME to one that can be written."
        raise LedgerError(f"The directory {directory} cannot be made: {error.strerror}.", hint=hint) from None


def connect(timeout: float = 5.0) -> socket.socket | None:
    """A connection to the daemon, or None if none listens."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(timeout)
    directory = -1
    try:
        address, directory = socket_address(home.ledger_socket())
        connection.connect(address)
    except OSError:
        connection.close()
        return None
    finally:
        if directory >= 0:
            os.close(directory)
    return connection


def listens() -> bool:
    connection = connect()
    if connection is not None:
        connection.close()
    return connection is not None


def wake(timeout: float) -> None:
    """Have the daemon look at the journals, or a new one start with it. Trouble is not ours: the journals stay."""
    connection = connect(timeout)
    try:
        if connection is None:
            spawn_ledgerd(os.path.abspath(home.sub_home()))
        else:
            with connection:
                connection.sendall(b'{"control":"wake"}\n')
    except OSError:
        pass


def ask(request: dict[str, Any], timeout: float = 5.0) -> dict[str, Any] | None:
    """One line to the daemon and its answer; None if none runs."""
    import msgspec

    connection = connect(timeout)
    if connection is None:
        return None
    with connection, connection.makefile("rwb") as stream:
        try:
            stream.write(msgspec.json.encode(request) + b"\n")
            stream.flush()
            line = stream.readline()
        except OSError as error:
            raise LedgerError(f"The ledger daemon does not answer: {error}.") from None
    return msgspec.json.decode(line, type=dict[str, Any]) if line else {}


def require_ledgerd(wait: float = 5.0) -> None:
    """Make sure that a daemon listens, within so many seconds."""
    if listens():
        return
    spawn_ledgerd(private_home())
    if not _within(wait, listens):
        hint = "Run `sub ledgerd --foreground` to see why, or look at ledgerd.log."
        raise LedgerError("The ledger daemon did not start.", hint=hint)


def stop(timeout: float = 10.0) -> bool:
    """Have the daemon end, and wait until it has let go of the ledger; False: none ran.

    Another one that somebody starts meanwhile is not the one that was asked, and may well be listening by then.
    """
    pid = _daemon()
    if ask({"control": "stop"}) is None:
        return False
    if not _within(timeout, lambda: not _is_going() and (_daemon() != pid if pid else not listens())):
        raise LedgerError(f"The ledger daemon did not end within {timeout:g} seconds.")
    return True


def _daemon() -> int:
    """As its lock names it; 0: none, or one that has ended."""
    try:
        pid = int(read_private(home.ledgerd_pid(), 20))
        os.kill(pid, 0)
    except (OSError, ValueError):
        return 0
    return pid


def _is_going() -> bool:
    """A daemon takes its name out of the file a moment before it lets go of the lock on it."""
    from fcntl import LOCK_NB, LOCK_SH, flock

    try:
        with open(home.ledgerd_pid(), "rb") as file:
            if file.read(1):
                return False
            flock(file, LOCK_SH | LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        pass
    return False


def _within(seconds: float, condition: Callable[[], bool]) -> bool:
    deadline = monotonic() + seconds
    while not condition():
        if monotonic() > deadline:
            return False
        sleep(_RETRY_S)
    return True
