"""Producers by run, for a process that serves many: each run has its own identity, budgets, journal and `run_end`.

Bounded: a run that nobody has asked for in IDLE_NS ends, and beyond MAX_PRODUCERS the one asked for longest ago does. A
run that comes back is taken up by another producer; its state on this machine is the same.
"""

from __future__ import annotations

from collections import OrderedDict
from time import monotonic_ns

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from subluminal.producer.producer import Producer

# Each holds a journal and a mapped state file open: two descriptors.
MAX_PRODUCERS = 256
IDLE_NS = 600_000_000_000


class Pool:
    """`open_producer` makes and opens the producer of a key: whatever tells runs and their parts from one another."""

    def __init__(self, open_producer: Callable[[Hashable], Producer], limit: int = MAX_PRODUCERS) -> None:
        self._open_producer = open_producer
        self._limit = limit
        self._producers: OrderedDict[Hashable, tuple[Producer, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._producers)

    def get(self, key: Hashable) -> Producer:
        known = self._producers.pop(key, None)
        if known is None:
            while len(self._producers) >= self._limit:
                self._close_oldest()
        producer = self._open_producer(key) if known is None else known[0]
        self._producers[key] = (producer, monotonic_ns())
        return producer

    def close_idle(self, now_ns: int) -> None:
        while self._producers and now_ns - next(iter(self._producers.values()))[1] > IDLE_NS:
            self._close_oldest()

    def close(self) -> None:
        while self._producers:
            self._close_oldest()

    def _close_oldest(self) -> None:
        _, (producer, _) = self._producers.popitem(last=False)
        producer.close("SUCCEEDED")
