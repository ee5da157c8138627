"""`segments` and `spans`, as the writer sees them: events numbered, linked and kept.

A segment never crosses a flush, so that a line and what is known of it commit together.
"""

from __future__ import annotations

import sqlite3
from hashlib import sha256

from subluminal.ledger.fold.run import Run
from subluminal.ledger.store.encoding import pack_lines
from subluminal.ledger.store.lines import SEGMENT_LINES, LineReader
from subluminal.ledger.store.links import follow, marks

# What is held in memory before it is written, whatever the size of the batch.
FLUSH_EVENTS = 8192
FLUSH_BYTES = 8 << 20
_SPANS_KEPT = 1024

_LAST_SPAN = "SELECT first_n, count, producer_no, first_seq FROM spans WHERE run_no = ? ORDER BY first_n DESC LIMIT 1"
_PUT_SPAN = (
    "INSERT INTO spans (run_no, first_n, count, producer_no, first_seq) VALUES (?, ?, ?, ?, ?)"
    " ON CONFLICT (run_no, first_n) DO UPDATE SET count = excluded.count"
)
_FIND_SPAN = (
    "SELECT run_no, first_n + ? - first_seq FROM (SELECT * FROM spans WHERE producer_no = ? AND first_seq <= ?"
    " ORDER BY first_seq DESC LIMIT 1) WHERE ? - first_seq < count"
)


def hashed_seq(line: bytes) -> int:
    """The number of an event whose producer gives none: below zero, so that reading a file twice adds nothing."""
    return -1 - (int.from_bytes(sha256(line).digest()[:8], "big") >> 1)


class Span:
    """Events of one producer that stand in a row in their run, and are numbered so too."""

    __slots__ = ("count", "first_n", "first_seq", "producer_no")

    def __init__(self, first_n: int, count: int, producer_no: int, first_seq: int) -> None:
        self.first_n = first_n
        self.count = count
        self.producer_no = producer_no
        self.first_seq = first_seq

    def goes_on(self, n: int, producer_no: int, seq: int) -> bool:
        return seq == self.first_seq + self.count and producer_no == self.producer_no and n == self.first_n + self.count

    def row(self, run_no: int) -> tuple[int, int, int, int, int]:
        return run_no, self.first_n, self.count, self.producer_no, self.first_seq


class _Pending:
    """What a run has got since the last flush. `span` is the one that goes on."""

    __slots__ = ("first_n", "heads", "lines", "span", "spans")

    def __init__(self, first_n: int, span: Span) -> None:
        self.first_n = first_n
        self.lines: list[bytes] = []
        self.heads: list[bytes] = []
        self.span = span
        self.spans: list[Span] = [span]


class EventTable:
    """`keeping` False: a proof, which has the lines already, needs no segments."""

    def __init__(self, connection: sqlite3.Connection, *, keeping: bool = True) -> None:
        self._connection = connection
        self._keeping = keeping
        self._pending: dict[int, _Pending] = {}
        self._spans: dict[int, Span] = {}
        self._count = 0
        self._bytes = 0
        self._reader = LineReader(connection)

    def append(self, run: Run, producer_no: int, seq: int, lines: list[bytes]) -> None:
        """Number, link and keep events of one producer, whose numbers go on from `seq`."""
        first_n = run.event_count + 1
        pending = self._pending.get(run.run_no)
        if pending is None:
            pending = self._pending[run.run_no] = _Pending(first_n, self._last_span(run.run_no))
        span = pending.span
        if not span.goes_on(first_n, producer_no, seq):
            pending.span = span = Span(first_n, 0, producer_no, seq)
            pending.spans.append(span)
        heads = follow(run.chain_head, lines)
        run.event_count += len(lines)
        run.chain_head = heads[-1]
        span.count += len(lines)
        pending.lines += lines
        pending.heads += heads
        self._count += len(lines)
        self._bytes += sum(map(len, lines))

    def _last_span(self, run_no: int) -> Span:
        """The one that its next event may go on with; of a new run, one of nobody."""
        span = self._spans.get(run_no)
        if span is None:
            span = Span(*(self._connection.execute(_LAST_SPAN, (run_no,)).fetchone() or (0, 0, 0, 0)))
        return span

    @property
    def full(self) -> bool:
        return self._count >= FLUSH_EVENTS or self._bytes >= FLUSH_BYTES

    def flush(self) -> None:
        if not self._count:
            return
        if len(self._spans) > _SPANS_KEPT:
            self._spans.clear()
        spans, segments = [], []
        for run_no, pending in self._pending.items():
            self._spans[run_no] = pending.span
            spans += [span.row(run_no) for span in pending.spans if span.count]
            for i in range(0, len(pending.lines) if self._keeping else 0, SEGMENT_LINES):
                lines, heads = pending.lines[i : i + SEGMENT_LINES], pending.heads[i : i + SEGMENT_LINES]
                segments.append((run_no, pending.first_n + i, pack_lines(lines), heads[-1], marks(heads)))
        self._connection.executemany(_PUT_SPAN, spans)
        sql = "INSERT INTO segments (run_no, first_n, lines, head, marks) VALUES (?, ?, ?, ?, ?)"
        self._connection.executemany(sql, segments)
        self._pending.clear()
        self._count = self._bytes = 0

    def holds(self, producer_no: int, seq: int, line: bytes) -> bool | None:
        """None: no such event. Else whether its line is this one."""
        self.flush()
        found = self._connection.execute(_FIND_SPAN, (seq, producer_no, seq, seq)).fetchone()
        if found is None:
            return None
        try:
            return not self._keeping or self._reader.line(*found) == line
        except Exception:  # zlib.error, LookupError: the segment was damaged, and does not hold it
            return False
