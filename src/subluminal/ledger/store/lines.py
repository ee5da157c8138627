"""Read event lines back: by run and number, or in order of arrival. Light enough for `sub tail`."""

from __future__ import annotations

import sqlite3

from subluminal.ledger.store.encoding import unpack_lines

# agent_events.id is (run_no << N_BITS) + n, as events.id was before schema 6.
N_BITS = 32
# tool_calls.id is (milliseconds << TIE_BITS) + (producer_no & 0xff) * 256 + a counter: calls of one shim in one
# millisecond keep their order, and those of different shims hardly ever want the same id.
TIE_BITS = 16
# Lines deflated together: enough for the envelopes to vanish, few enough to read one event in under a millisecond.
SEGMENT_LINES = 128
# A place in the order of arrival is (segment << _PLACE_BITS) + position in it.
_PLACE_BITS = 7
_SEGMENTS_KEPT = 16


class LineReader:
    """Lines out of their segments; keeps the last few segments inflated."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._kept: dict[int, tuple[int, int, list[bytes]]] = {}

    def line(self, run_no: int, n: int) -> bytes:
        kept = self._kept.get(run_no)
        if kept is None or not kept[0] <= n < kept[1]:
            kept = self._load(run_no, n)
        return kept[2][n - kept[0]]

    def _load(self, run_no: int, n: int) -> tuple[int, int, list[bytes]]:
        sql = "SELECT first_n, lines FROM segments WHERE run_no = ? AND first_n <= ? ORDER BY first_n DESC LIMIT 1"
        found = self._connection.execute(sql, (run_no, n)).fetchone()
        lines = unpack_lines(found[1]) if found is not None else []
        if found is None or n >= found[0] + len(lines):
            raise LookupError(f"event {n} has no line")
        if len(self._kept) >= _SEGMENTS_KEPT:
            self._kept.pop(next(iter(self._kept)))
        self._kept[run_no] = kept = (found[0], found[0] + len(lines), lines)
        return kept


def newest_arrival(connection: sqlite3.Connection) -> int:
    """The place after everything that is stored now. A segment never grows once it is committed."""
    newest = connection.execute("SELECT coalesce(max(id), 0) FROM segments").fetchone()[0]
    return (int(newest) << _PLACE_BITS) + SEGMENT_LINES - 1


def has_reached(connection: sqlite3.Connection, segment: int) -> bool:
    """Whether this ledger ever had a segment of this number, pruned or not. One that was put back from an earlier copy
    gives numbers a second time."""
    row = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'segments'").fetchone()
    return segment <= (0 if row is None else int(row[0]))


def head_at(connection: sqlite3.Connection, place: int) -> str | None:
    """The hash of the chain after the segment of this place, which no other ledger has there; None: it is not there."""
    row = connection.execute("SELECT head FROM segments WHERE id = ?", (place >> _PLACE_BITS,)).fetchone()
    return None if row is None else str(row[0].hex())


def belongs_here(connection: sqlite3.Connection, place: int, head: str | None) -> bool:
    """Whether a place that was noted with `head_at` is one of this ledger."""
    found = head_at(connection, place)
    return has_reached(connection, place >> _PLACE_BITS) if found is None else found == head


def arrivals(connection: sqlite3.Connection, after: int, limit: int) -> list[tuple[int, bytes]]:
    """(place, line) of the events that arrived after a place, in order; about `limit` of them, by whole segments."""
    segment, position = after >> _PLACE_BITS, after & (SEGMENT_LINES - 1)
    found: list[tuple[int, bytes]] = []
    for number, stored in connection.execute("SELECT id, lines FROM segments WHERE id >= ? ORDER BY id", (segment,)):
        first = position + 1 if number == segment else 0
        lines = unpack_lines(stored)[first:]
        found += [((number << _PLACE_BITS) + place, line) for place, line in enumerate(lines, first)]
        if len(found) >= limit:
            break
    return found
