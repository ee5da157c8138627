"""Group commit: what arrives within a fraction of a second is written together, and each sender hears of it afterwards.

A store takes thousands of rows as easily as one. So segments wait for at most `interval_s`, or until `FULL_EVENTS` have
come, and are written by one thread while the next ones gather. Whoever waits is told only after the commit. Where the
store does not keep up, or is down, new segments are refused at once: their machines keep them.
"""

from __future__ import annotations

import asyncio
import logging
import time
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from subluminal.contracts import figures
from subluminal.contracts.errors import SubluminalError
from subluminal.fleet.collector.metrics import Metrics
from subluminal.fleet.collector.rows import Batch
from subluminal.fleet.stores.base import Store, StoreError

# Written without waiting for more; the store's best pace is between this and ten times as many.
FULL_EVENTS = 20_000
# Held in memory, waiting or being written: beyond it senders must come again.
MAX_PENDING_BYTES = 128 << 20
# How often conflicts are looked for where commits do not tell.
_CONFLICTS_EVERY_S = 5.0
log = logging.getLogger("subluminal.collector")


class Busy(SubluminalError):
    """Not now: the store is down or behind."""


class _Waiting(NamedTuple):
    batch: Batch
    tenant: str
    done: asyncio.Future[None]


class Commits:
    def __init__(self, store: Store, metrics: Metrics, interval_s: float) -> None:
        self._store, self._metrics, self._interval_s = store, metrics, interval_s
        self._waiting: list[_Waiting] = []
        self._bytes = 0
        self._events = 0
        self._full = asyncio.Event()
        self._some = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, "commit")
        self._touched: dict[tuple[str, str, str], None] = {}
        self._conflicts: dict[tuple[str, str, str], int] = {}
        self._looked_at = time.monotonic()
        self.is_down = False

    async def put(self, batch: Batch, tenant: str) -> None:
        """Returns once it is committed. Busy: it is not, and nothing of it is held."""
        if self._bytes + batch.bytes > MAX_PENDING_BYTES:
            raise Busy("The store is behind.")
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(batch, tenant, done))
        self._bytes += batch.bytes
        self._events += batch.events
        self._some.set()
        if self._events >= FULL_EVENTS:
            self._full.set()
        self._metrics.set(figures.PENDING_EVENTS, self._events)
        await done

    async def run(self) -> None:
        """Until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            await self._some.wait()
            try:
                await asyncio.wait_for(self._full.wait(), self._interval_s)
            except TimeoutError:
                pass
            waiting, self._waiting = self._waiting, []
            self._events = 0
            self._some.clear()
            self._full.clear()
            began = time.monotonic()
            try:
                await loop.run_in_executor(self._thread, self._commit, waiting)
                fault: Exception | None = None
                self.is_down = False
            except Exception as error:
                fault = error
                self.is_down = True
                self._metrics.count(figures.STORE_FAILURES)
                log.error("nothing of %d segments was acknowledged: %s", len(waiting), error)
                if not isinstance(error, StoreError):
                    log.exception("a commit failed in a way that is no store's")
            self._bytes -= sum(each.batch.bytes for each in waiting)
            self._metrics.observe(figures.COMMIT, time.monotonic() - began)
            self._metrics.set(figures.PENDING_EVENTS, self._events)
            for each in waiting:
                if each.done.done():
                    continue  # its sender has gone
                if fault is None:
                    each.done.set_result(None)
                else:
                    each.done.set_exception(Busy("The store does not take anything at the moment."))

    def _commit(self, waiting: list[_Waiting]) -> None:
        """In the thread."""
        whole = Batch()
        for each in waiting:
            whole.merge(each.batch)
        written = self._store.write(whole.rows())
        for each in waiting:
            self._metrics.count(figures.EVENTS, each.batch.events, ("tenant", each.tenant))
            for action, calls in each.batch.decided.items():
                self._metrics.count(figures.CALLS, calls, ("decision", action))
            for kind, calls in each.batch.failed.items():
                self._metrics.count(figures.ERRORS, calls, ("class", kind))
        if written.duplicates:
            self._metrics.count(figures.DUPLICATES, written.duplicates)
        if written.conflicts:
            self._alert(written.conflicts)
        if written.conflicts is None:
            self._touched.update(dict.fromkeys(each[:3] for each in whole.lines))
            self._look_for_conflicts()

    def _look_for_conflicts(self) -> None:
        now = time.monotonic()
        if now - self._looked_at < _CONFLICTS_EVERY_S:
            return
        self._looked_at = now
        touched, self._touched = list(self._touched), {}
        for producer, count in self._store.conflicts_among(touched).items():
            if count > self._conflicts.get(producer, 0):
                self._alert(count - self._conflicts.get(producer, 0))
                self._conflicts[producer] = count

    def _alert(self, count: int) -> None:
        self._metrics.count(figures.CONFLICTS, count)
        log.warning("CONFLICT: %d events were there with other bytes; both are kept (`conflicts` in the store)", count)

    def close(self) -> None:
        self._thread.shutdown(wait=True)
