"""Rules that stand in another order than before, and what that decides."""

from __future__ import annotations

from bisect import bisect_left

from subluminal.policy.diff.change import LOOSENS, TIGHTENS, Change, opposite, worst
from subluminal.policy.diff.presence import RESTRICTING, Effects, Side, overrides_dedupe
from subluminal.policy.lint.cover import Rule, may_overlap, rules_overlap
from subluminal.policy.lint.parts import classes_asked


def moved_rules(old: Side, new: Side) -> list[Change]:
    """Rules whose order among the rules of both changed: the fewest moves that explain it."""
    common = [rule["rule_id"] for rule in old.rules if rule["rule_id"] in new.place]
    order = [rule["rule_id"] for rule in new.rules if rule["rule_id"] in old.place]
    position = {rule_id: index for index, rule_id in enumerate(common)}
    place = {rule_id: index for index, rule_id in enumerate(order)}
    stayed = _longest_increasing([position[rule_id] for rule_id in order])
    changes = []
    for index, rule_id in enumerate(order):
        if index in stayed:
            continue
        rule = new.rules[new.place[rule_id]]
        effects: Effects = {}
        for other in common:
            below = index > place[other]
            if (position[rule_id] > position[other]) != below:
                passed = new.rules[new.place[other]]
                effects = {**_crossing(*((passed, rule) if below else (rule, passed)), new), **effects}
        direction = worst(effects)
        summary = f"{rule['kind']} rule moved: {effects.get(direction, 'no decision changes by it')}"
        places = old.place[rule_id], new.place[rule_id]
        changes.append(Change(direction, "moved", rule_id, "", *places, summary))
    return changes


def _crossing(upper: Rule, lower: Rule, side: Side) -> Effects:
    """The one now stands above the other, and did not before."""
    if not (upper["enabled"] and lower["enabled"]):
        return {}
    kinds = upper["kind"], lower["kind"]
    first = f"{upper['kind']} {upper['rule_id']} now decides before {lower['kind']} {lower['rule_id']}"
    if kinds == ("allow", "deny"):
        return {LOOSENS: first} if rules_overlap(upper, lower) else {}
    if kinds == ("deny", "allow"):
        return {TIGHTENS: first} if rules_overlap(lower, upper) else {}
    if kinds == ("allow", "allow") and overrides_dedupe(upper) != overrides_dedupe(lower):
        way, overriding = (LOOSENS, upper) if overrides_dedupe(upper) else (TIGHTENS, lower)
        matters = side.dedupes(overriding) and may_overlap(upper["match"], lower["match"])
        return {way: first} if matters else {}
    effects: Effects = {}
    if upper["kind"] == "tag":
        why = f"rule {lower['rule_id']} now sees the classes of {upper['rule_id']}"
        effects |= dict.fromkeys(_sees(upper, lower, side), why)
    if lower["kind"] == "tag":
        why = f"rule {upper['rule_id']} no longer sees the classes of {lower['rule_id']}"
        effects |= dict.fromkeys(map(opposite, _sees(lower, upper, side)), why)
    return effects


def _sees(tag: Rule, user: Rule, side: Side) -> set[str]:
    """Which ways it goes that a rule sees the classes of a tag."""
    classes = set(tag["effect"]["tag"]["add_risk_class"])
    own = (
        {TIGHTENS} if user["kind"] in RESTRICTING else {LOOSENS} if user["kind"] == "allow" else set(side.effects(user))
    )
    ways: set[str] = set()
    if classes & classes_asked(user["match"]):
        ways |= own
    if classes & classes_asked(user.get("unless", {})):
        ways |= set(map(opposite, own))
    return ways


def _longest_increasing(values: list[int]) -> set[int]:
    """Indexes of one longest increasing subsequence."""
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
