"""Those on a loop who wait for the run's state: who is told when, and how long anybody waits.

Knows no loop: `turns` waits on that of asyncio, `runtime` on that of its host.
"""

from __future__ import annotations

from time import monotonic_ns

from subluminal.host.run.state import SharedState
from subluminal.host.run.table import LOCK_WAIT_SECONDS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from subluminal.core.engine.state import State
    from subluminal.producer.producer import Producer


class StateQueue:
    """Those in this process who wait for the state of one producer. In the kernel's queue they have one place."""

    __slots__ = ("_tells",)

    def __init__(self) -> None:
        self._tells: list[Callable[[], None]] = []

    def __len__(self) -> int:
        return len(self._tells)

    def stand(self, state: SharedState, tell: Callable[[], None]) -> None:
        """`tell` is called, mostly from another thread, when it is time to try again; until `leave`."""
        self._tells.append(tell)
        state.missing.ask(self._tell_all)

    def _tell_all(self) -> None:
        """Whoever is first has it, the others try and ask again."""
        for tell in self._tells[:]:
            tell()

    def leave(self, state: State | None, tell: Callable[[], None]) -> None:
        """What nobody waits for any more must not come to us, and stay: if it has come, it is held as if just tried."""
        self._tells.remove(tell)
        if not self._tells and isinstance(state, SharedState):
            state.keep_asked()


def give_up_at() -> int:
    return monotonic_ns() + int(LOCK_WAIT_SECONDS * 1e9)


def try_turn(producer: Producer, give_up_ns: int) -> bool:
    """Whether the next judgement may begin: the state is locked for it, or it does without."""
    if producer.try_state():
        return True
    if monotonic_ns() < give_up_ns:
        return False
    assert isinstance(producer.state, SharedState)  # what is ours alone is had at once
    producer.state.wait_no_more()
    return True
