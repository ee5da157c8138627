"""A fleet's policy that nobody has confirmed for too long: a rule that stands before all others and cannot be judged.

So `decision_on_error` and the classes that fail open hold for every call, a deny of the policy stands as ever, and the
decision says why. Whether it is overdue is told by whoever loads it (`overdue` of the snapshot): no clock is here.
"""

from __future__ import annotations

from subluminal.contracts.vocabulary import POLICY_OVERDUE
from subluminal.core.engine.faults import Unavailable
from subluminal.core.engine.rules import Rule

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from subluminal.core.engine.rules import Judgement, Outcome, Refusal


class OverdueRule(Rule):
    __slots__ = ()

    def apply(self, judgement: Judgement, outcome: Outcome, keys: Any) -> Refusal | None:
        raise Unavailable(POLICY_OVERDUE, self.detail["why"])
