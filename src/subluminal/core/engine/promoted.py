"""Rules that a person has put in or raised for one run (`sub promote --session`), and what their decisions say.

`promoted` of such a rule names the promote and tells it in a sentence. `was`, of a limit that was raised: the rule as
the policy has it. It is asked first, on the side, so that a call which only the raised limit lets through says so.
"""

from __future__ import annotations

from msgspec.structs import replace

from subluminal.contracts.decision import Decision
from subluminal.contracts.vocabulary import ALLOW, PROMOTED
from subluminal.core.engine.accumulators import RateRule
from subluminal.core.engine.hints import clip
from subluminal.core.engine.rules import AccessRule, Outcome, Rule

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from subluminal.contracts.decision import PolicyRef
    from subluminal.contracts.identity import Identity
    from subluminal.core.engine.accumulators import Accumulator
    from subluminal.core.engine.places import Places
    from subluminal.core.engine.rules import Judgement, Refusal


class PromotedAllow(AccessRule):
    __slots__ = ()

    def apply(self, judgement: Judgement, outcome: Outcome, keys: Any) -> Refusal | None:
        outcome.promoted = self
        return super().apply(judgement, outcome, keys)


def promoted_kind(kind: type[Rule], spec: dict[str, Any]) -> type[Rule]:
    """What a promoted rule is instead of its kind."""
    if spec["kind"] == "allow":
        return PromotedAllow
    return kind if "was" not in spec["promoted"] else _raised(kind)


def _raised(kind: type[Any]) -> type[Rule]:
    class Raised(kind):  # type: ignore[misc]  # one of the accumulators
        __slots__ = ("_before",)

        def __init__(self, number: int, spec: dict[str, Any]) -> None:
            super().__init__(number, spec)
            self._before: Accumulator = kind(number, spec["promoted"]["was"])

        def prepare(self, places: Places | None) -> None:
            super().prepare(places)
            self._before.prepare(places)

        def belongs_to(self, identity: Identity) -> None:
            super().belongs_to(identity)
            self._before.belongs_to(identity)

        def apply(self, judgement: Judgement, outcome: Outcome, keys: Any) -> Refusal | None:
            before = self._refused_before(judgement, outcome, keys)
            refusal: Refusal | None = super().apply(judgement, outcome, keys)
            if before and refusal is None:
                outcome.promoted = self
            return refusal

        def _refused_before(self, judgement: Judgement, outcome: Outcome, keys: Any) -> bool:
            aside = Outcome(outcome.engine, outcome.tags, outcome.tagged)
            return self._before.apply(replace(judgement, always=[], trips=[]), aside, keys) is not None

    if issubclass(kind, RateRule):

        class RaisedRate(Raised):
            """What is kept stays the count of the smaller bucket, below zero where the larger one was drawn upon: a
            process that has not heard of the promote yet lets nothing through by it."""

            __slots__ = ()

            def bucket(self, values: tuple[int, ...] | None, now: int) -> tuple[int, int, int]:
                if values is not None:
                    values = (values[0] + self._more, *values[1:])
                return super().bucket(values, now)  # type: ignore[no-any-return]

            def apply(self, judgement: Judgement, outcome: Outcome, keys: Any) -> Refusal | None:
                place = len(outcome.if_allowed)
                refusal = super().apply(judgement, outcome, keys)
                if len(outcome.if_allowed) > place:
                    pool, key, (tokens, *rest) = outcome.if_allowed[place]
                    outcome.if_allowed[place] = (pool, key, (tokens - self._more, *rest))
                return refusal

            @property
            def _more(self) -> int:
                return self.larger_than(self._before)  # type: ignore[no-any-return]

        return RaisedRate
    return Raised


def allowed_by(rule: Rule, policy: PolicyRef) -> Decision:
    promote = rule.spec["promoted"]
    return Decision(ALLOW, promote["promote_id"], "info", PROMOTED, clip(promote["summary"], 480), policy=policy)
