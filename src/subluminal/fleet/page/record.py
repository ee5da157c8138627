"""The record of a fleet, as the page asks for it: lists and figures by the collector's questions, what concerns one run
from the run folded here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import Empty, LifoQueue
from typing import Any, TypeVar

from subluminal.contracts.filters import Filters, RunFilters
from subluminal.fleet.client import Fleet
from subluminal.fleet.folded import FoldedRuns
from subluminal.fleet.page.cursors import asked, shown
from subluminal.fleet.page.threads import Threads
from subluminal.ledger.read.ledger import Ledger, Page, Row

T = TypeVar("T")
# How long somebody in front of a page waits for an answer of the collector.
PATIENCE_S = 30.0
AT_ONCE = 6

# A call of a ledger, judged again by the policy that decided it.
Explain = Callable[[Ledger, str, "str | None", "str | None"], dict[str, Any]]


class FleetRecord:
    """`connect`: another connection to the collector."""

    def __init__(self, connect: Callable[[], Fleet], folded: FoldedRuns, explain: Explain) -> None:
        self._connect = connect
        self._folded = folded
        self._explain = explain
        self._threads = Threads(AT_ONCE)
        self._idle: LifoQueue[Fleet] = LifoQueue()

    async def in_thread(self, work: Callable[[], T]) -> T:
        return await self._threads.run(work)

    def ask(self, question: Callable[[Fleet], T]) -> T:
        """With a connection that nobody else uses meanwhile."""
        try:
            fleet = self._idle.get_nowait()
        except Empty:
            fleet = self._connect()
        try:
            return question(fleet)
        finally:
            self._idle.put(fleet)

    def runs(self, filters: RunFilters, limit: int, cursor: str | None) -> Page:
        return self.ask(lambda fleet: fleet.runs(filters, limit=limit, cursor=cursor))

    def run(self, run_id: str) -> Row:
        return self.ask(lambda fleet: fleet.run(run_id))

    def sparks(self, run_ids: list[str]) -> list[Row]:
        return self.ask(lambda fleet: fleet.sparks(run_ids))

    def recoveries(self, run_ids: list[str]) -> list[Row]:
        return self.ask(lambda fleet: fleet.recoveries(run_ids))

    def calls(self, filters: Filters, limit: int, cursor: str | None, patience_s: float | None) -> Page:
        page = self.ask(lambda fleet: fleet.calls(filters, limit=limit, cursor=asked(cursor)))
        return Page(page.rows, [*map(shown, page.cursors)], more=page.next_cursor is not None)

    def groups(self, filters: Filters, by: list[str], limit: int) -> list[Row]:
        return self.ask(lambda fleet: fleet.group(filters, by=by, limit=limit))

    def over_time(self, filters: Filters, parts: int) -> Row:
        return self.ask(lambda fleet: fleet.over_time(filters, parts))

    @contextmanager
    def holding(self, run_id: str) -> Iterator[Ledger]:
        events = self.run(run_id)["event_count"]
        with self._folded.ledger(run_id, events, lambda after: self._lines(run_id, after)) as ledger:
            yield ledger

    @contextmanager
    def holding_call(self, call_id: str, run_id: str | None) -> Iterator[Ledger]:
        with self.holding(run_id or self.ask(lambda fleet: fleet.run_of_call(call_id))) as ledger:
            yield ledger

    def explain(self, call_id: str, run_id: str | None, shim_id: str | None) -> dict[str, Any]:
        with self.holding_call(call_id, run_id) as ledger:
            return self._explain(ledger, call_id, run_id, shim_id)

    def _lines(self, run_id: str, after: int) -> Iterator[bytes]:
        with self._connect() as fleet:
            yield from fleet.lines(run_id, after)
