"""Contract B: what a policy bundle may say, and what it says when it is silent."""

from __future__ import annotations

import copy
import re
from typing import get_args

import msgspec
import pytest

from harness import places
from subluminal.contracts import vocabulary
from subluminal.contracts.policy import ArgsMatch, Budget, Bundle, CostFrom, Rule, Scope, Snapshot, expand_hours

EFFECTS = {
    "allow": {"action": "ALLOW", "reason_code": "LISTED", "message": "Listed."},
    "deny": {"action": "BLOCK", "reason_code": "DESTRUCTIVE", "message": "No."},
    "budget": {"budget": {"scope": "run", "limit_calls": 3, "on_exceed": "BLOCK"}},
    "rate_limit": {
        "rate_limit": {
            "scope": "tool",
            "capacity": 2,
            "refill_tokens": 1,
            "refill_period_ms": 60000,
            "on_limit": "THROTTLE",
            "backoff_ms": 500,
        }
    },
    "breaker": {
        "breaker": {
            "scope": "server_tool",
            "error_threshold": 5,
            "window_ms": 60000,
            "repeat_threshold": 5,
            "repeat_window_ms": 10000,
            "on_trip": "TERMINATE_RUN",
        }
    },
    "dedupe": {"dedupe": {"scope": "run", "window_ms": 60000, "key": "args_hash", "on_duplicate": "BLOCK"}},
    "tag": {"tag": {"add_risk_class": ["write_like"]}},
}
# Every time of the contract, as a field that takes a duration; the same with `_ms` takes milliseconds.
TIMES = [
    ("budget", "window"),
    ("rate_limit", "refill_period"),
    ("rate_limit", "backoff"),
    ("breaker", "window"),
    ("breaker", "repeat_window"),
    ("breaker", "latency_threshold"),
    ("dedupe", "window"),
]
MATCH = {
    "server_name": {"glob": ["git*"], "regex": ["^linear$"]},
    "tool_name": {"glob": ["push"]},
    "risk_class": ["write_like", "of_our_own"],
    "args": {
        "has_keys": ["branch"],
        "key_equals": {"branch": "main", "force": True, "depth": 1, "ratio": 0.5},
        "key_in": {"remote": ["origin", 1, False]},
        "numeric_range": {"count": {"min": 0, "max": 10.5}, "open": {"min": 1}},
    },
    "time": {"utc_hours": [3, "9-17"]},
}


def rule(kind="deny", **changes):
    made = {
        "rule_id": f"a-{kind}",
        "kind": kind,
        "enabled": True,
        "match": {},
        "effect": EFFECTS[kind],
        "severity": "warn",
    }
    return copy.deepcopy({**made, **changes})


def bundle(**changes):
    made = {
        "policy_id": "team",
        "version": "1.2.0",
        "mode": "guardrails",
        "defaults": {"decision_on_error": "BLOCK"},
        "selectors": {},
        "rules": [rule(kind) for kind in EFFECTS],
    }
    return copy.deepcopy({**made, **changes})


def check(value, type_=Bundle):
    return msgspec.convert(value, type_)


def effect_with(kind, **changes):
    return rule(kind, effect={kind: {**EFFECTS[kind][kind], **changes}})


def test_a_bundle_with_one_rule_of_every_kind_is_accepted():
    kinds = [rule.kind for rule in check(bundle()).rules]
    assert kinds == list(vocabulary.RULE_KINDS)


@pytest.mark.parametrize("field", ["policy_id", "version", "mode", "defaults", "selectors", "rules"])
def test_a_bundle_needs_every_required_field(field):
    value = bundle()
    del value[field]
    with pytest.raises(msgspec.ValidationError, match=field):
        check(value)


@pytest.mark.parametrize("kind", EFFECTS)
@pytest.mark.parametrize("field", ["rule_id", "kind", "match", "effect"])
def test_a_rule_needs_every_required_field(kind, field):
    value = rule(kind)
    del value[field]
    with pytest.raises(msgspec.ValidationError, match=field):
        check(value, Rule)


@pytest.mark.parametrize(
    ("kind", "field"),
    [
        *(("budget", field) for field in ("scope", "on_exceed")),
        *(("rate_limit", field) for field in ("scope", "capacity", "refill_tokens", "refill_period_ms", "on_limit")),
        *(("breaker", field) for field in ("scope", "on_trip")),
        *(("dedupe", field) for field in ("scope", "window_ms", "on_duplicate")),
        ("tag", "add_risk_class"),
    ],
)
def test_an_effect_needs_every_required_field(kind, field):
    value = rule(kind)
    del value["effect"][kind][field]
    with pytest.raises(msgspec.ValidationError, match=field):
        check(value, Rule)


@pytest.mark.parametrize("kind", EFFECTS)
def test_a_rule_is_enabled_and_warns_unless_it_says_otherwise(kind):
    value = rule(kind)
    del value["enabled"], value["severity"]
    made = msgspec.to_builtins(check(value, Rule))
    assert (made["enabled"], made["severity"]) == (True, "warn")


@pytest.mark.parametrize("duration", ["1ms", "30s", "15m", "1h", "365d", "0s"])
def test_a_time_may_be_a_duration(duration):
    for kind, field in TIMES:
        made = effect_with(kind, **{field: duration})
        made["effect"][kind].pop(f"{field}_ms", None)
        check(made, Rule)


@pytest.mark.parametrize(
    "duration", ["", "1", "1.5h", "1 h", "1hr", "-1s", "1H", "1h30m", "1w", "1s\n", "1" * 13 + "s", 5]
)
def test_what_is_no_duration_is_refused(duration):
    for kind, field in TIMES:
        with pytest.raises(msgspec.ValidationError):
            check(effect_with(kind, **{field: duration}), Rule)


SIZED = [
    lambda size: rule(match={"args": {"bytes": {"max": size}}}),
    lambda size: rule(match={"args": {"numeric_range": {"size": {"min": size}}}}),
    lambda size: effect_with("budget", limit_cost_units=1, cost_units_from={"arg": "size", "per": size}),
]


@pytest.mark.parametrize("made", SIZED)
def test_a_size_may_have_a_unit(made):
    for size in (1, "1B", "64KB", "10MB", "2GB", "64KiB", "10MiB", "2GiB"):
        check(made(size), Rule)
    for size in ("10mb", "10 MB", "1.5MB", "10M", "1TB", "-1KB", "KB", "64KB\n"):
        with pytest.raises(msgspec.ValidationError):
            check(made(size), Rule)


@pytest.mark.parametrize(
    "predicate",
    [
        {"key_glob": {"path": "*.env"}},
        {"key_regex": {"options.path": ["^/etc/", "^/root/"]}},
        {"key_contains": {"files[].path": "secret"}},
        {"path_within": {"path": ["~/work", "."]}},
        {"host_in": {"url": "*.example.com"}},
        {"command": {"command": {"programs": ["rm", "curl"]}}},
        {"missing_keys": ["reason"]},
        {"bytes": {"min": 1, "max": "10MiB"}},
    ],
)
def test_predicates_stand_in_match_in_unless_and_in_alternatives(predicate):
    check(rule(match={"args": predicate}, unless={"any_of": [{"args": predicate}, {"args": predicate}]}), Rule)


@pytest.mark.parametrize(
    "changes",
    [
        {"match": {"any_of": []}},
        {"match": {"any_of": [{"any_of": [{}]}]}},
        {"match": {"unless": {}}},
        {"unless": []},
        {"match": {"args": {"key_glob": {"path": []}}}},
        {"match": {"args": {"key_glob": {"path": ""}}}},
        {"match": {"args": {"path_within": ["."]}}},
        {"match": {"args": {"command": {"command": ["rm"]}}}},
        {"match": {"args": {"bytes": {"min": -1}}}},
    ],
)
def test_alternatives_and_exceptions_do_not_nest_and_are_not_empty(changes):
    with pytest.raises(msgspec.ValidationError):
        check(rule(**changes), Rule)


def test_the_recommended_fields_may_be_given():
    value = bundle(description="For the team.", owner="ada", created_at="2025-12-15T12:34:56Z")
    value["rules"][0]["description"] = "A reason."
    assert msgspec.to_builtins(check(value))["owner"] == "ada"


def test_every_matcher_and_selector_of_the_pack_is_accepted_as_it_stands():
    selectors = {
        "env": ["dev", "ci"],
        "agent_id": ["reviewer"],
        "client": ["claude"],
        "workload": {
            "namespace": ["a"],
            "service_account": ["b"],
            "labels": {"team": "core"},
            "repo": ["c"],
            "branch": ["d"],
        },
    }
    made = msgspec.to_builtins(check(bundle(selectors=selectors, rules=[rule(match=MATCH)])))
    assert made["selectors"] == selectors
    assert made["rules"][0]["match"] == MATCH


def test_every_default_of_the_pack_is_stated():
    made = msgspec.to_builtins(check(bundle()))
    effects = {rule["kind"]: rule["effect"] for rule in made["rules"]}
    assert made["defaults"]["fail_open_read_tools"] is False
    assert effects["budget"]["budget"]["cost_units_per_call"] == 1
    assert effects["rate_limit"]["rate_limit"]["cost_tokens_per_call"] == 1


def test_our_own_defaults_are_stated_as_well():
    rules = [rule("allow", effect={"action": "ALLOW"}), rule("deny", effect={"action": "BLOCK"}), effect_with("dedupe")]
    del rules[2]["effect"]["dedupe"]["key"]
    allow, deny, dedupe = (rule["effect"] for rule in msgspec.to_builtins(check(bundle(rules=rules)))["rules"])
    assert allow == {"action": "ALLOW", "reason_code": "ALLOWLIST_MATCH", "message": ""}
    assert deny == {"action": "BLOCK", "reason_code": "DENYLIST_MATCH", "message": ""}
    assert dedupe["dedupe"]["key"] == "args_hash"


@pytest.mark.parametrize("kind", ["deny", "budget", "rate_limit", "breaker", "dedupe"])
def test_every_refusing_effect_can_carry_advice(kind):
    advice = {"hint_text": "Try this.", "suggested_args": {"dry_run": True}, "retry_advice": "Later."}
    value = rule(kind)
    (value["effect"] if kind == "deny" else value["effect"][kind]).update(advice)
    effect = msgspec.to_builtins(check(value, Rule))["effect"]
    assert advice.items() <= (effect if kind == "deny" else effect[kind]).items()


@pytest.mark.parametrize(
    ("value", "place"),
    [
        (bundle(polcy_id="x"), "polcy_id"),
        (bundle(defaults={"decision_on_error": "BLOCK", "x": 1}), r"\$.defaults"),
        (bundle(selectors={"envs": ["dev"]}), r"\$.selectors"),
        (bundle(selectors={"workload": {"x": ["y"]}}), r"\$.selectors.workload"),
        (bundle(rules=[rule(x=1)]), r"\$.rules"),
        (bundle(rules=[rule(match={"tool": {}})]), "match"),
        (bundle(rules=[rule(match={"tool_name": {"globs": []}})]), "tool_name"),
        (bundle(rules=[rule(match={"args": {"path": "$.x"}})]), "args"),
        (bundle(rules=[effect_with("budget", limit=3)]), "budget"),
        (bundle(rules=[rule("deny", effect=EFFECTS["budget"])]), "effect"),
    ],
)
def test_an_unknown_field_is_an_error_that_names_its_place(value, place):
    with pytest.raises(msgspec.ValidationError, match=place):
        check(value)


@pytest.mark.parametrize("kind", ["", "Deny", "approve", None, 1])
def test_an_unknown_kind_of_rule_is_an_error(kind):
    with pytest.raises(msgspec.ValidationError):
        check(bundle(rules=[{**rule(), "kind": kind}]))


@pytest.mark.parametrize(
    "value",
    [
        bundle(mode="strict"),
        bundle(defaults={"decision_on_error": "THROTTLE"}),
        bundle(selectors={"env": ["staging"]}),
        bundle(selectors={"client": "claude"}),
        bundle(version=1.0),
        bundle(policy_id=""),
        bundle(created_at="yesterday"),
        bundle(rules=[rule(severity="high")]),
        bundle(rules=[rule(enabled="yes")]),
        bundle(rules=[rule("allow", effect={"action": "BLOCK"})]),
        bundle(rules=[rule("deny", effect={"action": "ALLOW"})]),
        bundle(rules=[rule("deny", effect={"action": "BLOCK", "suggested_args": ["x"]})]),
        bundle(rules=[rule(match={"args": {"key_equals": {"a": None}}})]),
        bundle(rules=[rule(match={"args": {"numeric_range": {"a": {"min": "1"}}}})]),
        bundle(rules=[rule(match={"time": {"utc_hours": [24]}})]),
        bundle(rules=[rule(match={"time": {"utc_hours": ["9-24"]}})]),
        bundle(rules=[rule(match={"time": {"utc_hours": ["9"]}})]),
        bundle(rules=[rule(match={"time": {"utc_hours": ["9-17\n"]}})]),
        bundle(rules=[effect_with("budget", on_exceed="THROTTLE")]),
        bundle(rules=[effect_with("budget", limit_calls=-1)]),
        bundle(rules=[effect_with("budget", scope="planet")]),
        bundle(rules=[effect_with("rate_limit", on_limit="TERMINATE_RUN")]),
        bundle(rules=[effect_with("rate_limit", refill_period_ms=0)]),
        bundle(rules=[effect_with("breaker", on_trip="THROTTLE")]),
        bundle(rules=[effect_with("breaker", error_threshold=0)]),
        bundle(rules=[effect_with("dedupe", on_duplicate="TERMINATE_RUN")]),
        bundle(rules=[effect_with("dedupe", window_ms=2**53)]),
        bundle(rules=[effect_with("tag", add_risk_class=[])]),
    ],
)
def test_a_value_outside_the_contract_is_an_error(value):
    with pytest.raises(msgspec.ValidationError):
        check(value)


def effect_without(kind, *fields):
    value = rule(kind)
    for field in fields:
        del value["effect"][kind][field]
    return value


@pytest.mark.parametrize(
    ("made", "sentence"),
    [
        (effect_without("budget", "limit_calls"), "needs `limit_calls` or `limit_cost_units`"),
        (effect_without("rate_limit", "backoff_ms"), "needs `backoff` or `backoff_ms`"),
        (effect_without("rate_limit", "refill_period_ms"), "needs `refill_period` or `refill_period_ms`"),
        (effect_without("breaker", "window_ms"), "`error_threshold` needs `window` or `window_ms`"),
        (effect_without("breaker", "repeat_window_ms"), "`repeat_threshold` needs `repeat_window` or"),
        (effect_without("breaker", "error_threshold", "repeat_threshold"), "A breaker needs"),
        (effect_without("dedupe", "window_ms"), "needs `window` or `window_ms`"),
        (effect_with("dedupe", key="custom"), "belong together"),
        (effect_with("dedupe", key_args=["path"]), "belong together"),
    ],
)
def test_fields_that_need_each_other_are_checked_with_a_sentence(made, sentence):
    with pytest.raises(msgspec.ValidationError, match=sentence):
        check(bundle(rules=[made]))


def test_a_breaker_on_slow_calls_needs_a_window_and_counts_from_one():
    slow = {"scope": "tool", "latency_threshold_ms": 2000, "window_ms": 60000, "on_trip": "BLOCK"}
    made = msgspec.to_builtins(check(rule("breaker", effect={"breaker": slow}), Rule))
    assert made["effect"]["breaker"] == {**slow, "latency_count": 1}
    del slow["window_ms"]
    with pytest.raises(msgspec.ValidationError, match="needs `window` or `window_ms`"):
        check(rule("breaker", effect={"breaker": slow}), Rule)


def test_throttle_is_the_only_limit_that_needs_a_backoff():
    made = effect_with("rate_limit", on_limit="BLOCK")
    del made["effect"]["rate_limit"]["backoff_ms"]
    check(bundle(rules=[made]))


def test_two_rules_cannot_share_an_id():
    with pytest.raises(msgspec.ValidationError, match="unique"):
        check(bundle(rules=[rule("deny"), rule("allow", rule_id="a-deny")]))


@pytest.mark.parametrize(
    ("written", "hours"),
    [
        ([], []),
        ([5, 3, 5], [3, 5]),
        (["9-17"], [9, 10, 11, 12, 13, 14, 15, 16, 17]),
        (["22-2", 12], [0, 1, 2, 12, 22, 23]),
        (["7-7"], [7]),
        (["0-23"], list(range(24))),
        (["08-09"], [8, 9]),
    ],
)
def test_hours_are_listed_one_by_one(written, hours):
    assert expand_hours(written) == hours


def test_a_snapshot_is_the_bundle_with_its_format_and_hash():
    snapshot = {**bundle(), "snapshot_format": 1, "policy_hash": "a" * 64}
    check(snapshot, Snapshot)
    for fault in ({"policy_hash": "abc"}, {"snapshot_format": 2}):
        with pytest.raises(msgspec.ValidationError):
            check({**snapshot, **fault}, Snapshot)


# Named by the interface pack, so on no page of additions.
PACK = {
    "run", "tool", "server_tool", "scope", "limit_calls", "limit_cost_units", "on_exceed", "cost_units_per_call",
    "has_keys", "key_equals", "key_in", "numeric_range",
}  # fmt: skip


def test_every_addition_is_on_the_page_of_its_version() -> None:
    source = (places.ROOT / "src" / "subluminal" / "contracts" / "policy.py").read_text()
    page = (places.ROOT / "docs" / "contracts" / "0.2.0.md").read_text()
    added = set(re.findall(r"(?m)^    ([a-z_]+): (?:Duration|.*# (?:.*\b)?additive)", source))
    assert {"fail_open_classes", "any_of", "unless", "key_args", "override", "window", "backoff"} <= added
    added |= {"max_legs", *get_args(Scope), *CostFrom.__struct_fields__}
    added |= {*Budget.__struct_fields__, *ArgsMatch.__struct_fields__}
    assert {name for name in added - PACK if not re.search(rf"\b{name}\b", page)} == set()
