"""What an evaluation did, rule by rule: for `sub policy explain` and for tests. Costs nothing when not asked for."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from subluminal.contracts.toolcall import ToolCall
    from subluminal.core.engine.bundle import Engine
    from subluminal.core.engine.plan import Step
    from subluminal.core.engine.rules import Judgement, Refusal, Rule


class Tracer:
    """Writes down, rule by rule, what an evaluation did. States after are read once the call has been recorded."""

    __slots__ = ("_open", "_trace")

    def __init__(self, trace: list[dict[str, Any]]) -> None:
        self._trace = trace
        self._open: list[tuple[Engine, Step, dict[str, Any]]] = []

    def note(self, engine: Engine, step: Step, why: str, before: Any, refusal: Refusal | None) -> None:
        record: dict[str, Any] = {
            "policy_id": engine.policy.policy_id,
            "rule_id": step.rule.rule_id,
            "kind": step.rule.kind,
            "matched": why == "matches",
            "why": why,
            "readings": [],
            "state_before": before,
            "state_after": before,
            "decision": None if refusal is None else refusal.action,
            "reason_code": None if refusal is None else refusal.reason_code,
        }
        self._open.append((engine, step, record))

    def overridden(self, rule: Rule, by: str) -> None:
        """A refusal that was noted does not stand."""
        for _, step, record in self._open:
            if step.rule is rule:
                record.update(why=f"overridden by allow {by}", decision=None, reason_code=None)

    def finish(self, engines: list[Engine], judgement: Judgement) -> None:
        for engine in engines:
            mine = {step.rule.number: (step, record) for owner, step, record in self._open if owner is engine}
            for rule in engine.rules:
                if rule.number in mine:
                    step, record = mine[rule.number]
                    record["state_after"] = self.peek(step, judgement)
                    if record["matched"] and rule.args is not None:
                        record["readings"] = rule.args.readings(judgement.args())
                else:
                    record = self._not_planned(engine, rule, judgement.call)
                self._trace.append(record)

    def _not_planned(self, engine: Engine, rule: Rule, call: ToolCall) -> dict[str, Any]:
        if rule.server is not None and not rule.server(call.server_name):
            why = "server_name does not match"
        elif rule.tool is not None and not rule.tool(call.tool_name):
            why = "tool_name does not match"
        else:
            why = "risk_class does not match"
        return unmatched(engine.policy.policy_id, rule.rule_id, rule.kind, why)

    def peek(self, step: Step, judgement: Judgement) -> Any:
        if step.accumulator is None:
            return None
        try:
            return step.accumulator.peek(judgement, step.keys)
        except Exception:  # a trace shows what can be shown
            return None


def unmatched(policy_id: str, rule_id: str, kind: str, why: str) -> dict[str, Any]:
    """The record of a rule that had no say."""
    nothing = dict.fromkeys(("state_before", "state_after", "decision", "reason_code"))
    known = {"policy_id": policy_id, "rule_id": rule_id, "kind": kind, "matched": False, "why": why}
    return {**known, "readings": [], **nothing}
