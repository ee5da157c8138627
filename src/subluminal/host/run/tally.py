"""What became of a run's calls, for whoever keeps the run and makes none itself: `sub run`, `sub agent run`.

How many calls there were, the run's state knows at every moment. What was decided and how they ended, each producer
knows of its own; it adds that to the state when it ends, once, so no call pays for it. A producer that was killed adds
nothing: its calls are in the total alone.
"""

from __future__ import annotations

import time

from subluminal.contracts.counts import Counts
from subluminal.core.engine.state import RUN, StateUnavailable
from subluminal.host.run.state import SharedState

TYPE_CHECKING = False
if TYPE_CHECKING:
    from subluminal.core.engine.state import State

_KEY = b"subluminal tally"
_NONE = (0, 0, 0, 0, 0, 0)
# Of a producer that ends, for a state that another holds; and between two looks of whoever waits for the others.
_LOCK_WAIT_S = 0.25
_LOOK_EVERY_S = 0.02


class Tally:
    """Of the run up to now. `total` is exact, `told` is what producers that have ended say of theirs."""

    __slots__ = ("told", "total")

    def __init__(self, total: int, told: Counts) -> None:
        self.total = total
        self.told = told


def add_counts(state: State, counts: Counts) -> None:
    """The producer ends. A state that cannot be had costs its keeper some figures, and nobody else anything."""
    if not counts.total or not isinstance(state, SharedState):
        return
    state.table.wait = min(state.table.wait, _LOCK_WAIT_S)
    try:
        state.begin()
        try:
            total, allowed, _, blocked, throttled, errors = state.get(RUN, _KEY) or _NONE
        except BaseException:
            state.abandon()
            raise
        # The third value is 0 in every entry of this pool that has no time in it: such ones outlive a reboot.
        told = (total + counts.total, allowed + counts.allowed, 0)
        ends = (blocked + counts.blocked, throttled + counts.throttled, errors + counts.errors)
        state.commit([(RUN, _KEY, (*told, *ends))])
    except StateUnavailable:
        pass


def read_tally(state: State) -> Tally | None:
    """None: there is no state that the producers of the run share."""
    if not isinstance(state, SharedState):
        return None
    try:
        state.begin()
        try:
            total, allowed, _, blocked, throttled, errors = state.get(RUN, _KEY) or _NONE
            calls = state.table.calls + state.table.plain_calls
        finally:
            state.abandon()
    except StateUnavailable:
        return None
    return Tally(calls, Counts(total, allowed, blocked, throttled, errors))


def counts_since(state: State, before: Tally | None, patience_s: float) -> Counts | None:
    """The calls of the run since `before`. Producers that are just ending are waited for, a little while.

    Of calls whose producer was killed or goes on, only that they were made is known: `total` is then more than what was
    decided.
    """
    give_up = time.monotonic() + patience_s
    while True:
        now = read_tally(state)
        if now is None or before is None:
            return None
        told, known = now.told, before.told
        total = now.total - before.total
        if told.total - known.total >= total or time.monotonic() >= give_up:
            return Counts(
                total,
                told.allowed - known.allowed,
                told.blocked - known.blocked,
                told.throttled - known.throttled,
                told.errors - known.errors,
            )
        time.sleep(_LOOK_EVERY_S)
