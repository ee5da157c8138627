"""Hand event lines to the daemon and read what it says of each. Used by `sub ingest` and by the HTTP fallback."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, NamedTuple

import msgspec

from subluminal.contracts.errors import LedgerError
from subluminal.ledger.daemon.contact import connect, require_ledgerd
from subluminal.ledger.fold.reading import MAX_LINE_BYTES

# Lines on their way at a time: enough to fill a batch, few enough to stay small in memory.
WINDOW = 512


class Outcome(NamedTuple):
    """What became of one line, counted from 1. `error` is None for one that is stored, now or before."""

    line_no: int
    error: str | None
    duplicate: bool


def submit(lines: Iterable[bytes]) -> Iterator[Outcome]:
    """The outcome of every line that is not blank, in order. Starts the daemon if need be."""
    require_ledgerd()
    connection = connect(timeout=60.0)
    if connection is None:
        raise LedgerError("The ledger daemon has gone away.")
    numbered = ((number, line) for number, line in enumerate(lines, 1) if line.strip())
    with connection, connection.makefile("rwb") as stream:
        while window := list(islice(numbered, WINDOW)):
            sent = [(number, line) for number, line in window if len(line) <= MAX_LINE_BYTES and not _is_control(line)]
            try:
                stream.write(b"".join(line + b"\n" for _, line in sent))
                stream.flush()
                answers = {number: stream.readline() for number, _ in sent}
            except OSError as error:
                raise LedgerError(f"The ledger daemon does not answer: {error}.") from None
            for number, _ in window:
                yield _outcome(number, answers.get(number))


def _is_control(line: bytes) -> bool:
    """A file must not be able to speak to the daemon."""
    if b'"control"' not in line and b"\\u" not in line:
        return False
    try:
        return "control" in msgspec.json.decode(line, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False


def _outcome(line_no: int, answer: bytes | None) -> Outcome:
    if answer is None:
        return Outcome(line_no, "no event, or longer than any event", False)
    if not answer:
        raise LedgerError("The ledger daemon ended while it was taking events in.", hint="Run the command again.")
    said = msgspec.json.decode(answer, type=dict[str, Any])
    if "nack" in said:
        return Outcome(line_no, said["nack"]["error"], False)
    return Outcome(line_no, None, bool(said.get("duplicate")))
