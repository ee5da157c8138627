"""The rules of two snapshots compared: added, removed, changed, moved."""

from __future__ import annotations

from typing import Any

import msgspec

from subluminal.policy.diff.change import LOOSENS, NEUTRAL, TIGHTENS, UNCLEAR, Change, opposite, worst
from subluminal.policy.lint.cover import match_covers, may_overlap

Rule = dict[str, Any]

# Which way a larger number goes. Windows count events: a longer one sees more of them.
_LARGER = {
    **dict.fromkeys(("limit_calls", "limit_cost_units", "capacity", "refill_tokens", "latency_count"), LOOSENS),
    **dict.fromkeys(("error_threshold", "repeat_threshold", "latency_threshold_ms"), LOOSENS),
    **dict.fromkeys(("cost_units_per_call", "refill_period_ms", "cost_tokens_per_call"), TIGHTENS),
    **dict.fromkeys(("window_ms", "repeat_window_ms"), TIGHTENS),
}
# Limits that do nothing when they are left out: to add one tightens, to remove one loosens.
_OPTIONAL_LIMITS = frozenset(
    ("limit_calls", "limit_cost_units", "error_threshold", "repeat_threshold", "latency_threshold_ms")
)
# One counter for the whole run is stricter than one for each tool.
_SCOPE_WIDTH = {"machine": 0, "principal": 1, "agent": 2, "run": 3, "tool": 4, "server_tool": 5}
_RESTRICTING = frozenset(("deny", "budget", "rate_limit", "breaker", "dedupe"))


def changed_rules(old: list[Rule], new: list[Rule]) -> list[Change]:
    before = {rule["rule_id"]: rule for rule in old}
    after = {rule["rule_id"]: rule for rule in new}
    changes = [_removed(rule, old) for rule in old if rule["rule_id"] not in after]
    changes += [_added(rule, new) for rule in new if rule["rule_id"] not in before]
    for rule_id, rule in after.items():
        if rule_id in before:
            changes += _changed(before[rule_id], rule, old, new)
    return changes + _moved(old, new)


def _presence(rule: Rule, rules: list[Rule]) -> tuple[str, str]:
    """What a rule's being there does, compared with its not being there."""
    if not rule["enabled"]:
        return NEUTRAL, "it is disabled"
    if rule["kind"] in _RESTRICTING:
        return TIGHTENS, "it refuses calls"
    below = rules[_index(rule, rules) + 1 :]
    if rule["kind"] == "allow":
        denies = [r for r in below if r["enabled"] and r["kind"] == "deny"]
        hidden = [r["rule_id"] for r in denies if may_overlap(rule["match"], r["match"])]
        return (LOOSENS, f"it overrides deny {hidden[0]}") if hidden else (NEUTRAL, "it overrides no deny")
    classes = set(rule["effect"]["tag"]["add_risk_class"])
    users = [r for r in below if r["enabled"] and classes & set(r["match"].get("risk_class", []))]
    if not users:
        return NEUTRAL, "no rule below it asks for its classes"
    direction = worst(LOOSENS if r["kind"] == "allow" else TIGHTENS for r in users)
    return direction, f"rule {users[0]['rule_id']} asks for its classes"


def _added(rule: Rule, rules: list[Rule]) -> Change:
    direction, why = _presence(rule, rules)
    return Change(direction, "added", rule["rule_id"], "", None, rule, f"{rule['kind']} rule added: {why}")


def _removed(rule: Rule, rules: list[Rule]) -> Change:
    presence, why = _presence(rule, rules)
    summary = f"{rule['kind']} rule removed: {why.replace('it refuses calls', 'it refused calls')}"
    return Change(opposite(presence), "removed", rule["rule_id"], "", rule, None, summary)


def _changed(was: Rule, now: Rule, old: list[Rule], new: list[Rule]) -> list[Change]:
    rule_id = now["rule_id"]
    if was["kind"] != now["kind"]:
        gone, come = opposite(_presence(was, old)[0]), _presence(now, new)[0]
        summary = f"{was['kind']} rule becomes {now['kind']}"
        return [Change(worst([gone, come]), "changed", rule_id, "kind", was["kind"], now["kind"], summary)]
    changes = []
    if was["enabled"] != now["enabled"]:
        presence, why = _presence({**now, "enabled": True}, new)
        direction, word = (presence, "enabled") if now["enabled"] else (opposite(presence), "disabled")
        summary = f"rule {word}: {why}"
        changes.append(Change(direction, "changed", rule_id, "enabled", was["enabled"], now["enabled"], summary))
    changes += _changed_match(was, now, new)
    changes += _changed_effect(was, now, new)
    for field in ("severity", "description"):
        if was.get(field) != now.get(field):
            summary = f"{field} changes"
            changes.append(Change(NEUTRAL, "changed", rule_id, field, was.get(field), now.get(field), summary))
    return changes if now["enabled"] or was["enabled"] else [_asleep(change) for change in changes]


def _asleep(change: Change) -> Change:
    return change._replace(direction=NEUTRAL, summary=f"{change.summary} (the rule is disabled)")


def _changed_match(was: Rule, now: Rule, rules: list[Rule]) -> list[Change]:
    old, new = was["match"], now["match"]
    if _same(old, new):
        return []
    wider, narrower = match_covers(new, old), match_covers(old, new)
    if wider and narrower:
        extent, effect = NEUTRAL, "matches the same calls"
    elif wider:
        extent, effect = TIGHTENS, "matches more calls"
    elif narrower:
        extent, effect = LOOSENS, "matches fewer calls"
    else:
        extent, effect = LOOSENS, "matches other calls than before"
    direction = _for_kind(extent, now, rules)
    return [Change(direction, "changed", now["rule_id"], "match", old, new, f"{now['kind']} rule {effect}")]


def _for_kind(extent: str, rule: Rule, rules: list[Rule]) -> str:
    """To match more calls tightens a rule that refuses, and loosens one that allows."""
    if rule["kind"] in _RESTRICTING or extent == NEUTRAL:
        return extent
    presence = _presence({**rule, "enabled": True}, rules)[0]
    if presence in (NEUTRAL, UNCLEAR):
        return presence
    return extent if presence == TIGHTENS else opposite(extent)


def _changed_effect(was: Rule, now: Rule, rules: list[Rule]) -> list[Change]:
    kind = now["kind"]
    before, after = was["effect"].get(kind, was["effect"]), now["effect"].get(kind, now["effect"])
    prefix = f"effect.{kind}." if kind in now["effect"] else "effect."
    changes = []
    for field in sorted(before.keys() | after.keys()):
        old, new = before.get(field), after.get(field)
        if not _same(old, new):
            direction, summary = _effect_field(field, old, new, now, rules)
            changes.append(Change(direction, "changed", now["rule_id"], prefix + field, old, new, summary))
    return changes


def _effect_field(field: str, old: Any, new: Any, rule: Rule, rules: list[Rule]) -> tuple[str, str]:
    step = f"{field} {_word(old)} becomes {_word(new)}"
    if field in _OPTIONAL_LIMITS and (old is None or new is None):
        return (TIGHTENS, f"{field} {new} added") if old is None else (LOOSENS, f"{field} {old} removed")
    if field in _LARGER and old is not None and new is not None:
        return (_LARGER[field] if new > old else opposite(_LARGER[field])), step
    if field == "scope":
        return (LOOSENS if _SCOPE_WIDTH[new] > _SCOPE_WIDTH[old] else TIGHTENS), step
    if "TERMINATE_RUN" in (old, new) and field.startswith("on_"):
        return (LOOSENS if old == "TERMINATE_RUN" else TIGHTENS), step
    if field == "add_risk_class":
        presence = _presence(rule, rules)[0]
        return (presence if set(old) <= set(new) else worst([opposite(presence), UNCLEAR])), step
    return NEUTRAL, f"{field} changes" if field in ("message", "hint_text", "suggested_args", "retry_advice") else step


def _word(value: Any) -> str:
    return "(none)" if value is None else ", ".join(value) if isinstance(value, list) else str(value)


def _moved(old: list[Rule], new: list[Rule]) -> list[Change]:
    """Rules whose order among the rules of both changed: the fewest moves that explain it."""
    common = [rule["rule_id"] for rule in old if any(r["rule_id"] == rule["rule_id"] for r in new)]
    order = [rule["rule_id"] for rule in new if rule["rule_id"] in set(common)]
    position = {rule_id: index for index, rule_id in enumerate(common)}
    stayed = _longest_increasing([position[rule_id] for rule_id in order])
    before, after = {r["rule_id"]: r for r in old}, {r["rule_id"]: r for r in new}
    changes = []
    for index, rule_id in enumerate(order):
        if index not in stayed:
            crossed = [
                (other, index > order.index(other))
                for other in common
                if (position[rule_id] > position[other]) != (index > order.index(other))
            ]
            effects = [_crossing(after[rule_id], after[other], below) for other, below in crossed]
            direction = worst(direction for direction, _ in effects)
            why = next((text for d, text in effects if d == direction and text), "no decision changes by it")
            places = _index(before[rule_id], old), _index(after[rule_id], new)
            summary = f"{after[rule_id]['kind']} rule moved: {why}"
            changes.append(Change(direction, "moved", rule_id, "", *places, summary))
    return changes


def _crossing(rule: Rule, other: Rule, below: bool) -> tuple[str, str]:
    """`rule` now stands below (or above) `other`, and did not before."""
    upper, lower = (other, rule) if below else (rule, other)
    if not (rule["enabled"] and other["enabled"]):
        return NEUTRAL, ""
    if {upper["kind"], lower["kind"]} == {"allow", "deny"} and may_overlap(upper["match"], lower["match"]):
        direction = LOOSENS if upper["kind"] == "allow" else TIGHTENS
        return direction, f"{upper['kind']} {upper['rule_id']} now decides before {lower['kind']} {lower['rule_id']}"
    for tag, user, tag_first in ((upper, lower, True), (lower, upper, False)):
        wanted = set(user["match"].get("risk_class", []))
        if tag["kind"] == "tag" and wanted.intersection(tag["effect"]["tag"]["add_risk_class"]):
            sees = TIGHTENS if user["kind"] != "allow" else LOOSENS
            verb = "now sees" if tag_first else "no longer sees"
            direction = sees if tag_first else opposite(sees)
            return direction, f"rule {user['rule_id']} {verb} the classes of {tag['rule_id']}"
    return NEUTRAL, ""


def _longest_increasing(values: list[int]) -> set[int]:
    """Indexes of one longest increasing subsequence."""
    from bisect import bisect_left

    tails: list[int] = []
    at: list[int] = []
    previous: list[int] = [-1] * len(values)
    for index, value in enumerate(values):
        place = bisect_left(tails, value)
        previous[index] = at[place - 1] if place else -1
        tails[place : place + 1] = [value]
        at[place : place + 1] = [index]
    kept = set()
    index = at[-1] if at else -1
    while index >= 0:
        kept.add(index)
        index = previous[index]
    return kept


def _same(old: Any, new: Any) -> bool:
    """Equal as JSON: to Python `true` equals `1`."""
    return msgspec.json.encode(old, order="sorted") == msgspec.json.encode(new, order="sorted")


def _index(rule: Rule, rules: list[Rule]) -> int:
    return next(index for index, r in enumerate(rules) if r["rule_id"] == rule["rule_id"])
