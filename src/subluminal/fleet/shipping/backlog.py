"""What lies in the ledger after a place, as segments for a collector. Read-only, in the order of arrival.

The ledger's own segments hold up to 128 lines of one run, of whichever shims wrote them. Here they are gathered by
shim, so that numbers go on, and cut where they do not or where a segment is full.
"""

from __future__ import annotations

import sqlite3
from typing import NamedTuple

from subluminal.fleet.segments import MAX_LINES, TARGET_BYTES, Segment
from subluminal.fleet.shipping.holding import numbers
from subluminal.ledger.store.encoding import unpack_lines

# Read at once: enough for full segments of a few shims, little enough to be sent again after a kill.
PIECE_BYTES = 4 * TARGET_BYTES
PIECE_SEGMENTS = 512
_READ = (
    "SELECT s.id, s.run_no, r.run_id, s.first_n, s.lines, s.head FROM segments s JOIN runs r USING (run_no)"
    " WHERE s.id > ? AND s.id <= ? ORDER BY s.id LIMIT ?"
)


class Piece(NamedTuple):
    """`place`: the last segment of the ledger that is in it."""

    segments: list[Segment]
    first_place: int
    place: int


class _Growing:
    """Lines of one shim whose numbers go on."""

    def __init__(self, run_id: str, shim_id: str, first_seq: int) -> None:
        self.segment = Segment(run_id, shim_id, first_seq, [], [])
        self.bytes = 0

    def takes(self, seq: int, line: bytes) -> bool:
        lines = self.segment.lines
        full = len(lines) >= MAX_LINES or (lines and self.bytes + len(line) > TARGET_BYTES)
        return seq == self.segment.first_seq + len(lines) and not full

    def add(self, n: int, line: bytes) -> None:
        spans = self.segment.spans
        if spans and sum(spans[-1]) == n:
            spans[-1] = (spans[-1][0], spans[-1][1] + 1)
        else:
            spans.append((n, 1))
        self.segment.lines.append(line)
        self.bytes += len(line) + 1


def read_piece(connection: sqlite3.Connection, after: int, until: int = (1 << 63) - 1) -> Piece | None:
    """None: there is nothing."""
    growing: dict[tuple[str, str], _Growing] = {}
    done: list[_Growing] = []
    heads: dict[str, tuple[int, str]] = {}
    first_place, place, size = 0, after, 0
    for row in connection.execute(_READ, (after, until, PIECE_SEGMENTS)):
        number, run_no, run_id, first_n, stored, head = row
        lines = unpack_lines(stored)
        first_place, place = first_place or number, number
        heads[run_id] = (first_n + len(lines) - 1, head.hex())
        for n, shim_id, seq in numbers(connection, run_no, first_n, len(lines)):
            line = lines[n - first_n]
            open_one = growing.get((run_id, shim_id))
            if open_one is None or not open_one.takes(seq, line) or open_one.segment.spans[-1][0] > n:
                open_one = growing[run_id, shim_id] = _Growing(run_id, shim_id, seq)
                done.append(open_one)
            open_one.add(n, line)
            size += len(line)
        if size >= PIECE_BYTES:
            break
    if not first_place:
        return None
    for each in done:
        each.segment.head = heads[each.segment.run_id]
    return Piece([each.segment for each in done], first_place, place)


def without_known(segment: Segment, known: int) -> Segment | None:
    """What of it comes after a number up to which a collector has everything."""
    drop = known - segment.first_seq + 1
    if segment.first_seq < 1 or drop <= 0:
        return segment
    return None if drop >= len(segment.lines) else part(segment, drop, len(segment.lines))


def part(segment: Segment, begin: int, end: int) -> Segment:
    """Its lines from `begin` to before `end`."""
    spans = []
    place = 0
    for n, count in segment.spans:
        first, last = max(begin, place), min(end, place + count)
        if first < last:
            spans.append((n + first - place, last - first))
        place += count
    seq = segment.first_seq + begin
    return Segment(segment.run_id, segment.shim_id, seq, segment.lines[begin:end], spans, segment.head)
