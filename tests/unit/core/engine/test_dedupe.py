"""Dedupe by chosen arguments, and the allow that overrides it."""

from __future__ import annotations

import itertools
from decimal import Decimal
from typing import Any

import pytest

from harness.engine import Run, compiled, hash_of, rule, tools
from subluminal.core.engine.state import MARK

A, B = "ALLOW", "BLOCK"
ONCE: dict[str, Any] = {"scope": "tool", "window_ms": 1_000, "on_duplicate": B}


def custom(*key_args: str, **more: Any) -> dict[str, Any]:
    return rule("once", "dedupe", **ONCE, key="custom", key_args=list(key_args), **more)


DISTINCT: list[Any] = [{}, {"id": None}, {"id": 1}, {"id": "1"}, {"id": True}, {"id": [1]}, {"id": [1, 1]}, {"id": {}},
                       {"id": ""}, {"id": {"a": 1}}, {"id": "null"}]  # fmt: skip


@pytest.mark.parametrize(("first", "second"), list(itertools.permutations(DISTINCT, 2)))
def test_other_values_are_another_call_and_none_is_a_value_of_its_own(first: Any, second: Any) -> None:
    run = Run(compiled(custom("id")))
    assert [run.action("t", first), run.action("t", second), run.action("t", {**first, "more": 1})] == [A, A, B]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"id": 1}, {"id": Decimal("1.0")}),
        ({"id": {"a": 1, "b": 2}}, {"id": {"b": 2, "a": 1}}),
        ({"id": [0.5]}, {"id": [Decimal("0.50")]}),
    ],
)
def test_spelling_makes_no_other_call(first: Any, second: Any) -> None:
    run = Run(compiled(custom("id")))
    assert [run.action("t", first), run.action("t", second)] == [A, B]


@pytest.mark.parametrize(
    ("key", "first", "second"),
    [
        ("a.b", {"a": {"b": 1}}, {"a": {"b": 1}, "a.b": "noise"}),
        ("a.b", {"a": {"b": 1}}, {"a": ' {"b": 1}'}),
        ("a[]", {"a": [1, 2]}, {"a": "[1,  2]"}),
        ("a[].b", {"a": [{"b": 1}]}, {"a": '[{"b":1}]', "a[].b": 2}),
        ("a.b", {"a.b": 1}, {"a.b": 1, "a": {"c": "noise"}}),
    ],
)
def test_what_a_server_does_not_look_at_makes_no_other_call(key: str, first: Any, second: Any) -> None:
    for one, two in ((first, second), (second, first)):
        run = Run(compiled(custom(key)))
        assert [run.action("t", one), run.action("t", two)] == [A, B]


def test_all_of_the_named_arguments_count_and_each_for_itself() -> None:
    run = Run(compiled(custom("a", "b")))
    calls = [{"a": 1}, {"b": 1}, {"a": 1, "b": 1}, {"a": "1,1"}, {"a": 1, "b": 2}, {"a": 1, "b": 1, "c": 9}]
    assert [run.action("t", args) for args in calls] == [A, A, A, A, A, B]


def test_arguments_that_were_not_read_cannot_be_compared_by_their_parts() -> None:
    run = Run(compiled(custom("id")))
    refused = run.call(uninspected=True, args_raw_hash="a" * 64)
    assert refused.decision.reason_code == "UNINSPECTED_ARGS"


# -- large calls ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "counting",
    [
        rule("x", "dedupe", **ONCE),
        rule("x", "breaker", scope="tool", repeat_threshold=2, repeat_window_ms=1_000, on_trip=B),
    ],
)
def test_calls_too_large_to_read_repeat_themselves_by_their_bytes(counting: dict[str, Any]) -> None:
    run = Run(compiled(counting))
    calls = [run.action(uninspected=True, args_raw_hash=letter * 64) for letter in "aba"]
    assert calls == [A, A, B]
    assert run.call(uninspected=True).decision.reason_code == "UNINSPECTED_ARGS"


def test_a_hash_of_bytes_is_never_taken_for_one_of_values() -> None:
    run = Run(compiled(rule("x", "dedupe", **ONCE)))
    small = run.call("t", {"n": 1})
    assert small.decision.action == A
    assert run.action(uninspected=True, args_raw_hash=hash_of({"n": 1})) == A


# -- override ---------------------------------------------------------------------------------------------------------

DEDUPE = rule("once", "dedupe", **ONCE)
OVERRIDE = rule("drafts", "allow", {"args": {"key_equals": {"draft": True}}}, override=["dedupe"])
AGAIN = {"draft": True}


@pytest.mark.parametrize("rules", list(itertools.permutations([DEDUPE, OVERRIDE])))
def test_an_allow_that_decides_overrides_dedupe_wherever_it_stands(rules: tuple[dict[str, Any], ...]) -> None:
    run = Run(compiled(*rules))
    assert [run.action("t", AGAIN) for _ in range(3)] == [A, A, A]
    assert [run.action("t", {"draft": "true"}) for _ in range(2)] == [A, B], "an allow is strict"


def test_an_overridden_call_renews_the_mark() -> None:
    run = Run(compiled(custom("id"), OVERRIDE))
    plain = {"id": 1}
    assert run.action("t", plain) == A
    run.at += 900
    assert run.action("t", {"id": 1, "draft": True}) == A
    run.at += 999
    assert run.action("t", plain) == B, "within a second of the one that was let through"
    run.at += 1
    assert run.action("t", plain) == A


def test_a_refused_duplicate_renews_nothing() -> None:
    run = Run(compiled(DEDUPE))
    assert run.action() == A
    before = dict(run.state.pools[MARK])
    run.at += 500
    assert run.action() == B
    assert run.state.pools[MARK] == before
    observing = Run(compiled(DEDUPE, mode="observe"))
    observing.call()
    observing.at += 600
    assert observing.call().decision.would is not None
    observing.at += 600
    assert observing.call().decision.would is None, "what would have been refused renews nothing either"


def test_an_allow_below_the_one_that_decides_overrides_nothing() -> None:
    run = Run(compiled(rule("first", "allow"), OVERRIDE, DEDUPE))
    assert [run.action("t", AGAIN) for _ in range(2)] == [A, B]


def test_only_dedupe_of_the_same_bundle_is_overridden() -> None:
    budget = rule("b", "budget", scope="run", limit_calls=2, on_exceed=B)
    run = Run(compiled(DEDUPE, budget, OVERRIDE))
    assert [run.action("t", AGAIN) for _ in range(3)] == [A, A, B]
    stacked = Run(compiled(OVERRIDE), compiled(DEDUPE, policy_id="other"))
    assert [stacked.action("t", AGAIN) for _ in range(2)] == [A, B]


def test_what_cannot_be_judged_by_an_overridden_rule_does_not_matter() -> None:
    allow = rule("drafts", "allow", tools("t"), override=["dedupe"])
    run = Run(compiled(DEDUPE, allow))
    assert run.action("t", uninspected=True) == A
    assert run.action("u", uninspected=True) == B


def test_a_trace_says_which_allow_has_overridden_what() -> None:
    run = Run(compiled(DEDUPE, OVERRIDE))
    run.action("t", AGAIN)
    trace: list[dict[str, Any]] = []
    assert run.call("t", AGAIN, trace=trace).decision.rule_id == "drafts"
    once = next(record for record in trace if record["rule_id"] == "once")
    assert (once["why"], once["decision"], once["reason_code"]) == ("overridden by allow drafts", None, None)
    assert once["matched"]
