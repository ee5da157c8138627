"""The chain of a run followed over the exact bytes of its events, segment by segment, up to the first fault."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

from subluminal.ledger.store.chain import GENESIS, Head
from subluminal.ledger.store.encoding import unpack_lines
from subluminal.ledger.store.links import MARK_BYTES, follow, marks
from subluminal.ledger.trace.report import Fault

_SEGMENTS = "SELECT first_n, lines, head, marks FROM segments WHERE run_no = ? ORDER BY first_n"
CHANGED = "this event was changed, moved or put in"


class Chain:
    """`run`: (run_no, event_count, chain_head). `place`: how far along it we are."""

    def __init__(self, connection: sqlite3.Connection, run: sqlite3.Row, head: Head | None) -> None:
        self._connection = connection
        self._run_no, self._event_count, self._chain_head = run
        self._witness = head if head is not None and not head.pruned else Head(0, GENESIS)
        self.place = Head(0, GENESIS)
        self.faults: list[Fault] = []

    def segments(self) -> Iterator[list[bytes]]:
        """The lines of each in turn; a fault ends it."""
        for row in self._connection.execute(_SEGMENTS, (self._run_no,)):
            lines = self._follow(*row)
            if lines is None:
                return
            yield lines
        self._end()

    def _follow(self, first_n: int, stored: bytes, head: bytes, stored_marks: bytes) -> list[bytes] | None:
        place = self.place
        if first_n != place.count + 1:
            return self._fault(f"events are missing before event {first_n}", place.count + 1)
        try:
            lines = unpack_lines(stored)
        except Exception:  # zlib.error and ValueError alike: the segment was damaged
            return self._fault("its line is missing", first_n)
        heads = follow(place.hash, lines)
        found = marks(heads)
        if heads[-1] != head or found != stored_marks:
            wrong = _first_difference(found, stored_marks or b"")
            missing = wrong >= len(lines)
            place.count += min(wrong, len(lines))
            return self._fault("its line is missing" if missing else CHANGED, first_n + wrong)
        place.count += len(lines)
        place.hash = heads[-1]
        witness = self._witness
        if first_n <= witness.count <= place.count and heads[witness.count - first_n] != witness.hash:
            what = "the chain was written anew: it differs from its witness here or before"
            return self._fault(what, witness.count)
        return lines

    def _end(self) -> None:
        count, witness = self.place.count, self._witness
        if witness.count > count:
            self._fault(f"the end is missing: the witness knows {witness.count} events", count + 1)
        elif self._event_count != count:
            self._fault(f"the run's row counts {self._event_count} events, there are {count}", count + 1)
        elif self._chain_head != self.place.hash:
            self._fault("the run's row has another chain head", count)

    def _fault(self, what: str, event: int) -> list[bytes] | None:
        """There are no lines beyond it."""
        self.faults.append(Fault(what, event=event))
        return None


def _first_difference(found: bytes, stored: bytes) -> int:
    """The place of the first event whose mark is not the stored one; the last of them if only the head is not."""
    count = max(len(found), len(stored)) // MARK_BYTES
    for i in range(count):
        here = slice(i * MARK_BYTES, (i + 1) * MARK_BYTES)
        if found[here] != stored[here]:
            return i
    return count - 1
