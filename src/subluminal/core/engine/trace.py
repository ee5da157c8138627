"""What an evaluation did, rule by rule: for `sub policy explain` and for tests. Costs nothing when not asked for.

Each rule's `predicates` tell what every one of them saw: `place` (`args.key_glob.path`, below `any_of[0]` or `unless`
where it stands there), `value` as JSON text (null: there is none), `matched` (null: cannot be judged), and `read_as`,
what the value was read as or why it cannot be judged (null: as it stands).
"""

from __future__ import annotations

from subluminal.contracts.jsontext import to_json
from subluminal.contracts.vocabulary import TOOL_NOT_LISTED, UNINSPECTED_ARGS
from subluminal.core.engine.conditions import Condition, hour_of
from subluminal.core.engine.faults import Unavailable
from subluminal.core.engine.hints import clip
from subluminal.core.engine.listing import SCHEMA_RULE
from subluminal.core.engine.matchers import args_match
from subluminal.core.engine.predicates import ABSENT, predicates

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from subluminal.contracts.toolcall import ToolCall
    from subluminal.core.engine.bundle import Engine
    from subluminal.core.engine.matchers import ArgsMatch
    from subluminal.core.engine.plan import Step
    from subluminal.core.engine.rules import Judgement, Outcome, Refusal, Rule

    Records = list[dict[str, Any]]

MATCHES = "matches"
NO_MATCH = "arguments or time do not match"
EXCEPTED = "excepted by unless"
FITS = "the arguments fit the input schema, or none is at hand"
RISK_CLASS_DIFFERS = "risk_class does not match"
MAX_VALUE_CHARS = 200
_NOT_KNOWN = {
    TOOL_NOT_LISTED: "the server has not listed the tool",
    UNINSPECTED_ARGS: "the arguments were not held, only the size of their message is known",
}


class Tracer:
    """Writes down, rule by rule, what an evaluation did. States after are read once the call has been recorded."""

    __slots__ = ("_open", "_trace")

    def __init__(self, trace: list[dict[str, Any]]) -> None:
        self._trace = trace
        self._open: list[tuple[Engine, Step, dict[str, Any]]] = []

    def note(
        self,
        engine: Engine,
        step: Step,
        why: str,
        before: Any,
        refusal: Refusal | None,
        judgement: Judgement,
        outcome: Outcome,
    ) -> None:
        rule = step.rule
        if why == NO_MATCH and rule.applies is not None and rule.applies.excepted(judgement, outcome):
            why = EXCEPTED
        elif why == NO_MATCH and rule.rule_id == SCHEMA_RULE:
            why = FITS
        record: dict[str, Any] = {
            "policy_id": engine.policy.policy_id,
            "rule_id": rule.rule_id,
            "kind": rule.kind,
            "matched": why == MATCHES,
            "why": why,
            "readings": [],
            "predicates": told(engine, rule, judgement, outcome),
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
                    args = _args_match(engine, rule) if record["matched"] else None
                    if args is not None:
                        record["readings"] = args.readings(judgement.args())
                else:
                    record = self._not_planned(engine, rule, judgement.call)
                self._trace.append(record)

    def _not_planned(self, engine: Engine, rule: Rule, call: ToolCall) -> dict[str, Any]:
        if rule.server is not None and not rule.server(call.server_name):
            why = "server_name does not match"
        elif rule.tool is not None and not rule.tool(call.tool_name):
            why = "tool_name does not match"
        else:
            why = RISK_CLASS_DIFFERS
        return unmatched(engine.policy.policy_id, rule.rule_id, rule.kind, why)

    def peek(self, step: Step, judgement: Judgement) -> Any:
        if step.accumulator is None:
            return None
        try:
            return step.accumulator.peek(judgement, step.keys)
        except Exception:  # a trace shows what can be shown
            return None


class Matched(Tracer):
    """Hears which rules match, and nothing of what they saw: that costs many times the judgement."""

    __slots__ = ("rule_ids",)

    def __init__(self) -> None:
        super().__init__([])
        self.rule_ids: set[str] = set()

    def note(
        self,
        engine: Engine,
        step: Step,
        why: str,
        before: Any,
        refusal: Refusal | None,
        judgement: Judgement,
        outcome: Outcome,
    ) -> None:
        if why == MATCHES:
            self.rule_ids.add(step.rule.rule_id)

    def finish(self, engines: list[Engine], judgement: Judgement) -> None:
        pass

    def peek(self, step: Step, judgement: Judgement) -> Any:
        return None


def unmatched(policy_id: str, rule_id: str, kind: str, why: str) -> dict[str, Any]:
    """The record of a rule that had no say."""
    nothing = dict.fromkeys(("state_before", "state_after", "decision", "reason_code"))
    known = {"policy_id": policy_id, "rule_id": rule_id, "kind": kind, "matched": False, "why": why}
    return {**known, "readings": [], "predicates": [], **nothing}


def _args_match(engine: Engine, rule: Rule) -> ArgsMatch | None:
    return args_match(rule.match.get("args"), generous=rule.generous, places=engine.places)


def told(engine: Engine, rule: Rule, judgement: Judgement, outcome: Outcome) -> Records:
    """What each predicate of a rule saw. Its names are left out: they have brought the rule here."""
    own = {name: wanted for name, wanted in rule.match.items() if name not in ("server_name", "tool_name")}
    teller = _Teller(engine, judgement, outcome)
    teller.match(own, rule.generous, "")
    if rule.unless is not None:
        teller.match(rule.unless, not rule.generous, "unless.")
    return teller.records


class _Teller:
    __slots__ = ("_engine", "_judgement", "_outcome", "records")

    def __init__(self, engine: Engine, judgement: Judgement, outcome: Outcome) -> None:
        self._engine = engine
        self._judgement = judgement
        self._outcome = outcome
        self.records: Records = []

    def match(self, spec: dict[str, Any], generous: bool, prefix: str) -> None:
        call, outcome = self._judgement.call, self._outcome
        seen = {
            "server_name": call.server_name,
            "tool_name": call.tool_name,
            "risk_class": sorted(outcome.tags | outcome.suspected if generous else outcome.tags),
            "time": hour_of(self._judgement),
        }
        for name, value in seen.items():
            if name in spec:
                place = "time.utc_hours" if name == "time" else name
                self._member(prefix + place, {name: spec[name]}, value, generous)
        args = spec.get("args") or {}
        if args.get("bytes"):
            size = call.bytes_in if call.args_raw is None else len(call.args_raw)
            self._member(f"{prefix}args.bytes", {"args": {"bytes": args["bytes"]}}, size, generous)
        self._args(args, generous, prefix)
        for number, alternative in enumerate(spec.get("any_of") or ()):
            self.match(alternative, generous, f"{prefix}any_of[{number}].")

    def _member(self, place: str, spec: dict[str, Any], value: Any, generous: bool) -> None:
        read_as = None
        try:
            matched: bool | None = Condition(spec, generous, None).holds(self._judgement, self._outcome)
        except Unavailable as unavailable:
            matched, read_as = None, _NOT_KNOWN.get(unavailable.reason_code)
        self._add(place, value, matched, read_as)

    def _args(self, spec: dict[str, Any], generous: bool, prefix: str) -> None:
        asked = predicates(spec, generous, self._engine.places, besides_plain=False)
        try:
            args = self._judgement.args()
        except Exception:  # what was not inspected is told by the rule's `why`
            for each in asked.each:
                self._add(f"{prefix}args.{each.name}.{each.key}", ABSENT, None, "the arguments were not inspected")
            return
        for place, value, matched, read_as in asked.told(args):
            self._add(prefix + place, value, matched, read_as)

    def _add(self, place: str, value: Any, matched: bool | None, read_as: str | None) -> None:
        text = None if value is ABSENT else clip(to_json(value), MAX_VALUE_CHARS)
        words = None if read_as is None else clip(read_as, MAX_VALUE_CHARS)
        self.records.append({"place": place, "value": text, "matched": matched, "read_as": words})
