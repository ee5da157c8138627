"""What a policy makes of a server's list of tools: which classes of it matter, which changes are held back, what is
left out of the list that a client gets.

`defaults.changed_tools: quarantine` is a rule that stands before all others: a tool that has changed is denied. So it
is judged, explained and recorded like any other rule, and what was never listed cannot be judged by it.
`defaults.check_schemas` is one that stands behind all others (`schemas`), and that a fleet's policy is overdue one that
stands before them (`overdue`).
"""

from __future__ import annotations

from subluminal.contracts.vocabulary import (
    ALLOW,
    BLOCK,
    CHANGED,
    CHANGED_FOR_USER,
    SURFACE_CLASSES,
    TOOL_QUARANTINED,
    UNPINNED,
    UNPINNED_BY_USER,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from subluminal.contracts.toolcall import ToolCall
    from subluminal.core.engine.bundle import Engine

QUARANTINE_RULE = "defaults.changed_tools"
SCHEMA_RULE = "defaults.check_schemas"
OVERDUE_RULE = "fleet.max_offline"
# The user's own words mean the repository's approvals too: those do not count for the user.
_MEANT = {CHANGED: CHANGED_FOR_USER, UNPINNED: UNPINNED_BY_USER}
_QUARANTINE = {
    "rule_id": QUARANTINE_RULE,
    "kind": "deny",
    "severity": "critical",
    "match": {"risk_class": [CHANGED]},
    "effect": {"action": BLOCK, "reason_code": TOOL_QUARANTINED},
}


def rules_of(snapshot: dict[str, Any], of_repository: bool) -> list[dict[str, Any]]:
    """The rules as they are judged; the same list where nothing here concerns them."""
    rules: list[dict[str, Any]] = snapshot.get("rules") or []
    if (snapshot.get("defaults") or {}).get("changed_tools") == "quarantine":
        rules = [_QUARANTINE, *rules]
    which = (snapshot.get("defaults") or {}).get("check_schemas") or "none"
    if which != "none":
        effect = {"schema": {"which": which}}
        rules = [*rules, {"rule_id": SCHEMA_RULE, "kind": "schema", "severity": "warn", "effect": effect}]
    if snapshot.get("overdue"):
        effect = {"overdue": {"why": snapshot["overdue"]}}
        rules = [{"rule_id": OVERDUE_RULE, "kind": "overdue", "severity": "warn", "effect": effect}, *rules]
    if of_repository or not any(_MEANT.keys() & _asked(rule) for rule in rules):
        return rules
    return [{**rule, "match": _widened(rule.get("match") or {})} for rule in rules]


def _widened(match: dict[str, Any]) -> dict[str, Any]:
    wider = dict(match)
    if "risk_class" in match:
        wider["risk_class"] = [*match["risk_class"], *(_MEANT[word] for word in match["risk_class"] if word in _MEANT)]
    if "any_of" in match:
        wider["any_of"] = [_widened(part) for part in match["any_of"]]
    return wider


def _asked(rule: dict[str, Any]) -> set[str]:
    matches = [rule.get("match") or {}, rule.get("unless") or {}]
    parts = [part for match in matches for part in (match, *(match.get("any_of") or ()))]
    return {word for part in parts for word in part.get("risk_class") or ()}


class Listing:
    """Of all bundles that apply. `wanted`: the classes that some rule asks for; `warns`: a change is to be told.

    `checks`: arguments are held against input schemas.
    """

    __slots__ = ("_engines", "checks", "edits", "guards", "wanted", "warns")

    def __init__(self, engines: list[Engine]) -> None:
        asked = [word for engine in engines for rule in engine.rules for word in _asked(rule.spec)]
        self.wanted = SURFACE_CLASSES.intersection(asked)
        words = [engine.changed_tools for engine in engines]
        if "warn" in words:
            self.wanted |= {CHANGED, CHANGED_FOR_USER}
        self.warns = "warn" in words or "quarantine" in words
        enforcing = [engine for engine in engines if engine.mode != "observe"]
        self.guards = any(engine.changed_tools == "quarantine" for engine in enforcing)
        self._engines = [each for each in enforcing if each.changed_tools == "quarantine" or each.hides_denied]
        self.edits = bool(self._engines)
        self.checks = any(engine.checks_schemas for engine in engines)

    def hides(self, call: ToolCall) -> bool:
        return any(_hides(engine, call) for engine in self._engines)


def _hides(engine: Engine, call: ToolCall) -> bool:
    """Whether the bundle refuses this tool whatever its arguments, and wants it left out."""
    plan = engine.plan(call)
    if plan.access is not None:
        return _leaves_out(engine, plan.access)
    for step in plan.steps:
        if not step.decides_access:
            continue
        rule: Any = step.rule
        if step.unlisted:
            if rule.rule_id == QUARANTINE_RULE:
                return not engine.fails_open
        elif step.check_risk or step.conditional:
            if rule.action == ALLOW:
                return False  # some calls may pass
        else:
            return _leaves_out(engine, rule)
    return False


def _leaves_out(engine: Engine, rule: Any) -> bool:
    if rule.action == ALLOW:
        return False
    return engine.hides_denied or (rule.rule_id == QUARANTINE_RULE and rule.reason_code == TOOL_QUARANTINED)
