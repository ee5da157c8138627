"""Group commit: what arrives within a fraction of a second is written together, and each sender hears of it afterwards.

A store takes thousands of rows as easily as one. So segments wait for at most `interval_s`, or until `FULL_EVENTS` have
come, and are written by one thread while the next ones gather. Whoever waits is told only after the commit. Where the
store does not keep up, or is down, new segments are refused at once: their machines keep them.

Segments that are written together do not answer for each other: where something is wrong and it is not the store, each
is written alone, and only the one that cannot be stored is refused.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from subluminal.contracts import figures
from subluminal.contracts.errors import SubluminalError
from subluminal.fleet.collector.metrics import Metrics
from subluminal.fleet.collector.owners import Owners
from subluminal.fleet.collector.rows import Batch
from subluminal.fleet.segments import BadSegment
from subluminal.fleet.stores.base import Store, StoreError, Unstorable

# Written without waiting for more; the store's best pace is between this and ten times as many.
FULL_EVENTS = 20_000
# Held in memory, waiting or being written: beyond it senders must come again. A tenant alone has two thirds of it: a
# hundred machines with a full segment each, on their way at once.
MAX_PENDING_BYTES = 192 << 20
# How often conflicts are looked for where commits do not tell.
_CONFLICTS_EVERY_S = 5.0
log = logging.getLogger("subluminal.collector")


class Busy(SubluminalError):
    """Not now: the store is down or behind."""


# Not only a store finds that something cannot be stored: texts that are none, numbers beyond 64 bits.
_OF_ROWS = (Unstorable, ValueError, OverflowError)


class _Waiting(NamedTuple):
    batch: Batch
    tenant: str
    done: asyncio.Future[None]


class Commits:
    def __init__(self, store: Store, metrics: Metrics, interval_s: float) -> None:
        self._store, self._metrics, self._interval_s = store, metrics, interval_s
        self._owners = Owners(store)
        self._waiting: list[_Waiting] = []
        self._bytes: Counter[str] = Counter()  # by tenant
        self._events = 0
        self._full = asyncio.Event()
        self._some = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, "commit")
        self._touched: dict[tuple[str, str, str], None] = {}
        self._conflicts: dict[tuple[str, str, str], int] = {}
        self._looked_at = time.monotonic()
        self.is_down = False
        self.failures = 0

    async def put(self, batch: Batch, tenant: str) -> None:
        """Returns once it is committed. Busy: it is not, and nothing of it is held."""
        self._check_room(tenant, batch.bytes)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(batch, tenant, done))
        self._bytes[tenant] += batch.bytes
        self._events += batch.events
        self._some.set()
        if self._events >= FULL_EVENTS:
            self._full.set()
        self._metrics.set(figures.PENDING_EVENTS, self._events)
        await done

    def _check_room(self, tenant: str, size: int) -> None:
        """No tenant has more than twice as much waiting as there is room left: one that floods the collector finds it
        full before another does."""
        left = MAX_PENDING_BYTES - self._bytes.total() - size
        if left < 0:
            raise Busy("The store is behind.")
        if self._bytes[tenant] + size > 2 * left:
            raise Busy(f"The store is behind, and {tenant} has its share of what waits for it.")

    async def run(self) -> None:
        """Until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            waiting = await self._gathered()
            began = time.monotonic()
            faults = await loop.run_in_executor(self._thread, self._faults, waiting)
            for each in waiting:
                self._bytes[each.tenant] -= each.batch.bytes
            self._bytes = +self._bytes
            self._metrics.observe(figures.COMMIT, time.monotonic() - began)
            self._metrics.set(figures.PENDING_EVENTS, self._events)
            self._tell_operator(faults)
            for each, fault in zip(waiting, faults, strict=True):
                _tell(each.done, fault)

    async def _gathered(self) -> list[_Waiting]:
        await self._some.wait()
        try:
            await asyncio.wait_for(self._full.wait(), self._interval_s)
        except TimeoutError:
            pass
        waiting, self._waiting = self._waiting, []
        self._events = 0
        self._some.clear()
        self._full.clear()
        return waiting

    def _faults(self, waiting: list[_Waiting]) -> list[Exception | None]:
        """In the thread: why each was not stored; None: it was."""
        try:
            self._commit(waiting)
            return [None] * len(waiting)
        except Exception as error:
            is_store = isinstance(error, StoreError) and not isinstance(error, Unstorable)
            if is_store or len(waiting) == 1:
                return [error] * len(waiting)
        return [fault for each in waiting for fault in self._faults([each])]

    def _tell_operator(self, faults: list[Exception | None]) -> None:
        failures = [fault for fault in faults if fault is not None and not isinstance(fault, _OF_ROWS)]
        self.is_down = bool(failures) and None not in faults
        for fault in faults:
            if isinstance(fault, _OF_ROWS):
                # Its text, where it is not ours, may repeat what was sent.
                log.error(
                    "a segment cannot be stored: %s", fault if isinstance(fault, Unstorable) else type(fault).__name__
                )
        if failures:
            self.failures += 1
            self._metrics.count(figures.STORE_FAILURES)
            log.error("%d segments were not acknowledged: %s", len(failures), failures[0])
            if not isinstance(failures[0], StoreError):
                log.error("a commit failed in a way that is no store's", exc_info=failures[0])

    def _commit(self, waiting: list[_Waiting]) -> None:
        """In the thread."""
        whole = Batch()
        for batch in self._owners.sorted_out([each.batch for each in waiting], time.time_ns() // 1_000_000):
            whole.merge(batch)
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
            self._touched.update(dict.fromkeys(producer for producer, _ in whole.brought()))
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
        what = "were there with other bytes, or are of a shim of another machine; all are kept"
        log.warning("CONFLICT: %d events %s (`conflicts` in the store)", count, what)

    def close(self) -> None:
        self._thread.shutdown(wait=True)


def _tell(done: asyncio.Future[None], fault: Exception | None) -> None:
    if done.done():
        return  # its sender has gone
    if fault is None:
        done.set_result(None)
    elif isinstance(fault, _OF_ROWS):
        done.set_exception(BadSegment("store", "The store cannot hold one of its events."))
    else:
        done.set_exception(Busy("The store does not take anything at the moment."))
