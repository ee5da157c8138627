"""The rules of two snapshots compared: added, removed, changed, moved."""

from __future__ import annotations

from subluminal.policy.diff.change import NEUTRAL, Change, opposite, worst
from subluminal.policy.diff.effects import changed_effect
from subluminal.policy.diff.moves import moved_rules
from subluminal.policy.diff.presence import Side
from subluminal.policy.diff.same import same
from subluminal.policy.lint.cover import Rule, rule_covers


def changed_rules(old: Side, new: Side) -> list[Change]:
    changes = [_removed(rule, old) for rule in old.rules if rule["rule_id"] not in new.place]
    changes += [_added(rule, new) for rule in new.rules if rule["rule_id"] not in old.place]
    for rule in new.rules:
        if rule["rule_id"] in old.place:
            changes += _changed(old.rules[old.place[rule["rule_id"]]], rule, old, new)
    return changes + moved_rules(old, new)


_NO_EFFECT = {"allow": "it overrides no deny", "tag": "no rule below it asks for its classes"}


def _presence(rule: Rule, side: Side, *, there: bool) -> tuple[str, str]:
    """Which way it goes that a rule is there, or is no longer, and why."""
    effects = {way if there else opposite(way): why for way, why in side.effects(rule).items()}
    if not effects:
        return NEUTRAL, _NO_EFFECT[rule["kind"]]
    direction = worst(effects)
    return direction, effects[direction]


def _added(rule: Rule, side: Side) -> Change:
    direction, why = _presence(rule, side, there=True) if rule["enabled"] else (NEUTRAL, "it is disabled")
    return Change(direction, "added", rule["rule_id"], "", None, rule, f"{rule['kind']} rule added: {why}")


def _removed(rule: Rule, side: Side) -> Change:
    direction, why = _presence(rule, side, there=False) if rule["enabled"] else (NEUTRAL, "it is disabled")
    summary = f"{rule['kind']} rule removed: {why.replace('it refuses calls', 'it refused calls')}"
    return Change(direction, "removed", rule["rule_id"], "", rule, None, summary)


def _changed(was: Rule, now: Rule, old: Side, new: Side) -> list[Change]:
    rule_id = now["rule_id"]
    if was["kind"] != now["kind"]:
        ways = [_presence(was, old, there=False)[0] if was["enabled"] else NEUTRAL]
        ways.append(_presence(now, new, there=True)[0] if now["enabled"] else NEUTRAL)
        summary = f"{was['kind']} rule becomes {now['kind']}"
        return [Change(worst(ways), "changed", rule_id, "kind", was["kind"], now["kind"], summary)]
    changes = []
    if was["enabled"] != now["enabled"]:
        direction, why = _presence(now, new, there=True) if now["enabled"] else _presence(was, old, there=False)
        summary = f"rule {'enabled' if now['enabled'] else 'disabled'}: {why}"
        changes.append(Change(direction, "changed", rule_id, "enabled", was["enabled"], now["enabled"], summary))
    changes += _changed_reach(was, now, old, new)
    changes += changed_effect(was, now, old, new)
    for field in ("severity", "description"):
        if was.get(field) != now.get(field):
            summary = f"{field} changes"
            changes.append(Change(NEUTRAL, "changed", rule_id, field, was.get(field), now.get(field), summary))
    return changes if now["enabled"] or was["enabled"] else [_asleep(change) for change in changes]


def _asleep(change: Change) -> Change:
    return change._replace(direction=NEUTRAL, summary=f"{change.summary} (the rule is disabled)")


def _changed_reach(was: Rule, now: Rule, old: Side, new: Side) -> list[Change]:
    """`match` and `unless`, one after the other: a rule reaches no less if neither step takes calls from it."""
    changes = []
    between = {**was, "match": now["match"]}
    if not same(was["match"], now["match"]):
        direction, calls = _reach(was, between, _Sides(was, now, old, new))
        summary = f"{now['kind']} rule matches {calls}"
        changes.append(Change(direction, "changed", now["rule_id"], "match", was["match"], now["match"], summary))
    had, has = was.get("unless"), now.get("unless")
    if not same(had, has):
        direction, calls = _reach(between, now, _Sides(was, now, old, new))
        step = "added" if had is None else "removed" if has is None else "changed"
        summary = f"unless {step}: the {now['kind']} rule applies to {calls}"
        changes.append(Change(direction, "changed", now["rule_id"], "unless", had, has, summary))
    return changes


class _Sides:
    """Which way it goes that a rule reaches more calls, or fewer."""

    def __init__(self, was: Rule, now: Rule, old: Side, new: Side) -> None:
        self.more = list(new.effects(now))
        self.fewer = [opposite(way) for way in old.effects(was)]


def _reach(narrow: Rule, wide: Rule, sides: _Sides) -> tuple[str, str]:
    """From the one to the other."""
    kind = narrow["kind"]
    more, fewer = rule_covers(wide, narrow, kind), rule_covers(narrow, wide, kind)
    if more and fewer:
        return NEUTRAL, "the same calls"
    if more:
        return worst(sides.more), "more calls"
    if fewer:
        return worst(sides.fewer), "fewer calls"
    return worst([*sides.more, *sides.fewer]), "other calls than before"
