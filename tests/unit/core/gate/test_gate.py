"""The gate: one decision per call, its events once and in order, counts that add up, no open door when all fails."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest

from harness.engine import compiled, rule, tools
from subluminal.contracts.canonical import canonical_bytes
from subluminal.contracts.events import decode_event
from subluminal.contracts.identity import Identity, Source
from subluminal.contracts.toolcall import ToolCall
from subluminal.core.engine.stack import Engine, Stack
from subluminal.core.engine.state import LocalState
from subluminal.core.gate.gate import Gate
from subluminal.core.gate.masking import MAX_NAMES
from subluminal.core.gate.record import CallRecord
from subluminal.core.redact.redactor import Redactor

WALL = 1_700_000_000_000


def make(*rules: dict[str, Any], mode: str = "guardrails", secrets: list[Any] | None = None, **members: Any) -> Gate:
    identity = Identity("run")
    stack = Stack([Engine(compiled(*rules, mode=mode, **members), identity)])
    gate = Gate(identity, Source("h", "p", "s"), stack, LocalState(), Redactor(secrets or [], []))
    gate.open(WALL, 1000)
    return gate


def ask(gate: Gate, tool: str = "t", args: bytes | None = b"{}", **more: Any) -> CallRecord:
    return gate.judge(ToolCall("srv", tool, args, 10, "mcp_stdio", **more), WALL, 2000)


def settle(gate: Gate, record: CallRecord, status: str = "OK", **more: Any) -> None:
    gate.settle(record, status, WALL, 3000, latency_ms=5, **more)


def events(gate: Gate) -> list[dict[str, Any]]:
    lines = gate.take().splitlines(keepends=True)
    for line in lines:
        decode_event(line)
    return [json.loads(line) for line in lines]


def test_a_call_is_start_decision_end_in_this_order_and_once() -> None:
    gate = make()
    record = ask(gate)
    gate.announce(record, WALL)
    gate.announce(record, WALL)
    settle(gate, record)
    settle(gate, record, "ERROR")
    assert [e["type"] for e in events(gate)] == ["run_start", "tool_call_start", "tool_call_decision", "tool_call_end"]


def test_settling_announces_what_was_not_announced() -> None:
    gate = make()
    settle(gate, ask(gate))
    assert [e["type"] for e in events(gate)][1:] == ["tool_call_start", "tool_call_decision", "tool_call_end"]


def test_the_hash_is_that_of_the_canonical_arguments() -> None:
    gate = make()
    record = ask(gate, args=b'{"b": 1.0, "a":"\\u00e9"}')
    gate.announce(record, WALL)
    expected = hashlib.sha256(canonical_bytes(b'{"b": 1.0, "a":"\\u00e9"}')).hexdigest()
    assert {e["call"]["args_hash"] for e in events(gate)[1:]} == {expected}


def test_counts_add_up_at_the_end() -> None:
    bucket = {"scope": "tool", "capacity": 1, "refill_tokens": 1, "refill_period_ms": 60_000, "backoff_ms": 500}
    slow = rule("slow", "rate_limit", tools("fast"), on_limit="THROTTLE", **bucket)
    gate = make(rule("no", "deny", tools("bad")), slow)
    for tool in ("ok", "bad", "fast", "fast", "ok"):
        record = ask(gate, tool)
        if record.decision.action == "ALLOW":
            settle(
                gate,
                record,
                "ERROR" if tool == "ok" else "OK",
                error={"class": "unknown", "message": "x"} if tool == "ok" else None,
            )
        else:
            gate.settle_refused(record, WALL, 3000, 100)
    gate.close("SUCCEEDED", WALL, 5000)
    gate.close("FAILED", WALL, 6000)
    ended = [e["run"] for e in events(gate) if e["type"] == "run_end"]
    assert len(ended) == 1
    assert ended[0]["summary"] == {
        "calls_total": 5,
        "calls_allowed": 3,
        "calls_blocked": 1,
        "calls_throttled": 1,
        "errors_total": 2,
        "duration_ms": 4000,
    }


@pytest.mark.parametrize("mode", ["observe", "guardrails", "control"])
def test_no_policy_at_all_refuses_everything_in_every_mode(mode: str) -> None:
    gate = make(mode=mode)
    gate.refuse_all("no policy")
    assert gate.may_refuse
    record = ask(gate)
    assert (record.decision.action, record.decision.reason_code) == ("BLOCK", "POLICY_INVALID")
    gate.use_policies(gate.stack, "file", WALL)
    assert ask(gate).decision.action == "ALLOW"


@pytest.mark.parametrize(
    ("mode", "action"), [("observe", "ALLOW"), ("guardrails", "BLOCK"), ("control", "REJECT_WITH_HINT")]
)
def test_a_fault_of_ours_opens_no_door(mode: str, action: str, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = make(mode=mode)
    monkeypatch.setattr(Stack, "judge", lambda *_: 1 / 0)
    record = ask(gate)
    assert record.decision.action == action
    assert (record.decision.would or record.decision).reason_code == "EVALUATION_ERROR"


@pytest.mark.parametrize(
    ("defaults", "tool", "action"),
    [
        ({"decision_on_error": "ALLOW"}, "put", "ALLOW"),
        ({"decision_on_error": "BLOCK"}, "get", "BLOCK"),
        ({"decision_on_error": "BLOCK", "fail_open_read_tools": True}, "get", "ALLOW"),
        ({"decision_on_error": "BLOCK", "fail_open_read_tools": True}, "put", "BLOCK"),
        ({"decision_on_error": "BLOCK", "fail_open_classes": ["harmless"]}, "put", "ALLOW"),
        ({"decision_on_error": "BLOCK", "fail_open_classes": ["write_like"]}, "put", "BLOCK"),
    ],
)
def test_a_fault_of_ours_falls_to_decision_on_error(
    defaults: dict[str, Any], tool: str, action: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules = (
        rule("reads", "tag", {"tool_name": {"glob": ["get"]}}, add_risk_class=["read_like"]),
        rule("writes", "tag", {"tool_name": {"glob": ["put"]}}, add_risk_class=["harmless"]),
    )
    gate = make(*rules, defaults=defaults)
    monkeypatch.setattr(Stack, "judge", lambda *_: 1 / 0)
    record = ask(gate, tool, risk_classes=frozenset({"read_like", "write_like"}))
    assert (record.decision.action, record.decision.reason_code) == (action, "EVALUATION_ERROR")
    assert record.verdict.tags


@pytest.mark.parametrize("ambiguous", [True, False])
def test_failing_open_lets_no_ambiguous_call_through_and_no_terminated_run_go_on(
    ambiguous: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = make(defaults={"decision_on_error": "ALLOW"})
    monkeypatch.setattr(Stack, "judge", lambda *_: 1 / 0)
    if not ambiguous:
        gate.state.terminate("OPERATOR", "enough")
    record = ask(gate, ambiguous="two readings" if ambiguous else None)
    assert record.decision.action == ("BLOCK" if ambiguous else "TERMINATE_RUN")


AMBIGUOUS_ARGS = [
    b'{"a":1,"a":2}',
    b'{"a":"\\ud800"}',
    b'{"a":',
    b'{"a":NaN}',
    b"{} {}",
    b'{"a":"\xff"}',
    b'{"x":{"b":1,"b":1}}',
]


@pytest.mark.parametrize("args", AMBIGUOUS_ARGS)
def test_arguments_with_two_readings_make_the_call_ambiguous(args: bytes) -> None:
    assert ask(make(), args=args).decision.reason_code == "AMBIGUOUS_MESSAGE"
    assert ask(make(mode="observe"), args=args).decision.action == "ALLOW"


@pytest.mark.parametrize(
    "args", [b"[" * 10_000 + b"]" * 10_000, b"[1,2]", b'"text"', b'{"a":1e400}', b"12345678901234567890123"]
)
def test_odd_arguments_with_one_reading_are_judged_without_a_crash(args: bytes) -> None:
    gate = make()
    record = ask(gate, args=args)
    assert record.decision.reason_code != "EVALUATION_ERROR"
    gate.announce(record, WALL)
    settle(gate, record)
    events(gate)


def test_arguments_without_a_canonical_form_are_known_by_their_bytes() -> None:
    loop = rule("loop", "breaker", scope="tool", repeat_threshold=2, repeat_window_ms=1_000, on_trip="BLOCK")
    gate = make(loop)
    deep, deeper = (b'{"a":' + b"[" * levels + b"]" * levels + b"}" for levels in (1_000, 1_001))
    records = [ask(gate, args=args) for args in (deep, deeper, deep, b"{}")]
    assert [record.decision.action for record in records] == ["ALLOW", "ALLOW", "BLOCK", "ALLOW"]
    for record in records:
        gate.announce(record, WALL)
    calls = [event["call"] for event in events(gate) if event["type"] == "tool_call_start"]
    assert (calls[0]["args_hash"], calls[0]["args_raw_hash"]) == ("", hashlib.sha256(deep).hexdigest())
    assert "args_raw_hash" not in calls[3]


def test_arguments_that_were_not_read_fall_to_decision_on_error() -> None:
    sized = rule("args", "deny", {"tool_name": {"glob": ["*"]}, "args": {"has_keys": ["path"]}})
    gate = make(sized)
    record = ask(gate, args=None, args_stream_hash="a" * 64)
    assert record.decision.action == "BLOCK"
    gate.announce(record, WALL)
    call = events(gate)[1]["call"]
    assert (call["args_hash"], call["args_stream_hash"]) == ("", "a" * 64)
    assert call["preview"] == {"truncated": True, "args_preview": "[TRUNCATED]"}


def test_a_further_leg_announces_only_a_new_decision() -> None:
    gate = make()
    record = ask(gate)
    gate.announce(record, WALL)
    events(gate)
    gate.judge_again(record, ToolCall("srv", "t", b"{}", 10), WALL, 2500)
    assert [e["type"] for e in events(gate)] == ["tool_call_decision"]
    assert gate.counts.total == gate.counts.allowed == 1


def test_no_part_of_a_refusal_carries_an_injected_secret() -> None:
    gate = make(rule("no", "deny", tools("*")), secrets=["hunter2-hunter2"])
    record = ask(gate, "hunter2-hunter2", b'{"p":"hunter2-hunter2"}', call_context={"callId": "hunter2-hunter2"})
    code, message, data = gate.refusal(record)
    gate.settle_refused(record, WALL, 3000, 10)
    assert code == -32081
    assert "hunter2" not in message + json.dumps(data) + json.dumps(events(gate))


def test_names_that_an_agent_invents_are_remembered_in_bounded_number() -> None:
    gate = make()
    for number in range(MAX_NAMES + 100):
        ask(gate, f"tool-{number}")
    assert len(gate.masking.names) <= MAX_NAMES


def test_a_lone_surrogate_in_an_ambiguous_name_still_makes_a_line() -> None:
    gate = make()
    gate.announce(ask(gate, "\ud800", ambiguous="x"), WALL)
    assert len(events(gate)) == 3
