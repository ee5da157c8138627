"""Producers by run, for a process that serves many: each run has its own identity, budgets, journal and `run_end`.

Bounded: a run that nobody has asked for in IDLE_NS ends, and beyond the limit the one asked for longest ago does; its
`run_end` says so (`ended_by`). A run that comes back is taken up by another producer; its state on this machine is the
same. A run that has something open does not end so: where all have, another one finds no room.

Nothing here waits for a run's state while the process goes on, for it has a loop to serve.
"""

from __future__ import annotations

from collections import OrderedDict
from time import monotonic_ns

from subluminal.host.run.state import SharedState

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator

    from subluminal.producer.producer import Producer

# Each holds a journal and a state file open; one whose state others hold a copy of its descriptor, one with rules of a
# wide scope their state as well.
MAX_PRODUCERS = 256
DESCRIPTORS_EACH = 4
IDLE_NS = 600_000_000_000
# For all of them, at the end of the process: so long may states that others hold keep us.
CLOSE_NS = 2_000_000_000


class NoRoom(Exception):
    """All producers have calls open."""


class Pool:
    """`open_producer` makes and opens the producer of a key: whatever tells runs and their parts from one another.

    `busy` tells whether a producer has something open. `ended` hears of each that has ended, for whatever reason.
    """

    def __init__(
        self,
        open_producer: Callable[[Hashable], Producer],
        limit: int = MAX_PRODUCERS,
        *,
        busy: Callable[[Producer], object] = lambda producer: False,
        ended: Callable[[Producer], None] = lambda producer: None,
    ) -> None:
        self._open_producer = open_producer
        self._limit = limit
        self._busy = busy
        self._ended = ended
        self._producers: OrderedDict[Hashable, tuple[Producer, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._producers)

    def __iter__(self) -> Iterator[Producer]:
        """Those that are open now, whatever ends meanwhile."""
        return iter([producer for producer, _ in self._producers.values()])

    def get(self, key: Hashable) -> Producer:
        known = self._producers.pop(key, None)
        if known is None:
            while len(self._producers) >= self._limit:
                self._make_room()
        producer = self._open_producer(key) if known is None else known[0]
        self._producers[key] = (producer, monotonic_ns())
        return producer

    def close_idle(self, now_ns: int) -> list[Producer]:
        """Those that have ended."""
        ended = []
        for key, (producer, asked_ns) in list(self._producers.items()):
            if now_ns - asked_ns <= IDLE_NS:
                break
            if self._busy(producer):
                self._producers.move_to_end(key)
                self._producers[key] = (producer, now_ns)
            elif producer.try_state():  # else the next time, so that what it counted is not lost
                self._end(key, "SUCCEEDED", "idle")
                ended.append(producer)
        return ended

    def close(self, status: str = "SUCCEEDED") -> list[str]:
        """All of them, whatever is open. What of their records is missing, and why."""
        give_up_ns = monotonic_ns() + CLOSE_NS
        troubles = []
        for key, (producer, _) in list(self._producers.items()):
            if monotonic_ns() > give_up_ns:
                _without_waiting(producer)
            trouble = self._end(key, status, None)
            if trouble is not None:
                troubles.append(trouble)
        return troubles

    def _make_room(self) -> None:
        for key, (producer, _) in self._producers.items():
            if not self._busy(producer):
                if not producer.try_state():
                    _without_waiting(producer)
                self._end(key, "SUCCEEDED", "idle")
                return
        raise NoRoom

    def _end(self, key: Hashable, status: str, ended_by: str | None) -> str | None:
        producer, _ = self._producers.pop(key)
        try:
            return producer.close(status, ended_by=ended_by)
        finally:
            producer.close_state()
            self._ended(producer)


def _without_waiting(producer: Producer) -> None:
    if isinstance(producer.state, SharedState):
        producer.state.wait_no_more()
