"""ERR: what a refused client receives. Programs read the data of contract C; many models see only the message."""

from __future__ import annotations

from typing import Any

import pytest

from contract.conftest import Play
from harness.adapters.every import Played
from harness.adapters.interface import ENVIRONMENT, Adapter, Outcome
from harness.shim import load_policy
from subluminal.contracts.vocabulary import HINT_KINDS

MAX_MESSAGE_CHARS = 1000


def last_refusal(played: Played) -> tuple[Outcome, dict[str, Any]]:
    """What the client got for the last call, and its decision, checked against each other."""
    outcome, data = played.outcomes[-1], played.outcomes[-1].data
    event = played.events.events_of("tool_call_decision")[-1]
    assert data["v"] == "0.2.0"
    assert data["run_id"] == event["run_id"]
    for field in ("call_id", "server_name", "tool_name", "args_hash"):
        assert data[field] == event["call"][field], field
    for field in ("action", "rule_id", "policy"):
        assert data[field] == event["decision"][field], field
    for field in ("reason_code", "summary"):
        assert data[field] == event["decision"]["explain"][field], field
    assert set(data["policy"]) == {"policy_id", "policy_version", "policy_hash"}
    assert len(data["policy"]["policy_hash"]) == 64
    assert 0 < len(outcome.message) <= MAX_MESSAGE_CHARS
    return outcome, event["decision"]


@pytest.mark.contract("ERR-001", "ADAPT-003")
def test_block_answers_with_its_code_and_the_structured_data(play: Play) -> None:
    outcome, _ = last_refusal(play("deny_above_allow.yaml", ("delete_issue", {"id": 7})))
    assert outcome.code == -32081
    data = outcome.data
    assert (data["action"], data["rule_id"], data["reason_code"]) == ("BLOCK", "no-deletes", "DESTRUCTIVE")
    assert (data["server_name"], data["tool_name"]) == ("linear", "delete_issue")
    assert "Deleting is not allowed." in outcome.message


@pytest.mark.contract("ERR-001")
def test_the_data_names_the_run_that_the_environment_gave(adapter: Adapter, play: Play) -> None:
    adapter.need(ENVIRONMENT)
    played = play("deny_above_allow.yaml", ("delete_issue", {"id": 7}), env={"SUB_RUN_ID": "run-err"})
    assert last_refusal(played)[0].data["run_id"] == "run-err"


@pytest.mark.contract("ERR-002", "ADAPT-003")
def test_throttle_answers_with_its_code_and_the_backoff_of_the_decision(play: Play) -> None:
    outcome, decision = last_refusal(play("throttle_two.yaml", *[("search", {"q": number}) for number in range(3)]))
    assert outcome.code == -32082
    assert outcome.data["action"] == "THROTTLE"
    assert isinstance(outcome.data["backoff_ms"], int)
    assert outcome.data["backoff_ms"] == decision["backoff_ms"] >= 500


@pytest.mark.contract("ERR-003", "ADAPT-003")
def test_reject_with_hint_answers_with_its_code_and_a_hint(play: Play) -> None:
    bundle = load_policy("budget_three_calls.yaml")
    bundle["rules"][0]["effect"]["budget"]["on_exceed"] = "REJECT_WITH_HINT"
    outcome, decision = last_refusal(play(bundle, *[("search", {"q": number}) for number in range(4)]))
    assert outcome.code == -32083
    assert outcome.data["action"] == "REJECT_WITH_HINT"
    hint = outcome.data["hint"]
    assert hint == decision["hint"]
    assert hint["hint_text"] == "Work with the results you have."
    assert hint["hint_kind"] in HINT_KINDS
    assert hint["suggested_args"] is None or isinstance(hint["suggested_args"], dict)
    assert hint["retry_advice"] is None or isinstance(hint["retry_advice"], str)
    assert "Work with the results you have." in outcome.message, "some clients show the model the message alone"


@pytest.mark.contract("ERR-003")
def test_control_mode_turns_a_block_into_a_hint(play: Play) -> None:
    bundle = {**load_policy("deny_above_allow.yaml"), "mode": "control"}
    outcome, _ = last_refusal(play(bundle, ("delete_issue", {"id": 7})))
    assert outcome.code == -32083
    assert outcome.data["hint"]["hint_text"]
    assert outcome.data["hint"]["hint_kind"] in HINT_KINDS


@pytest.mark.contract("ERR-003")
def test_a_hint_is_announced_as_an_event_of_its_own(play: Play) -> None:
    bundle = load_policy("budget_three_calls.yaml")
    bundle["rules"][0]["effect"]["budget"].update(on_exceed="REJECT_WITH_HINT", limit_calls=1)
    played = play(bundle, ("search", {"q": 1}), ("search", {"q": 2}))
    (issued,) = played.events.events_of("hint_issued")
    data = played.outcomes[1].data
    assert issued["call"]["call_id"] == data["call_id"]
    assert issued["hint"] == data["hint"]
