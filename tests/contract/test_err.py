"""ERR: what a refused agent receives. Programs read `error.data.subluminal`; many models see only `error.message`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.driver import Message
from harness.fake_server import fake_server
from harness.shim import Shim, load_policy
from harness.sink import EventDict
from subluminal.contracts.vocabulary import HINT_KINDS

MAX_MESSAGE_CHARS = 1000


def last_refusal(
    tmp_path: Path, policy: str | dict[str, Any], *calls: tuple[str, Any]
) -> tuple[Message, EventDict, dict[str, Any]]:
    """The error object of the last call, its decision event, and the data for programs, checked against each other."""
    setup = Shim(tmp_path, "linear", fake_server(tools={"*": {}}), policy=policy, env={"SUB_RUN_ID": "run-err"})
    error = setup.run(*calls)[-1]["error"]
    event = setup.events.events_of("tool_call_decision")[-1]
    data = error["data"]["subluminal"]
    assert data["v"] == "0.1.0"
    assert data["run_id"] == "run-err"
    for field in ("call_id", "server_name", "tool_name", "args_hash"):
        assert data[field] == event["call"][field], field
    for field in ("action", "rule_id", "policy"):
        assert data[field] == event["decision"][field], field
    for field in ("reason_code", "summary"):
        assert data[field] == event["decision"]["explain"][field], field
    assert len(data["policy"]["policy_hash"]) == 64
    assert 0 < len(error["message"]) <= MAX_MESSAGE_CHARS
    return error, event, data


@pytest.mark.contract("ERR-001")
def test_block_answers_with_its_code_and_the_structured_data(tmp_path: Path) -> None:
    error, _, data = last_refusal(tmp_path, "deny_above_allow.yaml", ("delete_issue", {"id": 7}))
    assert error["code"] == -32081
    assert (data["action"], data["rule_id"], data["reason_code"]) == ("BLOCK", "no-deletes", "DESTRUCTIVE")
    assert (data["server_name"], data["tool_name"]) == ("linear", "delete_issue")
    assert "Deleting is not allowed." in error["message"]


@pytest.mark.contract("ERR-002")
def test_throttle_answers_with_its_code_and_the_backoff_of_the_decision(tmp_path: Path) -> None:
    calls = [("search", {"q": number}) for number in range(3)]
    error, event, data = last_refusal(tmp_path, "throttle_two.yaml", *calls)
    assert error["code"] == -32082
    assert data["action"] == "THROTTLE"
    assert isinstance(data["backoff_ms"], int)
    assert data["backoff_ms"] == event["decision"]["backoff_ms"] >= 500


@pytest.mark.contract("ERR-003")
def test_reject_with_hint_answers_with_its_code_and_a_hint(tmp_path: Path) -> None:
    bundle = load_policy("budget_three_calls.yaml")
    bundle["rules"][0]["effect"]["budget"]["on_exceed"] = "REJECT_WITH_HINT"
    error, event, data = last_refusal(tmp_path, bundle, *[("search", {"q": number}) for number in range(4)])
    assert error["code"] == -32083
    assert data["action"] == "REJECT_WITH_HINT"
    hint = data["hint"]
    assert hint == event["decision"]["hint"]
    assert hint["hint_text"] == "Work with the results you have."
    assert hint["hint_kind"] in HINT_KINDS
    assert hint["suggested_args"] is None or isinstance(hint["suggested_args"], dict)
    assert hint["retry_advice"] is None or isinstance(hint["retry_advice"], str)
    assert "Work with the results you have." in error["message"], "some clients show the model the message alone"


@pytest.mark.contract("ERR-003")
def test_control_mode_turns_a_block_into_a_hint(tmp_path: Path) -> None:
    bundle = {**load_policy("deny_above_allow.yaml"), "mode": "control"}
    error, _, data = last_refusal(tmp_path, bundle, ("delete_issue", {"id": 7}))
    assert error["code"] == -32083
    assert data["hint"]["hint_text"]
    assert data["hint"]["hint_kind"] in HINT_KINDS


@pytest.mark.contract("ERR-003")
def test_a_hint_is_announced_as_an_event_of_its_own(tmp_path: Path) -> None:
    bundle = load_policy("budget_three_calls.yaml")
    bundle["rules"][0]["effect"]["budget"].update(on_exceed="REJECT_WITH_HINT", limit_calls=1)
    setup = Shim(tmp_path, "linear", fake_server(tools={"*": {}}), policy=bundle)
    replies = setup.run(("search", {"q": 1}), ("search", {"q": 2}))
    (issued,) = setup.events.events_of("hint_issued")
    data = replies[1]["error"]["data"]["subluminal"]
    assert issued["call"]["call_id"] == data["call_id"]
    assert issued["hint"] == data["hint"]
