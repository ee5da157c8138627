"""Ask the daemon something over its socket: one line out, one line back."""

from __future__ import annotations

from time import monotonic, sleep
from typing import Any

import msgspec

from subluminal.contracts.errors import LedgerError
from subluminal.ledger.daemon.autostart import connect


def ask(request: dict[str, Any], timeout: float = 5.0) -> dict[str, Any] | None:
    """The daemon's answer, or None if none runs."""
    connection = connect(timeout=timeout)
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


def wait_until_gone(timeout: float) -> bool:
    deadline = monotonic() + timeout
    while (connection := connect()) is not None:
        connection.close()
        if monotonic() > deadline:
            return False
        sleep(0.02)
    return True
