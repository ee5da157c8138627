"""Schema 5 to 6: what each event had a row for is gathered, its hash in the segment of its line, its number in a span.

Nothing is read or judged: a row that was edited or taken away by hand leaves a mark or a span that does not fit, and
`sub verify` still finds it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

from subluminal.ledger.store.events import Span
from subluminal.ledger.store.lines import N_BITS
from subluminal.ledger.store.links import MARK_BYTES

_HASH_BYTES = 32
_NUMBER = (1 << N_BITS) - 1
_OF_RUN = "FROM events WHERE id >= ? AND id < ? ORDER BY id"
_PUT_SPAN = "INSERT INTO spans (run_no, first_n, count, producer_no, first_seq) VALUES (?, ?, ?, ?, ?)"


def gather(connection: sqlite3.Connection) -> None:
    for (run_no,) in connection.execute("SELECT run_no FROM runs").fetchall():
        connection.executemany(_PUT_SPAN, _spans(connection, run_no))
        segments = "SELECT id, first_n FROM segments WHERE run_no = ? ORDER BY first_n"
        firsts = connection.execute(segments, (run_no,)).fetchall()
        ends = [first_n for _, first_n in firsts[1:]] + [1 << N_BITS]
        for (number, first_n), end in zip(firsts, ends, strict=True):
            marks, head = _marks(connection, run_no, first_n, end)
            connection.execute("UPDATE segments SET head = ?, marks = ? WHERE id = ?", (head, marks, number))
    connection.execute("DROP TABLE events")


def _spans(connection: sqlite3.Connection, run_no: int) -> Iterator[tuple[int, ...]]:
    rows = connection.execute(f"SELECT id & {_NUMBER}, producer_no, seq {_OF_RUN}", _range(run_no, 0, 1 << N_BITS))
    span = Span(0, 0, 0, 0)
    for n, producer_no, seq in rows:
        if not span.goes_on(n, producer_no, seq):
            if span.count:
                yield span.row(run_no)
            span = Span(n, 0, producer_no, seq)
        span.count += 1
    if span.count:
        yield span.row(run_no)


def _marks(connection: sqlite3.Connection, run_no: int, first_n: int, end: int) -> tuple[bytes, bytes]:
    """Of a segment, with its head. Where the row of an event is missing, so is its mark."""
    marks, head = b"", bytes(_HASH_BYTES)
    for n, digest in connection.execute(f"SELECT id & {_NUMBER}, hash {_OF_RUN}", _range(run_no, first_n, end)):
        marks = marks.ljust((n - first_n) * MARK_BYTES, b"\0") + digest[:MARK_BYTES]
        head = digest
    return marks, head


def _range(run_no: int, first_n: int, end: int) -> tuple[int, int]:
    return (run_no << N_BITS) + first_n, (run_no << N_BITS) + end
