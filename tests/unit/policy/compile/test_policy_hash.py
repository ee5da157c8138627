"""`policy_hash`: the same for the same meaning, another for any other value or order."""

from __future__ import annotations

import hashlib
import json
import random
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from harness import places
from subluminal.contracts.policy import Snapshot
from subluminal.policy.compile.bundle import compile_bundle, snapshot_bytes

BUNDLE: dict[str, Any] = {
    "policy_id": "p",
    "version": "1",
    "mode": "guardrails",
    "defaults": {"decision_on_error": "BLOCK"},
    "selectors": {"env": ["ci", "prod"], "workload": {"labels": {"team": "a"}, "repo": ["x/y"]}},
    "description": "one rule of each kind",
    "owner": "ops",
    "created_at": "2026-01-31T12:00:00Z",
    "rules": [
        {
            "rule_id": "tag",
            "kind": "tag",
            "enabled": True,
            "severity": "info",
            "match": {"server_name": {"regex": ["^git"]}},
            "effect": {"tag": {"add_risk_class": ["write_like"]}},
        },
        {
            "rule_id": "deny",
            "kind": "deny",
            "enabled": True,
            "severity": "critical",
            "description": "no",
            "match": {
                "tool_name": {"glob": ["rm", "del*"]},
                "risk_class": ["write_like"],
                "args": {
                    "has_keys": ["path"],
                    "key_equals": {"force": True, "n": 1.5},
                    "key_in": {"mode": ["a", 2, False]},
                    "numeric_range": {"size": {"min": 1, "max": 9.25}},
                },
                "time": {"utc_hours": [1, 22]},
            },
            "effect": {"action": "REJECT_WITH_HINT", "message": "m", "suggested_args": {"a": {"b": [1, None]}}},
        },
        {
            "rule_id": "budget",
            "kind": "budget",
            "enabled": False,
            "severity": "warn",
            "match": {},
            "effect": {"budget": {"scope": "run", "limit_calls": 5, "on_exceed": "BLOCK"}},
        },
        {
            "rule_id": "rate",
            "kind": "rate_limit",
            "enabled": True,
            "severity": "warn",
            "match": {},
            "effect": {
                "rate_limit": {
                    "scope": "tool",
                    "capacity": 5,
                    "refill_tokens": 1,
                    "refill_period_ms": 10,
                    "on_limit": "THROTTLE",
                    "backoff_ms": 50,
                }
            },
        },
        {
            "rule_id": "breaker",
            "kind": "breaker",
            "enabled": True,
            "severity": "warn",
            "match": {},
            "effect": {
                "breaker": {
                    "scope": "server_tool",
                    "error_threshold": 3,
                    "window_ms": 10,
                    "repeat_threshold": 4,
                    "repeat_window_ms": 20,
                    "latency_threshold_ms": 7,
                    "on_trip": "TERMINATE_RUN",
                    "terminate_code": "LOOP",
                }
            },
        },
        {
            "rule_id": "dedupe",
            "kind": "dedupe",
            "enabled": True,
            "severity": "warn",
            "match": {},
            "effect": {"dedupe": {"scope": "run", "window_ms": 9, "on_duplicate": "BLOCK", "hint_text": "h"}},
        },
    ],
}


def policy_hash(bundle: dict[str, Any]) -> str:
    return str(compile_bundle(json.dumps(bundle).encode(), "p.json")["policy_hash"])


def shuffled(value: Any, rng: random.Random) -> Any:
    if isinstance(value, dict):
        keys = list(value)
        rng.shuffle(keys)
        return {key: shuffled(value[key], rng) for key in keys}
    return [shuffled(item, rng) for item in value] if isinstance(value, list) else value


def leaves(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    if isinstance(value, dict) and value:
        return [leaf for key, item in value.items() for leaf in leaves(item, (*path, key))]
    if isinstance(value, list) and value:
        return [leaf for index, item in enumerate(value) for leaf in leaves(item, (*path, index))]
    return [path] if not isinstance(value, dict | list) else []


def with_value(bundle: dict[str, Any], path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    copy: dict[str, Any] = json.loads(json.dumps(bundle))
    place: Any = copy
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    return copy


WORDS = {
    "mode": ["observe", "guardrails", "control"],
    "severity": ["info", "warn", "critical"],
    "decision_on_error": ["ALLOW", "BLOCK"],
    "scope": ["run", "tool", "server_tool"],
    "action": ["BLOCK", "REJECT_WITH_HINT"],
    "on_exceed": ["BLOCK", "TERMINATE_RUN"],
    "on_limit": ["THROTTLE", "BLOCK"],
    "on_trip": ["BLOCK", "TERMINATE_RUN"],
    "on_duplicate": ["BLOCK", "REJECT_WITH_HINT"],
    "env": ["dev", "ci", "prod"],
    "created_at": ["2026-01-31T12:00:00Z", "2026-01-31T12:00:01Z"],
    "regex": ["^git", "^hg"],
}


def other(path: tuple[Any, ...], value: Any) -> Any:
    """Another value that is legal in this place."""
    name = next(step for step in reversed(path) if isinstance(step, str))
    if name in WORDS:
        return next(word for word in WORDS[name] if word != value)
    if isinstance(value, bool):
        return not value
    return value + 1 if isinstance(value, int | float) else (value or "") + "x"


@pytest.mark.parametrize("path", [p for p in leaves(BUNDLE) if p[-1] != "kind"], ids=lambda p: ".".join(map(str, p)))
def test_any_changed_value_changes_the_hash(path: tuple[Any, ...]) -> None:
    value: Any = BUNDLE
    for step in path:
        value = value[step]
    assert policy_hash(with_value(BUNDLE, path, other(path, value))) != policy_hash(BUNDLE)


@given(seed=st.integers(0, 2**32))
@settings(max_examples=25, deadline=None, derandomize=True)
def test_key_order_and_layout_do_not_change_the_hash(seed: int) -> None:
    rng = random.Random(seed)
    same = shuffled(BUNDLE, rng)
    flow = rng.choice([True, False, None])
    text = yaml.safe_dump(same, sort_keys=False, default_flow_style=flow, width=rng.choice([20, 200]), indent=4)
    # PyYAML writes YAML 1.1, where 1e3 and the like differ; none of it occurs here.
    assert compile_bundle(b"# comment\n" + text.encode(), "p.yaml")["policy_hash"] == policy_hash(BUNDLE)
    indented = json.dumps(same, indent=rng.choice([None, 1, "\t"]), ensure_ascii=rng.choice([True, False]))
    assert compile_bundle(indented.encode(), "p.json")["policy_hash"] == policy_hash(BUNDLE)


@given(order=st.permutations(range(len(BUNDLE["rules"]))))
@settings(max_examples=25, deadline=None, derandomize=True)
def test_the_order_of_rules_counts(order: list[int]) -> None:
    moved = {**BUNDLE, "rules": [BUNDLE["rules"][index] for index in order]}
    assert (policy_hash(moved) == policy_hash(BUNDLE)) == (order == sorted(order))


def test_a_default_written_out_is_the_default() -> None:
    spelled = with_value(BUNDLE, ("defaults", "fail_open_read_tools"), False)
    spelled = with_value(spelled, ("defaults", "max_legs"), 32)
    spelled = with_value(spelled, ("rules", 2, "effect", "budget", "cost_units_per_call"), 1)
    spelled = with_value(spelled, ("rules", 5, "effect", "dedupe", "key"), "args_hash")
    assert policy_hash(spelled) == policy_hash(BUNDLE)


def test_another_number_of_legs_is_another_policy() -> None:
    assert policy_hash(with_value(BUNDLE, ("defaults", "max_legs"), 31)) != policy_hash(BUNDLE)


def test_spellings_of_one_match_have_one_hash() -> None:
    globs = with_value(BUNDLE, ("rules", 1, "match", "tool_name", "glob"), ["rm", "del**", "del*"])
    hours = with_value(BUNDLE, ("rules", 1, "match", "time", "utc_hours"), ["22-22", 1, "1-1"])
    number = with_value(BUNDLE, ("rules", 4, "effect", "breaker", "window_ms"), 10)
    assert policy_hash(globs) == policy_hash(hours) == policy_hash(number) == policy_hash(BUNDLE)


def test_true_and_1_are_different_values() -> None:
    one = with_value(BUNDLE, ("rules", 1, "match", "args", "key_equals", "force"), 1)
    assert policy_hash(one) != policy_hash(BUNDLE)


def test_the_snapshot_has_the_contracts_shape_and_hashes_to_its_name() -> None:
    snapshot = compile_bundle(json.dumps(BUNDLE).encode(), "p.json")
    msgspec.convert(snapshot, Snapshot)
    body = {key: value for key, value in snapshot.items() if key != "policy_hash"}
    # Plain JSON with sorted keys is the canonical form here: this bundle holds nothing on which they differ.
    canonical = json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    assert snapshot_bytes(snapshot) == canonical
    assert snapshot["policy_hash"] == hashlib.sha256(canonical).hexdigest()


def test_all_defaults_are_stated() -> None:
    snapshot = compile_bundle(json.dumps(BUNDLE).encode(), "p.json")
    rules = {rule["rule_id"]: rule for rule in snapshot["rules"]}
    assert snapshot["snapshot_format"] == 1
    assert snapshot["defaults"] == {"decision_on_error": "BLOCK", "fail_open_read_tools": False}
    assert rules["budget"]["effect"]["budget"]["cost_units_per_call"] == 1
    assert rules["rate"]["effect"]["rate_limit"]["cost_tokens_per_call"] == 1
    assert rules["breaker"]["effect"]["breaker"]["latency_count"] == 1
    assert rules["dedupe"]["effect"]["dedupe"]["key"] == "args_hash"
    assert rules["deny"]["effect"]["reason_code"] == "DENYLIST_MATCH"


# As version 0.1.0 of the contracts hashed them: what a policy says without the additions is the same policy.
RECORDED = {
    "allow_all.yaml": "b7bbb1f728d04e13c2802a33052c9abd801cd4dcfe06a2ecdc965c0ca3c43bfc",
    "breaker_repeat_five.yaml": "2b8abbd8eb8d009e1871c6a40291c24b748605230209d2f6468d4839aa43cf9e",
    "budget_three_calls.yaml": "56d4df854bc665c2cc808f606c1bb884449741a48013c93c7c631249d54ba209",
    "dedupe_writes.yaml": "3daa3ebca8a877d8a9f5491fe6a0302f8b87594c1c2b811c167de4c46b709103",
    "deny_above_allow.yaml": "69f54b23aca2db8a9432b6362b411efbe47fafd54222b0cb3f40dbb8c2775e1d",
    "examples/argument-guard.yaml": "0126f3e1051cf3fcb2b37362e9043ea3c2dc4574f5ffe7b3ef550a5606ae71c2",
    "examples/prod-read-only.yaml": "f83d991f90a7980d80a3da6589bfaf9164c2c6e0401232abb45995304862ada4",
    "examples/runaway.yaml": "3c4c070d4f07bdc8d2f9c6e97ad283ec4b361047de4b104fc9f422cfe4199eb1",
    "observe_deny.yaml": "5d871d5d500373f75b7f132694e44aa280c4dae9887cbdf2a125834df4b6a7ca",
    "tag_then_deny.yaml": "e0fd870a704ab7d1b6ef4a5002b7f955ef2fa00ae237858610d9af71d7543774",
    "throttle_two.yaml": "48dd53b0a309a75fdb359c9cd851ffa4f4c73c2fb0f58790761c0f3fabd2086f",
}


@pytest.mark.parametrize("name", RECORDED)
def test_a_policy_of_the_first_version_keeps_its_hash(name: str) -> None:
    source = (places.FIXTURES / "policies" / name).read_bytes()
    assert compile_bundle(source, name)["policy_hash"] == RECORDED[name]


def test_one_rule_of_each_kind_keeps_the_hash_of_the_first_version() -> None:
    assert policy_hash(BUNDLE) == "316288e67a45db84b2541afa5522f5d7d8dd98e1c138981564661f1dc044ab96"
