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
        ("dedupe", {"scope": "run", "window_ms": 1, "key": "custom", "on_duplicate": "BLOCK"}),
    ],
)
def test_the_schema_refuses_what_the_types_refuse_beyond_single_fields(kind, effect):
    rule = {"rule_id": "r", "kind": kind, "enabled": True, "severity": "info", "match": {}, "effect": {kind: effect}}
    bundle = {
        "policy_id": "p",
        "version": "1",
        "mode": "observe",
        "defaults": {"decision_on_error": "ALLOW"},
        "selectors": {},
        "rules": [rule],
    }
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(bundle, Bundle)
    assert not accepts("policy-bundle.json", bundle)


def test_secret_bindings_validate_and_values_have_no_place_in_them():
    binding = {"inject_as": "GITHUB_TOKEN", "secret_ref": "github_token", "source": "env"}
    assert accepts("secret-bindings.json", {"server_name": "github", "secret_bindings": [binding]})
    assert not accepts(
        "secret-bindings.json", {"server_name": "github", "secret_bindings": [{**binding, "value": "x"}]}
    )
