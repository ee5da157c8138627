"""The record that a page looks at: this machine's ledger (`Here`), or that of a fleet (`fleet.page`).

Each question may take a while and is asked in a thread (`in_thread`). A run, and what is in it, is read from a ledger
that holds it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol, TypeVar

from subluminal.contracts.errors import LedgerError
from subluminal.contracts.filters import Filters, RunFilters
from subluminal.ledger.http.above import Above, Told
from subluminal.ledger.read.ledger import Ledger, Page, Row, open_ledger
from subluminal.ledger.read.over_time import over_time
from subluminal.ledger.read.recovery import recoveries
from subluminal.ledger.read.sparks import spark

T = TypeVar("T")


class Record(Protocol):
    async def in_thread(self, work: Callable[[], T]) -> T: ...

    def runs(self, filters: RunFilters, limit: int, cursor: str | None) -> Page: ...

    def run(self, run_id: str) -> Row:
        """With its producers."""

    def sparks(self, run_ids: list[str]) -> list[Row]: ...

    def recoveries(self, run_ids: list[str]) -> list[Row]: ...

    def calls(self, filters: Filters, limit: int, cursor: str | None, patience_s: float | None) -> Page: ...

    def groups(self, filters: Filters, by: list[str], limit: int) -> list[Row]: ...

    def over_time(self, filters: Filters, parts: int) -> Row: ...

    def holding(self, run_id: str) -> AbstractContextManager[Ledger]:
        """A ledger in which this run is."""

    def holding_call(self, call_id: str, run_id: str | None) -> AbstractContextManager[Ledger]: ...

    def explain(self, call_id: str, run_id: str | None, shim_id: str | None) -> Told:
        """As `Above.explain`."""


class Changing(Protocol):
    """The calls of a record as they begin and change."""

    pages: int

    def follow(self, filters: Filters, after: int | None) -> AsyncIterator[str]:
        """Messages for one page, without end."""


class Here:
    def __init__(self, path: str, above: Above | None) -> None:
        self._path = path
        self._above = above

    async def in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.to_thread(work)

    @contextmanager
    def holding(self, run_id: str) -> Iterator[Ledger]:
        with open_ledger(self._path) as ledger:
            yield ledger

    def holding_call(self, call_id: str, run_id: str | None) -> AbstractContextManager[Ledger]:
        return self.holding(run_id or "")

    def runs(self, filters: RunFilters, limit: int, cursor: str | None) -> Page:
        return self._read(lambda ledger: ledger.runs(filters, limit=limit, cursor=cursor))

    def run(self, run_id: str) -> Row:
        return self._read(lambda ledger: ledger.run(run_id))

    def sparks(self, run_ids: list[str]) -> list[Row]:
        return self._read(
            lambda ledger: [{"run_id": run_id, "calls": spark(ledger, run_id)} for run_id in run_ids],
        )

    def recoveries(self, run_ids: list[str]) -> list[Row]:
        sources = None if self._above is None else self._above.messages
        return self._read(lambda ledger: recoveries(ledger, run_ids, sources))

    def calls(self, filters: Filters, limit: int, cursor: str | None, patience_s: float | None) -> Page:
        return self._read(lambda ledger: ledger.calls(filters, limit=limit, cursor=cursor, patience_s=patience_s))

    def groups(self, filters: Filters, by: list[str], limit: int) -> list[Row]:
        return self._read(lambda ledger: ledger.group(filters, by=by, limit=limit))

    def over_time(self, filters: Filters, parts: int) -> Row:
        return self._read(lambda ledger: over_time(ledger, filters, parts))

    def explain(self, call_id: str, run_id: str | None, shim_id: str | None) -> dict[str, Any]:
        if self._above is None:
            raise LedgerError("This daemon cannot tell.", hint="Start it with `sub ledgerd`.")
        return self._above.explain(call_id, run_id, shim_id)

    def _read(self, ask: Callable[[Ledger], T]) -> T:
        with open_ledger(self._path) as ledger:
            return ask(ledger)
