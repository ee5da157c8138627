"""Why a call is decided as it is: the decision, and rule by rule how it came about."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from subluminal.contracts.decision import PolicyRef
from subluminal.contracts.identity import Identity
from subluminal.contracts.vocabulary import ANNOTATED_CLASSES
from subluminal.policy.replay.simulate import Simulation, decision_dict
from subluminal.policy.selectors import left_out

if TYPE_CHECKING:
    from subluminal.core.engine.schemas import SchemaJudge


class Explanation(Struct, eq=False):
    """`left_out` is a sentence when the selectors leave this run out, else None."""

    snapshot: dict[str, Any]
    decision: dict[str, Any]
    trace: list[dict[str, Any]]
    tags: list[str]
    left_out: str | None = None

    def as_dict(self) -> dict[str, Any]:
        ref = PolicyRef(self.snapshot["policy_id"], self.snapshot["version"], self.snapshot["policy_hash"])
        policy = {**ref.as_dict(), "mode": self.snapshot["mode"], "applies": self.left_out is None}
        return {"decision": self.decision, "trace": self.trace, "policy": policy, "tags": self.tags}


def explain_call(
    snapshot: dict[str, Any],
    identity: Identity,
    server_name: str,
    tool_name: str,
    args: bytes,
    *,
    wall_ms: int,
    risk_classes: frozenset[str] = frozenset(),
    repeat: int = 1,
    of_repository: bool = False,
    stands: frozenset[str] = frozenset(),
    schemas: Mapping[str, SchemaJudge] | None = None,
) -> Explanation:
    """Judge the call `repeat` times in a row, each a millisecond after the other, and explain the last.

    `stands`: the classes of the tool by what is known of it, of which rules hear what they ask for. `schemas`: who says
    whether arguments fit.
    """
    simulation = Simulation(snapshot, identity, wall_ms, of_repository=of_repository)
    simulation.stack.judge_schemas_by(schemas or {})
    risk_classes |= stands & (simulation.stack.listing.wanted | ANNOTATED_CLASSES)
    for at_ms in range(repeat):
        verdict, trace = simulation.call(server_name, tool_name, args, at_ms, risk_classes)
        simulation.settle(verdict, ok=True, latency_ms=0, at_ms=at_ms)
    explanation = Explanation(snapshot, decision_dict(verdict.decision), trace, verdict.tags)
    explanation.left_out = left_out(snapshot["selectors"], identity)
    return explanation
