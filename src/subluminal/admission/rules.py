"""One rule, one pre-guard, one axiom: read from plain data and checked before anything is judged by them.

    rule       {"name", "category", "match": {"tool", "mode", "caller"}, "guards": [guard], "effects": [effect]}
    guard      {"when": expression, "reason": word}
    effect     {"target": "reputation" | "tokens" | "stakes", "key": expression, "value": expression}
    policy     {"policy_id", "when": expression, "reason": word}          before any rule; the first that fails ends it
    axiom      {"axiom_id", "when": expression}                           must hold for whatever a rule admits

A rule matches by its names alone: `tool` is a name, a prefix such as `fs_*`, or `*`; `mode` and `caller` a name or `*`.
The rule that matches decides: all its guards hold and its effects are sound, or the call is rejected. A `source` member
says where a rule was written; it is not part of its meaning and not of the version hash.
"""

from __future__ import annotations

from subluminal.admission.denial import AxiomViolation, DenialReason, EffectInvariantViolated, RuleRejected
from subluminal.admission.expression import MAX_NODES, ExpressionError, check
from subluminal.admission.request import MODES, AdmissionRequest, EffectMutation

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from subluminal.admission.expression import Evaluation

CATEGORIES = ("admission", "state_transition", "consequence", "promotion")
TARGETS = ("reputation", "tokens", "stakes")
ANY = "*"


class RuleError(Exception):
    """The document is not a set of rules; the text says where and why."""


class Match:
    """Which calls a rule is about. `specificity` orders rules of one category: the most specific is asked first."""

    __slots__ = ("caller", "mode", "specificity", "tool")

    def __init__(self, where: str, given: dict[str, Any]) -> None:
        _members(where, given, optional=("tool", "mode", "caller"))
        self.tool = _name(where, given.get("tool", ANY))
        self.mode = _name(where, given.get("mode", ANY))
        self.caller = _name(where, given.get("caller", ANY))
        if ANY in self.tool[:-1]:
            raise RuleError(f"{where}: in a tool's name * may only stand at the end")
        if self.mode not in (ANY, *MODES):
            raise RuleError(f"{where}: mode must be * or one of {', '.join(MODES)}")
        exact = not self.tool.endswith(ANY)
        self.specificity = (exact, len(self.tool) if not exact else 0, self.mode != ANY, self.caller != ANY)

    def fits(self, request: AdmissionRequest) -> bool:
        tool = self.tool
        if tool[-1] == ANY:
            if not request.tool.startswith(tool[:-1]):
                return False
        elif request.tool != tool:
            return False
        return self.mode in (ANY, request.mode) and self.caller in (ANY, request.caller)

    @property
    def names(self) -> tuple[str, str, str]:
        return self.tool, self.mode, self.caller


class Rule:
    __slots__ = ("body", "category", "effects", "guards", "match", "name")

    def __init__(self, given: dict[str, Any]) -> None:
        where = f"rule {given.get('name')!r}"
        _members(where, given, ("name", "category"), ("match", "guards", "effects", "source"))
        self.name = _name(where, given["name"])
        self.category = given["category"]
        if self.category not in CATEGORIES:
            raise RuleError(f"{where}: category must be one of {', '.join(CATEGORIES)}")
        self.match = Match(where, _table(where, given.get("match", {})))
        self.guards = [_guard(where, each) for each in _list(where, given.get("guards", []))]
        self.effects = [_effect(where, each) for each in _list(where, given.get("effects", []))]
        expressions = [when for when, _ in self.guards]
        for _, key, value in self.effects:
            expressions += [key, value]
        if sum(_nodes(where, each) for each in expressions) > MAX_NODES:
            raise RuleError(f"{where}: more than {MAX_NODES} nodes")
        self.body = {key: value for key, value in given.items() if key != "source"}

    def judge(self, evaluation: Evaluation) -> DenialReason | tuple[EffectMutation, ...]:
        for when, reason in self.guards:
            if not evaluation.holds(when):
                return RuleRejected(self.name, reason)
        mutations = []
        for target, key, value in self.effects:
            amount = evaluation.integer(value)
            if amount < 0:
                return EffectInvariantViolated(self.name, "non_negative")
            mutations.append(EffectMutation(self.name, target, evaluation.string(key), amount))
        if len({(each.target, each.key) for each in mutations}) != len(mutations):
            return EffectInvariantViolated(self.name, "one_effect_per_target")
        return tuple(mutations)


class PreGuard:
    """A policy's condition on every call, or (as an axiom) on every admitted one."""

    __slots__ = ("body", "name", "reason", "when")

    def __init__(self, given: dict[str, Any], id_key: str) -> None:
        where = f"{id_key} {given.get(id_key)!r}"
        wanted = (id_key, "when", "reason") if id_key == "policy_id" else (id_key, "when")
        _members(where, given, wanted, ("source",))
        self.name = _name(where, given[id_key])
        self.when = given["when"]
        self.reason = _name(where, given.get("reason", id_key))
        _nodes(where, self.when)
        self.body = {key: value for key, value in given.items() if key != "source"}

    def violation(self) -> DenialReason:
        return AxiomViolation(self.name)


def _members(where: str, given: Any, required: tuple[str, ...] = (), optional: tuple[str, ...] = ()) -> None:
    missing = [name for name in required if name not in given]
    unknown = [str(name) for name in given if name not in required and name not in optional]
    if missing or unknown:
        what = f"lacks {', '.join(missing)}" if missing else f"has the unknown member {', '.join(unknown)}"
        raise RuleError(f"{where} {what}")


def _name(where: str, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise RuleError(f"{where}: names and reasons are strings that are not empty")
    return value


def _table(where: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise RuleError(f"{where}: an object is needed, not a {type(value).__name__}")
    return value


def _list(where: str, value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise RuleError(f"{where}: a list is needed, not a {type(value).__name__}")
    return value


def _guard(where: str, given: Any) -> tuple[Any, str]:
    _members(f"{where}: a guard", _table(where, given), ("when", "reason"))
    return given["when"], _name(where, given["reason"])


def _effect(where: str, given: Any) -> tuple[str, Any, Any]:
    _members(f"{where}: an effect", _table(where, given), ("target", "key", "value"))
    if given["target"] not in TARGETS:
        raise RuleError(f"{where}: an effect's target must be one of {', '.join(TARGETS)}")
    return given["target"], given["key"], given["value"]


def _nodes(where: str, expression: Any) -> int:
    try:
        return check(expression)
    except ExpressionError as fault:
        raise RuleError(f"{where}: {fault}") from None
