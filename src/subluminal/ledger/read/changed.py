"""Calls that have begun or changed since a place in the order of arrival, as rows of the ledger.

A call is told as it is now, however often it changed in between: who falls behind has less to catch up with, and who
hears of a call twice has the same row twice. What counts is found by the events that arrived, never by time.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from subluminal.contracts.filters import DECISION, END, PREVIEWS, Filters
from subluminal.ledger.read.ledger import Ledger, Row
from subluminal.ledger.read.wanted import Wanted
from subluminal.ledger.store.encoding import unpack_text
from subluminal.ledger.store.lines import arrivals

# Events looked at for one answer.
LOOK_EVENTS = 1_000

_OF_CALL = (
    "SELECT c.id, c.tool_use_id FROM tool_calls c INDEXED BY tool_calls_call JOIN producers p USING (producer_no)"
    " WHERE c.call_id = ? AND c.run_id = ? AND p.shim_id = ?"
)
_ALIKE = "SELECT c.id FROM tool_calls c INDEXED BY tool_calls_use WHERE c.run_id = ? AND c.tool_use_id = ?"


class Touched(NamedTuple):
    """`after` is the place that was reached; `more`: events were left for the next look."""

    after: int
    numbers: list[int]
    runs: list[str]
    more: bool = False


class _Source(msgspec.Struct):
    shim_id: str


class _Event(msgspec.Struct):
    run_id: str
    source: _Source
    call: Any = None


_decode = msgspec.json.Decoder(_Event).decode


def touched(ledger: Ledger, after: int) -> Touched:
    """Which calls and runs the events after a place speak of."""
    found = arrivals(ledger.connection, after, LOOK_EVENTS)
    runs: dict[str, None] = {}
    calls: dict[tuple[str, str, str], None] = {}
    for _, line in found:
        run_id, shim_id, call_id = spoken_of(line)
        runs[run_id] = None
        if call_id is not None:
            calls[call_id, run_id, shim_id] = None
    numbers: dict[int, None] = {}
    for key in calls:
        for number, tool_use_id in ledger.connection.execute(_OF_CALL, key):
            numbers[number] = None
            if tool_use_id is not None:  # which door stands for the call may have changed
                numbers.update((row[0], None) for row in ledger.connection.execute(_ALIKE, (key[1], tool_use_id)))
    last = found[-1][0] if found else after
    return Touched(last, sorted(numbers), list(runs), len(found) >= LOOK_EVENTS)


def spoken_of(line: bytes | str) -> tuple[str, str, str | None]:
    """run_id, shim_id and, where it is about a call, call_id of a stored event."""
    event = _decode(line)
    call_id = event.call.get("call_id") if isinstance(event.call, dict) else None
    return event.run_id, event.source.shim_id, call_id if isinstance(call_id, str) else None


def may_leave(filters: Filters) -> bool:
    """Whether a call that was wanted may not be any more: what it is asked for by was not known when it began."""
    return bool(filters.known_from(DECISION, END).asked)


class Sieve:
    """Which of the calls that changed are wanted, and which were, perhaps, and are not any more."""

    def __init__(self, filters: Filters) -> None:
        self._wanted = Wanted(filters)
        self._by_text = "text" in filters.asked
        self._may_leave = may_leave(filters)

    def rows(self, ledger: Ledger, numbers: list[int]) -> tuple[list[Row], list[str]]:
        """Rows with their cursor, newest first, and the cursors of those that are not wanted."""
        found, gone = [], []
        hidden = _joined(ledger, numbers)
        for number in reversed(numbers):
            row = ledger.numbered(number)
            if row is None or number in hidden:
                gone.append(str(number))
            elif self._wants(ledger, number, row):
                found.append(row)
            elif self._may_leave:
                gone.append(str(number))
        return found, gone

    def _wants(self, ledger: Ledger, number: int, row: Row) -> bool:
        if not self._wanted.run(ledger.connection, row["run_id"]):
            return False
        return self._wanted.call({**row, **_previews(ledger, number)} if self._by_text else row)


def _joined(ledger: Ledger, numbers: list[int]) -> set[int]:
    """Those for which another door stands."""
    if ledger.connection.execute("SELECT 1 FROM joined LIMIT 1").fetchone() is None:
        return set()
    one = "SELECT 1 FROM joined WHERE id = ?"
    return {number for number in numbers if ledger.connection.execute(one, (number,)).fetchone() is not None}


def _previews(ledger: Ledger, number: int) -> Row:
    sql = f"SELECT {', '.join(PREVIEWS)} FROM previews WHERE id = ?"
    found = ledger.connection.execute(sql, (number,)).fetchone() or (None,) * len(PREVIEWS)
    return dict(zip(PREVIEWS, map(unpack_text, found), strict=True))
