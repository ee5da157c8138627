"""What a reviewer is told: whatever loosens a deny or a limit is critical, whatever tightens is info."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest

from harness.engine import rule, tools
from subluminal.policy.compile.bundle import compile_bundle
from subluminal.policy.diff.snapshots import diff_snapshots

Bundle = dict[str, Any]
Edit = Callable[[Bundle], object]


def base() -> Bundle:
    return {
        "policy_id": "p",
        "version": "1",
        "mode": "guardrails",
        "defaults": {"decision_on_error": "BLOCK"},
        "selectors": {"env": ["ci", "prod"], "workload": {"labels": {"team": "a"}}},
        "rules": [
            rule("tag", "tag", tools("write*"), add_risk_class=["write_like"]),
            rule("deny", "deny", tools("rm*", "del*")),
            rule("deny-writes", "deny", {"risk_class": ["write_like"], "args": {"numeric_range": {"n": {"max": 5}}}}),
            rule("allow-git", "allow", tools("git*")),
            rule("deny-push", "deny", tools("git_push")),
            rule("budget", "budget", scope="tool", limit_calls=10, limit_cost_units=50, on_exceed="BLOCK"),
            rule(
                "rate",
                "rate_limit",
                scope="run",
                capacity=5,
                refill_tokens=2,
                refill_period_ms=100,
                cost_tokens_per_call=2,
                on_limit="THROTTLE",
                backoff_ms=9,
            ),
            rule(
                "breaker",
                "breaker",
                scope="tool",
                error_threshold=3,
                window_ms=100,
                repeat_threshold=4,
                repeat_window_ms=100,
                latency_threshold_ms=50,
                latency_count=2,
                on_trip="TERMINATE_RUN",
            ),
            rule("dedupe", "dedupe", scope="tool", window_ms=100, on_duplicate="BLOCK"),
            rule("hourly", "budget", scope="server", limit_cost_units=9, on_exceed="BLOCK", **HOURLY),
            {**rule("but", "deny", tools("put*")), "unless": tools("put_own*")},
            {**rule("open", "allow", tools("ls*")), "unless": {"risk_class": ["write_like"]}},
            rule("either", "deny", {"any_of": [tools("x"), {"args": {"path_within": {"p": ["/etc"]}}}]}),
        ],
    }


HOURLY: dict[str, Any] = {
    "window_ms": 3_600_000,
    "cost_units_per_call": 2,
    "cost_units_by_tool": {"search*": 5, "get": 3},
    "cost_units_from": {"arg": "limit", "per": 100},
}


def compiled(bundle: Bundle) -> dict[str, Any]:
    return compile_bundle(json.dumps(bundle).encode(), "p.json")


def changes(edit: Edit, undo: bool = False) -> list[tuple[str, str, str | None, str]]:
    edited = copy.deepcopy(base())
    edit(edited)
    before, after = compiled(base()), compiled(edited)
    if undo:
        before, after = after, before
    return [(c.severity, c.direction, c.rule_id, c.path) for c in diff_snapshots(before, after)]


def at(bundle: Bundle, rule_id: str) -> dict[str, Any]:
    found: dict[str, Any] = next(r for r in bundle["rules"] if r["rule_id"] == rule_id)
    return found


def put(rule_id: str, field: str, value: Any) -> Edit:
    """Set (or with None remove) a member of a rule's effect object."""

    def edit(bundle: Bundle) -> None:
        target = at(bundle, rule_id)
        effect = target["effect"].get(target["kind"], target["effect"])
        if value is None:
            del effect[field]
        else:
            effect[field] = value

    return edit


def put_rule(rule_id: str, **members: Any) -> Edit:
    return lambda bundle: at(bundle, rule_id).update(members)


def put_top(**members: Any) -> Edit:
    return lambda bundle: bundle.update(members)


def drop(rule_id: str) -> Edit:
    return lambda bundle: bundle["rules"].remove(at(bundle, rule_id))


def move(rule_id: str, index: int) -> Edit:
    def edit(bundle: Bundle) -> None:
        target = at(bundle, rule_id)
        bundle["rules"].remove(target)
        bundle["rules"].insert(index, target)

    return edit


def within(directory: str) -> dict[str, Any]:
    return {"args": {"path_within": {"p": [directory]}}}


LOOSENING: dict[str, Edit] = {
    "mode to observe": put_top(mode="observe"),
    "errors let through": put_top(defaults={"decision_on_error": "ALLOW"}),
    "reads let through on errors": put_top(defaults={"decision_on_error": "BLOCK", "fail_open_read_tools": True}),
    "more legs": put_top(defaults={"decision_on_error": "BLOCK", "max_legs": 33}),
    "fewer environments": lambda b: b["selectors"].update(env=["ci"]),
    "other environments": lambda b: b["selectors"].update(env=["ci", "dev"]),
    "one more selector": lambda b: b["selectors"].update(client=["codex"]),
    "one more label": lambda b: b["selectors"]["workload"]["labels"].update(tier="web"),
    "deny removed": drop("deny"),
    "budget removed": drop("budget"),
    "rate limit removed": drop("rate"),
    "breaker removed": drop("breaker"),
    "dedupe removed": drop("dedupe"),
    "tag of a deny removed": drop("tag"),
    "deny disabled": put_rule("deny", enabled=False),
    "deny becomes allow": put_rule("deny", kind="allow", effect={"action": "ALLOW"}),
    "deny matches fewer": put_rule("deny", match=tools("rm*")),
    "deny matches others": put_rule("deny", match=tools("rm*", "dele*", "unlink")),
    "deny asks for arguments": put_rule("deny", match={**tools("rm*", "del*"), "args": {"has_keys": ["path"]}}),
    "deny has office hours": put_rule("deny", match={**tools("rm*", "del*"), "time": {"utc_hours": ["9-17"]}}),
    "narrower range": put_rule(
        "deny-writes", match={"risk_class": ["write_like"], "args": {"numeric_range": {"n": {"max": 4}}}}
    ),
    "allow over a deny widened": put_rule("allow-git", match=tools("g*")),
    "allow above a deny": lambda b: b["rules"].insert(0, rule("new", "allow", tools("rm_x"))),
    "allow moved above a deny": lambda b: (put_rule("allow-git", match={})(b), move("allow-git", 1)(b)),
    "deny moved below an allow": lambda b: (put_rule("deny", match=tools("git_x"))(b), move("deny", 4)(b)),
    "tag moved below its deny": move("tag", 5),
    "more calls": put("budget", "limit_calls", 11),
    "no limit on calls": put("budget", "limit_calls", None),
    "no limit on cost": put("budget", "limit_cost_units", None),
    "cheaper calls": put("budget", "cost_units_per_call", 0),
    "budget for each server": put("budget", "scope", "server_tool"),
    "bucket for each tool": put("rate", "scope", "tool"),
    "larger bucket": put("rate", "capacity", 6),
    "faster refill": put("rate", "refill_tokens", 3),
    "shorter period": put("rate", "refill_period_ms", 99),
    "fewer tokens per call": put("rate", "cost_tokens_per_call", 1),
    "more errors": put("breaker", "error_threshold", 4),
    "more repeats": put("breaker", "repeat_threshold", 5),
    "shorter window": put("breaker", "window_ms", 99),
    "shorter repeat window": put("breaker", "repeat_window_ms", 99),
    "slower calls": put("breaker", "latency_threshold_ms", 51),
    "more slow calls": put("breaker", "latency_count", 3),
    "no run ended": put("breaker", "on_trip", "BLOCK"),
    "shorter dedupe window": put("dedupe", "window_ms", 99),
    "budget that refills": put("budget", "window_ms", 3_600_000),
    "shorter window of a budget": put("hourly", "window_ms", 60_000),
    "cheaper tool": put("hourly", "cost_units_by_tool", {"search*": 4, "get": 3}),
    "tool at the price of a call": put("hourly", "cost_units_by_tool", {"get": 3}),
    "price list gone": put("hourly", "cost_units_by_tool", None),
    "argument costs nothing": put("hourly", "cost_units_from", None),
    "argument costs less": put("hourly", "cost_units_from", {"arg": "limit", "per": 200}),
    "server to server and tool": put("hourly", "scope", "server_tool"),
    "run to server": put("rate", "scope", "server"),
    "classes let through on errors": put_top(defaults={"decision_on_error": "BLOCK", "fail_open_classes": ["x"]}),
    "dedupe overridden": put("allow-git", "override", ["dedupe"]),
    "new allow overrides dedupe": lambda b: b["rules"].append(rule("new", "allow", tools("n"), override=["dedupe"])),
    "unless added": put_rule("deny", unless=tools("rm_x")),
    "unless wider": put_rule("but", unless=tools("put*own*", "put_own*")),
    "unless with one more alternative": put_rule("but", unless={"any_of": [tools("put_own*"), tools("put_my*")]}),
    "unless of a budget": put_rule("budget", unless=tools("x")),
    "one alternative less": put_rule("either", match={"any_of": [tools("x")]}),
    "alternatives no longer all": put_rule("deny", match={**tools("rm*", "del*"), "any_of": [tools("rm*")]}),
    "smaller directory": put_rule("either", match={"any_of": [tools("x"), within("/etc/ssl")]}),
}


@pytest.mark.parametrize(
    ("old", "new", "direction"),
    [
        ({}, {"changed_tools": "warn"}, "tightens"),
        ({"changed_tools": "warn"}, {"changed_tools": "quarantine"}, "tightens"),
        ({"changed_tools": "quarantine"}, {"changed_tools": "allow"}, "loosens"),
        ({}, {"hide_denied_tools": True}, "neutral"),
        ({}, {"check_schemas": "pinned"}, "tightens"),
        ({"check_schemas": "pinned"}, {"check_schemas": "listed"}, "tightens"),
        ({"check_schemas": "listed"}, {"check_schemas": "none"}, "loosens"),
    ],
)
def test_what_becomes_of_changed_tools_has_a_direction(old: Any, new: Any, direction: str) -> None:
    snapshots = []
    for defaults in (old, new):
        bundle = base()
        put_top(defaults={"decision_on_error": "BLOCK", **defaults})(bundle)
        snapshots.append(compiled(bundle))
    (change,) = diff_snapshots(*snapshots)
    assert change.direction == direction
    assert change.path == f"defaults.{next(iter(new))}"


@pytest.mark.parametrize("edit", LOOSENING.values(), ids=LOOSENING.keys())
def test_loosening_is_critical(edit: Edit) -> None:
    found = changes(edit)
    assert found[0][:2] == ("critical", "loosens")


# Changes that loosen one thing and tighten another stay critical when they are undone.
BOTH_WAYS = {"deny matches others", "other environments", "allow moved above a deny", "deny moved below an allow"}


@pytest.mark.parametrize("name", [name for name in LOOSENING if name not in BOTH_WAYS])
def test_undoing_it_is_a_tightening_and_only_info(name: str) -> None:
    found = changes(LOOSENING[name], undo=True)
    assert {(severity, direction) for severity, direction, _, _ in found} == {("info", "tightens")}


NEUTRAL: dict[str, Edit] = {
    "version": put_top(version="2"),
    "description": put_top(description="new words"),
    "owner": put_top(owner="ops"),
    "mode to control": put_top(mode="control"),
    "message": put("deny", "message", "no"),
    "reason_code": put("deny", "reason_code", "NO"),
    "block becomes hint": put("deny", "action", "REJECT_WITH_HINT"),
    "hint_text": put("budget", "hint_text", "stop"),
    "severity": put_rule("deny", severity="info"),
    "rule description": put_rule("deny", description="why"),
    "backoff": put("rate", "backoff_ms", 8),
    "selector order": lambda b: b["selectors"].update(env=["prod", "ci"]),
    "pattern order": put_rule("deny", match=tools("del*", "rm*")),
    "allow below every deny": lambda b: b["rules"].append(rule("new", "allow", tools("x"))),
    "disabled rule": lambda b: b["rules"].append({**rule("new", "deny"), "enabled": False}),
    "accumulators swapped": move("budget", 6),
    "unrelated allow and deny swapped": move("deny", 0),
}


@pytest.mark.parametrize("edit", NEUTRAL.values(), ids=NEUTRAL.keys())
def test_words_and_harmless_orders_are_info(edit: Edit) -> None:
    found = changes(edit)
    assert found
    assert {severity for severity, _, _, _ in found} == {"info"}
    assert {direction for _, direction, _, _ in found} == {"neutral"}


def test_an_allow_that_overlaps_no_deny_is_harmless() -> None:
    old = {**base(), "rules": [rule("deny", "deny", tools("rm*"))]}
    new = {**base(), "rules": [rule("zip", "allow", tools("zip")), rule("deny", "deny", tools("rm*"))]}
    (change,) = diff_snapshots(compiled(old), compiled(new))
    assert (change.change, change.rule_id, change.direction) == ("added", "zip", "neutral")


def test_equal_policies_have_no_difference() -> None:
    reordered = dict(reversed(base().items()))
    assert diff_snapshots(compiled(base()), compiled(reordered)) == []


def test_a_disabled_rule_can_be_edited_freely() -> None:
    old, new = base(), base()
    put_rule("deny", enabled=False)(old)
    put_rule("deny", enabled=False, match=tools("x"))(new)
    (change,) = diff_snapshots(compiled(old), compiled(new))
    assert change.severity == "info"
    assert "disabled" in change.summary


def test_true_for_1_is_a_change() -> None:
    def with_value(value: Any) -> dict[str, Any]:
        return compiled({**base(), "rules": [rule("d", "deny", {"args": {"key_equals": {"n": value}}})]})

    (change,) = diff_snapshots(with_value(1), with_value(True))
    assert (change.severity, change.path) == ("critical", "match")


def test_one_move_is_reported_as_one_move() -> None:
    found = changes(move("dedupe", 0))
    assert found == [("info", "neutral", "dedupe", "")]


def test_the_most_serious_change_comes_first() -> None:
    def edit(bundle: Bundle) -> None:
        bundle["version"] = "2"
        drop("deny")(bundle)

    assert [severity for severity, _, _, _ in changes(edit)] == ["critical", "info"]


@pytest.mark.parametrize(
    ("old", "new", "direction"),
    [
        (None, ["a"], "tightens"),
        (["a"], None, "loosens"),
        (["a", "b"], ["a"], "tightens"),
        (["a"], ["a", "b"], "loosens"),
        (["a"], ["b"], "loosens"),
    ],
)
def test_the_fewer_arguments_are_compared_the_more_calls_are_duplicates(
    old: list[str] | None, new: list[str] | None, direction: str
) -> None:
    snapshots = [compiled(base()), compiled({**base(), "version": "2"})]
    for snapshot, key_args in zip(snapshots, (old, new), strict=True):
        dedupe = at(snapshot, "dedupe")["effect"]["dedupe"]
        dedupe.update({"key": "args_hash"} if key_args is None else {"key": "custom", "key_args": key_args})
    found = [c for c in diff_snapshots(*snapshots) if c.rule_id == "dedupe"]
    assert {change.direction for change in found} == {direction}


@pytest.mark.parametrize("scopes", [("server", "tool"), ("agent", "principal")])
def test_scopes_that_hold_different_calls_together_loosen_either_way(scopes: tuple[str, str]) -> None:
    for old, new in (scopes, scopes[::-1]):
        before, after = base(), base()
        put("hourly", "scope", old)(before)
        put("hourly", "scope", new)(after)
        (change,) = diff_snapshots(compiled(before), compiled(after))
        assert (change.severity, change.path) == ("critical", "effect.budget.scope")


def test_an_allow_that_matches_other_calls_than_before_loosens_where_it_stands_above_a_deny() -> None:
    assert changes(put_rule("allow-git", match=tools("git_pu*")))[0][:2] == ("info", "tightens")
    assert changes(put_rule("allow-git", match=tools("g*_push")))[0][:2] == ("critical", "loosens")


def test_a_tag_that_an_allow_and_a_deny_ask_for_loosens_when_it_comes_and_when_it_goes() -> None:
    def with_allow(bundle: Bundle) -> None:
        bundle["rules"].insert(1, rule("allow-writes", "allow", {"risk_class": ["write_like"], **tools("rm_x")}))

    before = base()
    with_allow(before)
    after = copy.deepcopy(before)
    drop("tag")(after)
    for old, new in ((before, after), (after, before)):
        (change,) = diff_snapshots(compiled(old), compiled(new))
        assert (change.rule_id, change.direction) == ("tag", "loosens")


def test_the_unless_of_an_allow_goes_the_other_way() -> None:
    allow = rule("allow", "allow", tools("git*"))
    excepted = {**allow, "unless": tools("git_push")}
    deny = rule("deny", "deny", tools("git_push", "git_rm"))
    with_unless, without = (compiled({**base(), "rules": [first, deny]}) for first in (excepted, allow))
    (added,), (removed,) = diff_snapshots(without, with_unless), diff_snapshots(with_unless, without)
    assert (added.path, added.direction) == ("unless", "tightens")
    assert (removed.path, removed.direction) == ("unless", "loosens")
    assert removed.summary == "unless removed: the allow rule applies to more calls"


def test_a_class_in_an_unless_works_the_other_way_round() -> None:
    tag = rule("tag", "tag", tools("w*"), add_risk_class=["safe"])
    deny = {**rule("deny", "deny"), "unless": {"risk_class": ["safe"]}}
    (change,) = diff_snapshots(compiled({**base(), "rules": [deny]}), compiled({**base(), "rules": [tag, deny]}))
    assert (change.rule_id, change.direction) == ("tag", "loosens")


def test_a_tag_for_a_class_that_fails_open_loosens() -> None:
    tag = rule("tag", "tag", tools("w*"), add_risk_class=["safe"])
    opens = {**base(), "defaults": {"decision_on_error": "BLOCK", "fail_open_classes": ["safe"]}}
    (change,) = diff_snapshots(compiled({**opens, "rules": []}), compiled({**opens, "rules": [tag]}))
    assert (change.rule_id, change.direction) == ("tag", "loosens")


def test_the_older_word_for_a_class_that_fails_open_is_no_difference() -> None:
    old = {**base(), "defaults": {"decision_on_error": "BLOCK", "fail_open_read_tools": True}}
    new = {**base(), "defaults": {"decision_on_error": "BLOCK", "fail_open_classes": ["read_like"]}}
    assert {change.direction for change in diff_snapshots(compiled(old), compiled(new))} == {"neutral"}


def test_an_unless_that_touches_no_call_of_the_rule_changes_nothing() -> None:
    (change,) = changes(put_rule("deny", unless=tools("git_*")))
    assert change == ("info", "neutral", "deny", "unless")
