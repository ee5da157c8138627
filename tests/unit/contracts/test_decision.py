"""Contract C: the decision object, and the complete error data of every refusal."""

from __future__ import annotations

import json

import jsonschema
import pytest

from harness import places
from subluminal.contracts.decision import Decision, Hint, PolicyRef, refusal_message, subluminal_data
from subluminal.contracts.vocabulary import ACTION_STRICTNESS, ACTIONS, ERROR_CODES, REASON_CODES

SCHEMA = json.loads((places.ROOT / "schema" / "error-data.json").read_text("utf-8"))
POLICY = PolicyRef("team", "1.2.0", "a" * 64)
CALL = {"run_id": "r-1", "call_id": "c-1", "server_name": "git", "tool_name": "push", "args_hash": "b" * 64}
COMMON = {
    "v": "0.2.0",
    "rule_id": "rule-1",
    "reason_code": "REASON",
    "summary": "It is not allowed.",
    "policy": {"policy_id": "team", "policy_version": "1.2.0", "policy_hash": "a" * 64},
    **CALL,
}
HINT = Hint("Push to a branch.", "ARG_FIX", {"branch": "feature"}, "Retry at once.")
HINT_OBJECT = {
    "hint_text": "Push to a branch.",
    "suggested_args": {"branch": "feature"},
    "retry_advice": "Retry at once.",
    "hint_kind": "ARG_FIX",
}


def decision(action, **more):
    return Decision(action, "rule-1", "warn", "REASON", "It is not allowed.", policy=POLICY, **more)


REFUSALS = {
    "BLOCK": (decision("BLOCK"), {}),
    "THROTTLE": (
        decision("THROTTLE", backoff_ms=500, retry_advice="Wait 500 ms."),
        {"backoff_ms": 500, "retry_advice": "Wait 500 ms."},
    ),
    "REJECT_WITH_HINT": (decision("REJECT_WITH_HINT", hint=HINT), {"hint": HINT_OBJECT}),
    "TERMINATE_RUN": (
        decision("TERMINATE_RUN", terminate=("LOOP", "Stopped.")),
        {"terminate": {"terminate_code": "LOOP", "terminate_message": "Stopped."}},
    ),
}


def test_the_reserved_codes_are_those_of_the_pack():
    assert ERROR_CODES == {"BLOCK": -32081, "THROTTLE": -32082, "REJECT_WITH_HINT": -32083, "TERMINATE_RUN": -32084}
    assert {*ERROR_CODES, "ALLOW"} == set(ACTIONS) == set(ACTION_STRICTNESS)
    assert len(set(REASON_CODES)) == len(REASON_CODES)


@pytest.mark.parametrize("action", REFUSALS)
def test_error_data_is_complete_and_nothing_else(action):
    made, extra = REFUSALS[action]
    data = subluminal_data(made, **CALL)
    assert data == {**COMMON, "action": action, **extra}
    jsonschema.validate({"subluminal": data}, SCHEMA)


@pytest.mark.parametrize("member", [*COMMON, "action"])
def test_the_schema_demands_every_field_of_the_error_data(member):
    data = subluminal_data(REFUSALS["BLOCK"][0], **CALL)
    del data[member]
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"subluminal": data}, SCHEMA)


@pytest.mark.parametrize(
    ("action", "member"), [("THROTTLE", "backoff_ms"), ("REJECT_WITH_HINT", "hint"), ("TERMINATE_RUN", "terminate")]
)
def test_the_schema_demands_what_each_action_brings(action, member):
    data = subluminal_data(REFUSALS[action][0], **CALL)
    del data[member]
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"subluminal": data}, SCHEMA)


def test_a_refusal_by_no_rule_has_a_null_rule_id():
    made = Decision("BLOCK", None, "critical", "POLICY_INVALID", "No policy could be loaded.", policy=POLICY)
    data = subluminal_data(made, **CALL)
    assert data["rule_id"] is None
    jsonschema.validate({"subluminal": data}, SCHEMA)


@pytest.mark.parametrize("action", REFUSALS)
def test_the_decision_object_has_its_five_members_and_those_of_its_action(action):
    made, extra = REFUSALS[action]
    expected = {
        "action": action,
        "rule_id": "rule-1",
        "severity": "warn",
        "reason_code": "REASON",
        "summary": "It is not allowed.",
        **{key: value for key, value in extra.items() if key != "retry_advice"},
    }
    assert made.as_dict() == expected


def test_an_allowed_call_cites_no_rule_by_default():
    assert Decision(policy=POLICY).as_dict() == {
        "action": "ALLOW",
        "rule_id": None,
        "severity": "info",
        "reason_code": "DEFAULT_ALLOW",
        "summary": "",
    }


def test_the_message_alone_tells_the_model_what_to_do():
    message = refusal_message(REFUSALS["REJECT_WITH_HINT"][0])
    for part in ("It is not allowed.", "Push to a branch.", "branch", "feature", "Retry at once."):
        assert part in message
    assert "Wait 500 ms." in refusal_message(REFUSALS["THROTTLE"][0])


def test_the_message_stays_within_a_thousand_characters():
    hint = Hint("h" * 5000, "OTHER", {str(n): "v" * 500 for n in range(50)}, "r" * 5000)
    assert len(refusal_message(decision("REJECT_WITH_HINT", hint=hint))) <= 1000
