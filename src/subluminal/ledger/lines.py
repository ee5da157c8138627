"""Read event lines back: by run and number, or in order of arrival. Light enough for `sub tail`."""

from __future__ import annotations

import sqlite3

from subluminal.ledger.encoding import unpack_lines

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
        found = self._connection.execute(
            "SELECT first_n, lines FROM segments WHERE run_no = ? AND first_n <= ? ORDER BY first_n DESC LIMIT 1",
            (run_no, n),
        ).fetchone()
        lines = unpack_lines(found[1]) if found is not None else []
        if found is None or n >= found[0] + len(lines):
            raise LookupError(f"event {n} has a row but no line")
        if len(self._kept) >= _SEGMENTS_KEPT:
            self._kept.pop(next(iter(self._kept)))
        self._kept[run_no] = kept = (found[0], found[0] + len(lines), lines)
        return kept


def arrivals(
    connection: sqlite3.Connection, reader: LineReader, after_id: int, limit: int
) -> list[tuple[int, str, bytes]]:
    """(id, type, line) of the events that arrived after `after_id`, in order."""
    rows = connection.execute(
        "SELECT id, type, run_no, n FROM events WHERE id > ? ORDER BY id LIMIT ?", (after_id, limit)
    ).fetchall()
    return [(row[0], row[1], reader.line(row[2], row[3])) for row in rows]
