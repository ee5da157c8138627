"""Producers by run, for a process that serves many: each run has its own identity, budgets, journal and `run_end`.

Bounded: a run that nobody has asked for in IDLE_NS ends, and beyond the limit the one asked for longest ago does; its
`run_end` says so (`ended_by`). A run that comes back is taken up by another producer; its state on this machine is the
same. A run that has something open does not end so: where all have, another one finds no room.

Nothing here waits for a run's state while the process goes on, for it has a loop to serve.
"""

from __future__ import annotations

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


class Seat:
    """A producer that is open, and when it was asked for last: whoever keeps it says so. `ended`: open no more."""

    __slots__ = ("asked_ns", "ended", "producer")

    def __init__(self, producer: Producer, asked_ns: int) -> None:
        self.producer = producer
        self.asked_ns = asked_ns
        self.ended = False


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
        self._seats: dict[Hashable, Seat] = {}

    def __len__(self) -> int:
        return len(self._seats)

    def __iter__(self) -> Iterator[Producer]:
        """Those that are open now, whatever ends meanwhile."""
        return iter([seat.producer for seat in self._seats.values()])

    def get(self, key: Hashable) -> Producer:
        return self.seat(key).producer

    def seat(self, key: Hashable) -> Seat:
        """Asked for now."""
        seat = self._seats.get(key)
        if seat is None:
            while len(self._seats) >= self._limit:
                self._make_room()
            seat = self._seats[key] = Seat(self._open_producer(key), 0)
        seat.asked_ns = monotonic_ns()
        return seat

    def close_idle(self, now_ns: int) -> list[Producer]:
        """Those that have ended."""
        ended = []
        for key, seat in self._longest_idle():
            if now_ns - seat.asked_ns <= IDLE_NS:
                break
            if self._busy(seat.producer):
                seat.asked_ns = now_ns
            elif seat.producer.try_state():  # else the next time, so that what it counted is not lost
                self._end(key, "SUCCEEDED", "idle")
                ended.append(seat.producer)
        return ended

    def close(self, status: str = "SUCCEEDED") -> list[str]:
        """All of them, whatever is open. What of their records is missing, and why."""
        give_up_ns = monotonic_ns() + CLOSE_NS
        troubles = []
        for key, seat in self._longest_idle():
            if monotonic_ns() > give_up_ns:
                _without_waiting(seat.producer)
            trouble = self._end(key, status, None)
            if trouble is not None:
                troubles.append(trouble)
        return troubles

    def _longest_idle(self) -> list[tuple[Hashable, Seat]]:
        """The one asked for longest ago first."""
        return sorted(self._seats.items(), key=lambda item: item[1].asked_ns)

    def _make_room(self) -> None:
        for key, seat in self._longest_idle():
            producer = seat.producer
            if not self._busy(producer):
                if not producer.try_state():
                    _without_waiting(producer)
                self._end(key, "SUCCEEDED", "idle")
                return
        raise NoRoom

    def _end(self, key: Hashable, status: str, ended_by: str | None) -> str | None:
        seat = self._seats.pop(key)
        seat.ended = True
        producer = seat.producer
        try:
            return producer.close(status, ended_by=ended_by)
        finally:
            producer.close_state()
            self._ended(producer)


def _without_waiting(producer: Producer) -> None:
    if isinstance(producer.state, SharedState):
        producer.state.wait_no_more()
