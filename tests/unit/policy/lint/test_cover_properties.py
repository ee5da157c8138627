"""What is said of two matches or rules holds for every call: held against the definition of the language."""

from __future__ import annotations

import random
from typing import Any

import pytest

from harness.matching import (
    FIELDS,
    KEYS,
    a_call,
    a_match,
    applies,
    engine_applies,
    holds,
    knows_exceptions,
    on_one_key,
    predicate,
    predicates_of,
    related,
)
from subluminal.policy.lint.cover import match_covers, may_overlap, rule_covers, rules_overlap

SEED = 20260131
PAIRS = 3_000
CALLS = 10


def pairs(rng: random.Random) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    found = []
    for number in range(PAIRS):
        if number % 3 == 0:
            key = rng.choice(KEYS)
            found.append((on_one_key(rng, key), on_one_key(rng, key)))
            continue
        match = a_match(rng)
        found.append((match, related(rng, match)) if rng.random() < 0.8 else (match, a_match(rng)))
    return found


@pytest.mark.parametrize("generous", [False, True])
@pytest.mark.parametrize("sense", ["this", "either"])
def test_a_match_that_covers_another_holds_wherever_it_does(generous: bool, sense: str) -> None:
    rng = random.Random(SEED)
    proved = 0
    for wide, narrow in pairs(rng):
        if match_covers(wide, narrow, generous=generous if sense == "this" else None):
            for call in [a_call(rng, narrow) for _ in range(CALLS)]:
                if holds(narrow, call, generous=generous):
                    proved += 1
                    assert holds(wide, call, generous=generous), (wide, narrow, call)
    assert proved > 500


def test_matches_that_one_call_meets_overlap() -> None:
    rng = random.Random(SEED)
    proved = excluded = 0
    for strict, generous in pairs(rng):
        may = may_overlap(strict, generous)
        excluded += not may
        for call in [a_call(rng, rng.choice([strict, generous])) for _ in range(CALLS)]:
            if holds(strict, call, generous=False) and holds(generous, call, generous=True):
                proved += 1
                assert may, (strict, generous, call)
    assert proved > 500
    assert excluded > 100


@pytest.mark.parametrize("kind", ["allow", "deny", "budget", "tag"])
def test_a_rule_that_covers_another_applies_wherever_it_does(kind: str) -> None:
    rng = random.Random(SEED)
    proved = with_unless = 0
    for match, other in pairs(rng):
        wide, narrow = a_rule(rng, kind, match), a_rule(rng, kind, other)
        if "unless" in wide and rng.random() < 0.5:
            narrow["unless"] = related(rng, wide["unless"])
        if rule_covers(wide, narrow, kind):
            for call in [a_call(rng, other) for _ in range(CALLS)]:
                for as_kind in ("allow", "deny") if kind == "tag" else (kind,):
                    if applies({**narrow, "kind": as_kind}, call):
                        proved += 1
                        with_unless += "unless" in wide
                        assert applies({**wide, "kind": as_kind}, call), (wide, narrow, call)
    assert proved > 500
    assert with_unless > 50


def a_rule(rng: random.Random, kind: str, match: dict[str, Any]) -> dict[str, Any]:
    rule: dict[str, Any] = {"kind": kind, "match": match}
    if list(match) == ["args"] and rng.random() < 0.7:
        keys = [key for _, key, _ in predicates_of(match["args"]) if key]
        rule["unless"] = on_one_key(rng, rng.choice(keys or ["a"]))
    elif rng.random() < 0.4:
        rule["unless"] = related(rng, match) if rng.random() < 0.4 else a_match(rng)
    return rule


def test_an_allow_and_a_deny_that_one_call_meets_overlap() -> None:
    rng = random.Random(SEED)
    proved = 0
    for match, other in pairs(rng):
        allow, deny = a_rule(rng, "allow", match), a_rule(rng, "deny", other)
        if rng.random() < 0.3:
            deny["unless"] = match
        may = rules_overlap(allow, deny)
        for call in [a_call(rng, rng.choice([match, other])) for _ in range(CALLS)]:
            if applies(allow, call) and applies(deny, call):
                proved += 1
                assert may, (allow, deny, call)
    assert proved > 300


@pytest.mark.parametrize("key", KEYS)
def test_what_is_said_of_two_predicates_on_one_key_holds_for_every_value(key: str) -> None:
    rng = random.Random(SEED)
    followed = excluded = 0
    for field in FIELDS:
        for other in FIELDS:
            for _ in range(12):
                one, two = ({"args": {name: predicate(rng, name, key)}} for name in (field, other))
                calls = [a_call(rng, rng.choice([one, two])) for _ in range(25)]
                for generous in (False, True):
                    if match_covers(one, two, generous=generous):
                        followed += 1
                        for call in calls:
                            assert not holds(two, call, generous=generous) or holds(one, call, generous=generous), (
                                one, two, call, generous,
                            )  # fmt: skip
                if not may_overlap(one, two):
                    excluded += 1
                    for call in calls:
                        assert not (holds(one, call, generous=False) and holds(two, call, generous=True)), (
                            one, two, call,
                        )  # fmt: skip
    assert followed > 100
    assert excluded > (0 if "[]" in key else 100)


@pytest.mark.skipif(not knows_exceptions(), reason="the engine does not know the language of 0.2 yet")
@pytest.mark.parametrize("kind", ["allow", "deny"])
def test_what_is_said_of_two_rules_holds_in_the_engine(kind: str) -> None:
    rng = random.Random(SEED)
    covered = excluded = 0
    for match, other in pairs(rng)[:1_500]:
        wide, narrow = a_rule(rng, kind, match), a_rule(rng, kind, other)
        counterpart = {**narrow, "kind": "deny" if kind == "allow" else "allow"}
        allow, deny = (wide, counterpart) if kind == "allow" else (counterpart, wide)
        covers, overlaps = rule_covers(wide, narrow, kind), rules_overlap(allow, deny)
        if not covers and overlaps:
            continue
        for call in [a_call(rng, other) for _ in range(CALLS)]:
            if covers and engine_applies(narrow, call):
                covered += 1
                assert engine_applies(wide, call) is not False, (wide, narrow, call)
            if not overlaps:
                excluded += 1
                assert not (engine_applies(allow, call) and engine_applies(deny, call)), (allow, deny, call)
    assert covered > 100
    assert excluded > 100
