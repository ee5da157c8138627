"""Where no change loosens, no call that was refused is let through: held against the definition of the language."""

from __future__ import annotations

import copy
import random
from typing import Any

import pytest

from harness.engine import rule
from harness.matching import CLASSES, Called, a_call, a_match, applies, engine_refuses, knows_exceptions, related
from subluminal.policy.diff.snapshots import diff_snapshots

SEED = 20260131
PAIRS = 2_500
CALLS = 25

Rule = dict[str, Any]


def a_rule(rng: random.Random, rule_id: str) -> Rule:
    kind = rng.choice(["allow", "deny", "deny", "tag"])
    effect = {"add_risk_class": rng.sample(CLASSES, 1)} if kind == "tag" else {}
    made = rule(rule_id, kind, a_match(rng), **effect)
    if rng.random() < 0.3:
        made["unless"] = related(rng, made["match"]) if rng.random() < 0.4 else a_match(rng)
    return made


def edited(rng: random.Random, rules: list[Rule]) -> list[Rule]:
    rules = copy.deepcopy(rules)
    for _ in range(rng.randrange(1, 3)):
        chosen = rng.randrange(len(rules))
        step = rng.choice(["match", "match", "unless", "unless", "drop", "add", "move", "enabled", "classes", "kind"])
        if step == "match":
            rules[chosen]["match"] = related(rng, rules[chosen]["match"])
        elif step == "unless":
            had = rules[chosen].pop("unless", None)
            if had is None or rng.random() < 0.7:
                rules[chosen]["unless"] = a_match(rng) if had is None else related(rng, had)
        elif step == "drop" and len(rules) > 1:
            rules.pop(chosen)
        elif step == "add":
            rules.insert(chosen, a_rule(rng, f"new{rng.random()}"))
        elif step == "move":
            rules.insert(rng.randrange(len(rules)), rules.pop(chosen))
        elif step == "enabled":
            rules[chosen]["enabled"] = not rules[chosen]["enabled"]
        elif step == "classes" and rules[chosen]["kind"] == "tag":
            rules[chosen]["effect"]["tag"]["add_risk_class"] = rng.sample(CLASSES, rng.randrange(1, 3))
        elif step == "kind":
            rules[chosen] = {**a_rule(rng, rules[chosen]["rule_id"]), "match": rules[chosen]["match"]}
    return rules


def snapshot(rules: list[Rule], policy_hash: str) -> dict[str, Any]:
    defaults = {"decision_on_error": "BLOCK", "fail_open_read_tools": False}
    return {"policy_hash": policy_hash, "mode": "guardrails", "defaults": defaults, "selectors": {}, "rules": rules}


def refused(rules: list[Rule], call: Called) -> bool:
    """One pass: tags add classes, the first allow or deny decides."""
    for each in rules:
        if not each["enabled"] or not applies(each, call):
            continue
        if each["kind"] == "tag":
            added = frozenset(each["effect"]["tag"]["add_risk_class"])
            sure = applies({**each, "kind": "allow"}, call)
            call = call._replace(tags=call.tags | added) if sure else call._replace(suspected=call.suspected | added)
        else:
            return bool(each["kind"] == "deny")
    return False


def test_a_diff_without_a_critical_change_lets_no_refused_call_through() -> None:
    rng = random.Random(SEED)
    quiet = loosened = 0
    for _ in range(PAIRS):
        old = [a_rule(rng, f"r{number}") for number in range(rng.randrange(1, 5))]
        new = edited(rng, old)
        critical = [
            change for change in diff_snapshots(snapshot(old, "a"), snapshot(new, "b")) if change.severity == "critical"
        ]
        quiet += not critical
        for call in [a_call(rng, rng.choice([*old, *new])["match"]) for _ in range(CALLS)]:
            if refused(old, call) and not refused(new, call):
                loosened += 1
                assert critical, (old, new, call)
    assert quiet > PAIRS / 5, "a diff that calls everything critical is of no use"
    assert loosened > 500


@pytest.mark.skipif(not knows_exceptions(), reason="the engine does not know the language of 0.2 yet")
def test_a_diff_without_a_critical_change_lets_no_refused_call_through_the_engine() -> None:
    rng = random.Random(SEED)
    judged = 0
    for _ in range(PAIRS // 4):
        old = [a_rule(rng, f"r{number}") for number in range(rng.randrange(1, 5))]
        new = edited(rng, old)
        if any(change.severity == "critical" for change in diff_snapshots(snapshot(old, "a"), snapshot(new, "b"))):
            continue
        for call in [a_call(rng, rng.choice([*old, *new])["match"]) for _ in range(CALLS)]:
            if engine_refuses(old, call):
                judged += 1
                assert engine_refuses(new, call) is not False, (old, new, call)
    assert judged > 300
