"""Reach the ledger daemon from the command line: connect, starting it if it is not there."""

from __future__ import annotations

import os
import socket
from time import monotonic, sleep

from subluminal.contracts.errors import LedgerError
from subluminal.host import home
from subluminal.host.record.ledgerd import socket_address, spawn_ledgerd

_RETRY_S = 0.02


def private_home() -> str:
    """The absolute SUB_HOME, made if need be; LedgerError if it cannot be."""
    directory = os.path.abspath(home.sub_home())
    try:
        return home.ensure_private_dir(directory)
    except OSError as error:
        raise LedgerError(
            f"The directory {directory} cannot be made: {error.strerror}.",
            hint="Set SUB_HOME to one that can be written.",
        ) from None


def connect(path: str | None = None, timeout: float | None = 5.0) -> socket.socket | None:
    """A connection to the daemon, or None if none listens."""
    path = path or home.ledger_socket()
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(timeout)
    directory = -1
    try:
        address, directory = socket_address(path)
        connection.connect(address)
    except OSError:
        connection.close()
        return None
    finally:
        if directory >= 0:
            os.close(directory)
    return connection


def ensure_ledgerd(wait: float = 5.0) -> bool:
    """Make sure a daemon runs. With `wait`, up to that many seconds until it listens; True: it does."""
    connection = connect()
    if connection is None:
        spawn_ledgerd(private_home())
        deadline = monotonic() + wait
        while connection is None and monotonic() < deadline:
            sleep(_RETRY_S)
            connection = connect()
    if connection is None:
        return False
    connection.close()
    return True


def require_ledgerd(wait: float = 5.0) -> None:
    if not ensure_ledgerd(wait):
        raise LedgerError(
            "The ledger daemon did not start.",
            hint="Run `sub ledgerd --foreground` to see why, or look at ledgerd.log.",
        )
