"""A plan with many rules that look at arguments finds those that may match: never another judgement than without it.

SUB_TEST_INDEX says how many policies are tried; each judges a score of calls.
"""

from __future__ import annotations

import os
import random
from typing import Any

import msgspec
import pytest

from harness.effort import cpu_ratio
from harness.engine import FlatPlaces, Run, rule
from subluminal.core.engine import names, plan
from subluminal.core.engine.faults import Unavailable
from subluminal.core.engine.index.rules import RuleIndex, guards_of

POLICIES = int(os.environ.get("SUB_TEST_INDEX", "60"))
CALLS = 20
SEED = int(os.environ.get("SUB_TEST_SEED", "20"))

KEYS = ("a", "b", "c", "o.x", "o.y.z", "l[].p", "l[]", "d\\.k", "o..x", "a.b")
TEXTS = ("", "1", "0", "true", "no", "ab", "AB", "abc", "x/y", "drop table 7", "1e3", "null", "None", "a,b", "é", "\n")
NUMBERS = (0, 1, -1, 7, 1000, 2**53, 2**53 + 1, 10**400, 1.5, -0.0, 1e-7)
JSON_TEXTS = ('["ab", 1]', '[["abc"]]', "[]", '{"x": "ab"}', "[1,", '{"p": 7}', f"[{'9' * 5000}]")
PATHS = ("/etc", "/etc/passwd", "/ETC/x", "src/a.py", "../..", "~/.ssh/id", "/work/é", "/", "$HOME/x", "a\0b")
URLS = (
    "https://evil.example/x",
    "http://a.evil.example",
    "127.0.0.1",
    "https://[::1]/",
    "https:\\\\x.y",
    "x",
    "http://%65.y",
)
LINES = ("rm -rf /", "git status && ls", "$(cat x) y", "RM x", "./git", "bash -c 'rm x'", "echo `", "sudo rm")


def snapshot(*rules: dict[str, Any], on_error: str = "BLOCK", mode: str = "guardrails") -> dict[str, Any]:
    """As the compiler leaves it; here also with rules that the linter would not let pass."""
    head = {"policy_id": "p", "version": "1", "mode": mode, "selectors": {}, "policy_hash": "0" * 64}
    return {**head, "defaults": {"decision_on_error": on_error}, "rules": list(rules)}


class Made:
    """What is random about one policy and its calls."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def one(self, values: Any) -> Any:
        return self.random.choice(values)

    def some(self, values: Any, most: int = 3) -> list[Any]:
        return [self.one(values) for _ in range(self.random.randint(1, most))]

    def scalar(self) -> Any:
        return self.one((self.one(TEXTS), self.one(NUMBERS), True, False, None, self.one(PATHS + URLS + LINES)))

    def value(self, depth: int = 0) -> Any:
        kind = self.random.random()
        if kind < 0.55 or depth > 3:
            return self.scalar()
        if kind < 0.65:
            return self.one(JSON_TEXTS)
        if kind < 0.85:
            return [self.value(depth + 1) for _ in range(self.random.randint(0, 3))]
        if kind < 0.87:
            return [self.scalar()] * 1_001
        return {name: self.value(depth + 1) for name in self.some(("x", "y", "z", "p"))}

    def args(self) -> dict[str, Any]:
        return {key: self.value() for key in self.some(("a", "b", "c", "o", "l", "d.k", "o..x", "a.b", "l[].p"), 5)}

    def wanted(self) -> Any:
        return self.one((self.one(TEXTS), self.one((0, 1, 7, 1000, 2**53, 1.5)), True, False))

    def predicate(self) -> dict[str, Any]:
        key = self.one(KEYS)
        low, high = sorted((self.random.randint(-5, 50), self.random.randint(-5, 1_500)))
        return self.one(
            (
                {"key_equals": {key: self.wanted()}},
                {"key_in": {key: [self.wanted(), self.one(TEXTS)]}},
                {"numeric_range": {key: self.one(({"min": low}, {"max": high}, {"min": low, "max": high}))}},
                {"has_keys": [key]},
                {"missing_keys": [key]},
                {"key_glob": {key: self.some(("a*", "*b", "*b*", "?b", "[ab]*", "x/*", "*/y", "ab", "*"))}},
                {"key_regex": {key: self.some(("^ab$", "(?i)ab", "b", "^a", "[0-9]+", "c$", "^(ab|1)$", "^a.*"))}},
                {"key_contains": {key: self.some(("b", "able", "1", "é", "/"))}},
                {"host_in": {key: self.some(("evil.example", "*.evil.example", "loopback", "10.0.0.0/8", "x*"))}},
                {"command": {key: {"programs": self.some(("rm", "git", "g*", "/bin/ls", "./git"))}}},
                {"path_within": {key: self.some(("/etc", "~/.ssh", ".", "/"))}},
            )
        )

    def spec(self) -> dict[str, Any]:
        spec: dict[str, Any] = {}
        for _ in range(self.one((1, 1, 1, 2, 3))):
            for name, wanted in self.predicate().items():
                if isinstance(wanted, list):
                    spec[name] = list(dict.fromkeys([*spec.get(name, ()), *wanted]))
                else:
                    spec[name] = {**spec.get(name, {}), **wanted}
        return spec

    def match(self) -> dict[str, Any]:
        match: dict[str, Any] = {"args": self.spec()}
        if self.random.random() < 0.15:
            match = {"any_of": [{"args": self.spec()} for _ in range(2)]}
        if self.random.random() < 0.1:
            match["any_of"] = [{"args": self.spec()}, {"args": {"bytes": {"min": 30}}}]
        if self.random.random() < 0.1:
            match["time"] = {"utc_hours": [22]}
        if self.random.random() < 0.1:
            match["risk_class"] = [self.one(("write_like", "mine"))]
        if self.random.random() < 0.1:
            match["args"] = {**match.get("args", {}), "bytes": {"max": 80}}
        return match

    def rule(self, number: int) -> dict[str, Any]:
        kind = self.one(("deny", "deny", "deny", "allow", "tag", "budget", "rate_limit", "dedupe", "breaker"))
        effect = {
            "tag": {"add_risk_class": ["mine"]},
            "budget": {"scope": self.one(("run", "tool")), "limit_calls": 3, "on_exceed": "BLOCK"},
            "rate_limit": {"scope": "run", "capacity": 4, "refill_tokens": 1, "refill_period_ms": 1_000},
            "dedupe": {"scope": "run", "window_ms": 1_000, "key": "args_hash", "on_duplicate": "BLOCK"},
            "breaker": {"scope": "run", "repeat_threshold": 4, "repeat_window_ms": 9_000, "on_trip": "BLOCK"},
        }.get(kind, {})
        made = rule(f"r{number}", kind, self.match(), **effect)
        if self.random.random() < 0.15:
            made["unless"] = {"args": self.spec()}
        return made


def judged(run: Run, args: Any, call: dict[str, Any]) -> Any:
    verdict = run.call("t", args, **call)
    trips = run.end(verdict, ok=False)
    return msgspec.to_builtins(verdict.decision), verdict.tags, verdict.trips, trips


def runs(monkeypatch: pytest.MonkeyPatch, *snapshots: dict[str, Any]) -> tuple[Run, Run]:
    """With an index, and without."""
    made = []
    for least in (1, 10**9):
        monkeypatch.setattr(plan, "INDEXED_FROM", least)
        run = Run(*snapshots, places=FlatPlaces())
        for risk in (None, frozenset[str](), frozenset({"write_like"})):
            run.call("t", {"never": "asked"}, risk_classes=risk, uninspected=True)  # plans are made now
        made.append(run)
    return made[0], made[1]


def test_every_call_is_judged_as_without_an_index(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = unjudged = 0
    for seed in range(SEED, SEED + POLICIES):
        made = Made(seed)
        rules = [made.rule(number) for number in range(made.random.randint(5, 40))]
        policy = snapshot(*rules, on_error=made.one(("BLOCK", "ALLOW")), mode=made.one(("guardrails", "control")))
        indexed, linear = runs(monkeypatch, policy)
        for _ in range(CALLS):
            args = made.args()
            call = {"risk_classes": made.one((None, frozenset(), frozenset({"write_like"})))}
            if made.random.random() < 0.05:
                call["uninspected"] = True
            step = made.one((0, 10, 900))
            indexed.at, linear.at = indexed.at + step, linear.at + step
            told = judged(indexed, args, call)
            assert told == judged(linear, args, call), f"seed {seed}: {args!r:.500}"
            refused += told[0]["action"] != "ALLOW"
            unjudged += told[0]["reason_code"] == "UNJUDGED_ARGS"
        assert indexed.state.pools == linear.state.pools, f"seed {seed}"
    assert refused > POLICIES and unjudged > POLICIES // 10  # or nothing was tried


def test_what_an_index_leaves_out_is_certainly_false(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule by rule: where one is left out, asking it says no, and never that it cannot be judged."""
    left_out = 0
    for seed in range(SEED, SEED + POLICIES):
        made = Made(seed)
        run = Run(snapshot(*(made.rule(number) for number in range(20))), places=FlatPlaces())
        engine = run.stack.engines[0]
        guarded = [(each, guards) for each in engine.rules if (guards := guards_of(each)) is not None]
        index = RuleIndex([guards for _, guards in guarded])
        for _ in range(CALLS):
            args = made.args()
            try:
                found = index.find(args)
            except Unavailable:
                continue
            for position, (each, _) in enumerate(guarded):
                if position not in found and each.args is not None:
                    assert each.args(args) is False, f"seed {seed}: {each.match} {args!r:.500}"
                    left_out += 1
    assert left_out > 10 * POLICIES


def wide_policy(count: int, **spec: Any) -> list[dict[str, Any]]:
    def filled(value: Any, number: int) -> Any:
        if isinstance(value, dict):
            return {filled(key, number): filled(each, number) for key, each in value.items()}
        if isinstance(value, list):
            return [filled(each, number) for each in value]
        return value.replace("%", str(number)) if isinstance(value, str) else value

    return [rule(f"r{number}", "deny", {"args": filled(spec, number)}) for number in range(count)]


KINDS = {
    "equality": {"key_equals": {"q": "v%"}},
    "keys": {"key_equals": {"k%": 1}},
    "regex": {"key_regex": {"q": ["(?i)drop +table_%x"]}},
    "glob": {"key_glob": {"q": ["*/secret%/*"]}},
    "glob, one beginning": {"key_glob": {"q": ["/etc/*.conf%"]}},
    "text": {"key_contains": {"q": ["key %x"]}},
    "path": {"path_within": {"path": ["/srv/%"]}},
    "host": {"host_in": {"url": ["*.evil%.example"]}},
    "program": {"command": {"run": {"programs": ["tool%"]}}},
}
ASKED = {"q": "/etc/passwd", "path": "/work/a", "url": "https://docs.example", "run": "git status"}


@pytest.mark.parametrize("kind", KINDS)
def test_a_hundred_times_the_rules_cost_hardly_more(kind: str) -> None:
    few, many = (Run(snapshot(*wide_policy(count, **KINDS[kind])), places=FlatPlaces()) for count in (20, 2_000))

    def calls(run: Run) -> None:
        for _ in range(20):
            assert run.action("t", ASKED) == "ALLOW"

    calls(few)
    calls(many)
    assert cpu_ratio(lambda: calls(many), lambda: calls(few), 5) < 5


def test_patterns_that_no_set_can_hold_are_asked_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names, "_SET_MEMORY", 1)
    run = Run(snapshot(*wide_policy(20, key_regex={"q": ["(?i)drop +table_%x"]})))
    assert run.action("t", {"q": "DROP  table_7x"}) == "BLOCK"
    assert run.action("t", {"q": "drop table"}) == "ALLOW"


def test_tools_that_the_same_rules_concern_share_an_index() -> None:
    run = Run(snapshot(*wide_policy(50, key_equals={"q": "v%"})))
    planner = run.stack.engines[0]._planner
    for number in range(100):
        run.call(f"t{number}", ASKED)
    assert len(planner._indexes) == 1
    assert len(planner._steps) == 50
