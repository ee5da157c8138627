"""The checked-in JSON Schemas are current, valid, and say what the types say."""

from __future__ import annotations

import copy
import json
import subprocess
import sys

import jsonschema
import msgspec
import pytest
import yaml

from harness import places
from subluminal.contracts.policy import Bundle
from subluminal.policy.compile.bundle import compile_bundle

ROOT = places.ROOT
EVENTS = [json.loads(line) for line in (ROOT / "tests/fixtures/events.jsonl").read_text("utf-8").splitlines()]
POLICIES = sorted((ROOT / "tests/fixtures/policies").glob("*.yaml"))
SCHEMAS = {path.name: json.loads(path.read_text("utf-8")) for path in sorted((ROOT / "schema").glob("*.json"))}


def accepts(name, value):
    return jsonschema.Draft202012Validator(SCHEMAS[name]).is_valid(value)


def test_the_checked_in_schemas_are_current():
    command = [sys.executable, ROOT / "tools/generate_schemas.py", "--check"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, f"{result.stderr}run: python tools/generate_schemas.py"


@pytest.mark.parametrize("name", SCHEMAS)
def test_every_schema_is_a_valid_schema(name):
    jsonschema.Draft202012Validator.check_schema(SCHEMAS[name])


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event["type"])
def test_example_events_validate_and_broken_ones_do_not(event):
    assert accepts("event.json", event)
    assert accepts("event.json", {**event, "from_the_future": 1})
    for fault in ({"type": "tool_call_middle"}, {"client": "vim"}, {"ts": "now"}, {"source": {}}):
        assert not accepts("event.json", {**event, **fault})
    for member in ("v", "type", "run_id", "source"):
        assert not accepts("event.json", {key: value for key, value in event.items() if key != member})


@pytest.mark.parametrize("member", ["backoff_ms", "hint", "terminate"])
def test_a_decision_without_what_its_action_brings_does_not_validate(member):
    event = copy.deepcopy(next(event for event in EVENTS if member in event.get("decision", {})))
    del event["decision"][member]
    assert not accepts("event.json", event)


@pytest.mark.parametrize("path", POLICIES, ids=lambda path: path.stem)
def test_real_bundles_validate_for_the_schema_and_for_the_types(path):
    bundle = yaml.safe_load(path.read_text("utf-8"))
    msgspec.convert(bundle, Bundle)
    assert accepts("policy-bundle.json", bundle)
    snapshot = {**bundle, "snapshot_format": 1, "policy_hash": "0" * 64}
    assert accepts("policy-snapshot.json", snapshot)
    assert not accepts("policy-snapshot.json", bundle)
    assert not accepts("policy-bundle.json", snapshot)


@pytest.mark.parametrize(
    ("kind", "effect"),
    [
        ("budget", {"scope": "run", "on_exceed": "BLOCK"}),
        (
            "rate_limit",
            {"scope": "run", "capacity": 1, "refill_tokens": 1, "refill_period_ms": 1, "on_limit": "THROTTLE"},
        ),
        ("breaker", {"scope": "run", "on_trip": "BLOCK"}),
        ("breaker", {"scope": "run", "on_trip": "BLOCK", "error_threshold": 1}),
        ("breaker", {"scope": "run", "on_trip": "BLOCK", "repeat_threshold": 1, "window_ms": 1}),
        ("rate_limit", {"scope": "run", "capacity": 1, "refill_tokens": 1, "on_limit": "BLOCK"}),
        ("breaker", {"scope": "run", "on_trip": "BLOCK", "latency_threshold": "1s"}),
        ("dedupe", {"scope": "run", "on_duplicate": "BLOCK"}),
        ("dedupe", {"scope": "run", "window_ms": 1, "key": "custom", "on_duplicate": "BLOCK"}),
        ("dedupe", {"scope": "run", "window_ms": 1, "key_args": ["path"], "on_duplicate": "BLOCK"}),
    ],
)
def test_the_schema_refuses_what_the_types_refuse_beyond_single_fields(kind, effect):
    bundle = bundle_with({"kind": kind, "match": {}, "effect": {kind: effect}})
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(bundle, Bundle)
    assert not accepts("policy-bundle.json", bundle)


def bundle_with(rule):
    return {
        "policy_id": "p",
        "version": "1",
        "mode": "observe",
        "defaults": {"decision_on_error": "ALLOW"},
        "selectors": {},
        "rules": [{"rule_id": "r", **rule}],
    }


AS_PEOPLE_WRITE = [
    {"kind": "dedupe", "effect": {"dedupe": {"scope": "run", "window": "1h", "on_duplicate": "BLOCK"}}},
    {"kind": "budget", "effect": {"budget": {"scope": "run", "limit_calls": 5, "window": "1h", "on_exceed": "BLOCK"}}},
    {
        "kind": "deny",
        "match": {
            "args": {"key_glob": {"path": "*"}, "bytes": {"max": "10MiB"}, "numeric_range": {"n": {"min": "1KB"}}}
        },
        "unless": {"any_of": [{"args": {"command": {"c": {"programs": "rm"}}}}, {"time": {"utc_hours": ["9-17"]}}]},
        "effect": {"action": "BLOCK"},
    },
]


@pytest.mark.parametrize("rule", AS_PEOPLE_WRITE, ids=lambda rule: rule["kind"])
def test_a_snapshot_has_none_of_the_spellings_that_a_bundle_may_have(rule):
    written = bundle_with({"match": {}, **rule})
    assert accepts("policy-bundle.json", written)
    compiled = compile_bundle(json.dumps(written).encode(), "p.json")
    assert accepts("policy-snapshot.json", compiled)
    spelled = {**compiled, "rules": [{**compiled["rules"][0], **rule}]}
    assert not accepts("policy-snapshot.json", spelled)


def test_a_time_that_is_given_twice_does_not_validate():
    for written in AS_PEOPLE_WRITE[:2]:
        twice = copy.deepcopy(written)
        twice["effect"][twice["kind"]]["window_ms"] = 3_600_000
        assert not accepts("policy-bundle.json", bundle_with({"match": {}, **twice}))


def test_secret_bindings_validate_and_values_have_no_place_in_them():
    binding = {"inject_as": "GITHUB_TOKEN", "secret_ref": "github_token", "source": "env"}
    assert accepts("secret-bindings.json", {"server_name": "github", "secret_bindings": [binding]})
    assert not accepts(
        "secret-bindings.json", {"server_name": "github", "secret_bindings": [{**binding, "value": "x"}]}
    )
