"""Judging a call whose run state cannot be had, for bundles that fail open (`decision_on_error: ALLOW`).

Whoever keeps the state from us, by holding its lock or by damaging it, must gain nothing but the limits that count in
it: the rules that need the state are passed over, and no others. A deny stands.
"""

from __future__ import annotations

from subluminal.core.engine.state import LocalState

TYPE_CHECKING = False
if TYPE_CHECKING:
    from subluminal.core.engine.bundle import Engine
    from subluminal.core.engine.plan import Plan
    from subluminal.core.engine.rules import Judgement, Outcome
    from subluminal.core.engine.state import StateUnavailable


class NoState(LocalState):
    """Whoever asks it for an entry cannot be evaluated."""

    __slots__ = ("_why",)

    def __init__(self, why: StateUnavailable) -> None:
        super().__init__()
        self._why = why

    def get(self, pool: int, key: bytes) -> tuple[int, ...] | None:
        raise self._why


def judged_without_state(
    pairs: list[tuple[Engine, Plan]], failed: list[Outcome], judgement: Judgement, why: StateUnavailable
) -> list[Outcome]:
    """`failed` is what each bundle makes of it that it could not be evaluated: those that refuse are asked no more."""
    judgement.state = NoState(why)
    outcomes = []
    for (engine, plan), outcome in zip(pairs, failed, strict=True):
        if outcome.refusal is None:
            judged = engine.evaluate(plan, judgement, None)
            judged.failed = outcome.failed
            outcome = judged
        outcomes.append(outcome)
    return outcomes
