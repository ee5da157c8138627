"""The SDK middleware driven with the contexts the SDK gives it: every way a call can begin and end."""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.in_process import POLICY, isolate
from harness.sink import EventDict, EventFile

pytest.importorskip("mcp.server.mcpserver", reason="mcp 2.x is not installed")

from mcp.shared.exceptions import MCPError
from pydantic import BaseModel

from subluminal.adapters.in_process.calls import Calls, args_text
from subluminal.adapters.in_process.mcp_sdk import SubluminalMiddleware
from subluminal.core.gate.gate import Gate
from subluminal.host.run.state import SharedState
from subluminal.mcp import legs


@pytest.fixture
def events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> EventFile:
    return isolate(tmp_path, monkeypatch)


def call(
    middleware: SubluminalMiddleware, outcome: Any, request_id: Any = 1, method: str = "tools/call", **params: Any
) -> Any:
    async def rest(ctx: Any) -> Any:
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    ctx = SimpleNamespace(method=method, request_id=request_id, params=params or None)
    return asyncio.run(middleware(ctx, rest))


def protected(policy: Any = POLICY, **options: Any) -> SubluminalMiddleware:
    return SubluminalMiddleware("notes", policy, **options)


def only_end(events: EventFile) -> EventDict:
    (end,) = events.events_of("tool_call_end")
    return end


def test_only_requests_for_tools_are_calls(events: EventFile) -> None:
    middleware = protected()
    assert call(middleware, {"ok": 1}, method="ping") == {"ok": 1}
    assert call(middleware, None, None, name="delete_note", arguments={}) is None, "without an id the SDK drops it"
    assert call(middleware, {"ok": 2}, arguments={}) == {"ok": 2}, "without a name the SDK refuses it"
    assert call(middleware, {"tools": "odd"}, method="tools/list") == {"tools": "odd"}
    assert not os.path.exists(events.path), "nothing was judged, so there is no run"
    with pytest.raises(MCPError):
        call(middleware, {}, name="delete_note", arguments={})
    assert len(events.events_of("tool_call_start")) == 1


def test_the_end_is_recorded_as_the_client_will_see_it(events: EventFile) -> None:
    middleware = protected()
    assert call(middleware, {"content": []}, "an-id", name="good") == {"content": []}
    failures: list[tuple[BaseException, int | None]] = [
        (MCPError(-32000, "busy", {"retry": 1}), -32000),
        (LookupError("gone"), 0),
        (RuntimeError(""), 0),
    ]
    for failure, _ in failures:
        with pytest.raises(type(failure)):
            call(middleware, failure, name="bad", arguments={})
    with pytest.raises(asyncio.CancelledError):
        call(middleware, asyncio.CancelledError(), name="stopped", arguments={})
    ends = events.events_of("tool_call_end")
    assert [end["status"] for end in ends] == ["OK", "ERROR", "ERROR", "ERROR", "CANCELLED"]
    assert [end["error"].get("code") for end in ends[1:4]] == [code for _, code in failures]
    assert [end["error"]["message"] for end in ends[1:4]] == ["busy", "gone", "the server answered with an error"]
    assert ends[0]["bytes_out"] == len('{"jsonrpc":"2.0","id":"an-id","result":{"content":[]}}')
    assert ends[1]["bytes_out"] == len(
        '{"jsonrpc":"2.0","id":1,"error":{"code":-32000,"message":"busy","data":{"retry":1}}}'
    )


def test_parameters_the_sdk_refuses_are_recorded_with_its_code(events: EventFile) -> None:
    class Model(BaseModel):
        number: int

    with pytest.raises(ValueError) as caught:
        Model.model_validate({"number": "x"})
    middleware = protected()
    with pytest.raises(ValueError):
        call(middleware, caught.value, name="typed", arguments={"number": "x"})
    assert only_end(events)["error"]["code"] == -32602


def test_sizes_are_those_of_the_compact_message(events: EventFile) -> None:
    middleware = protected()
    params = {"name": "grüße", "arguments": {"a": "\u00e9", "b": [1, 2.5]}, "_meta": {"callId": "c1", "other": 1}}
    call(middleware, {}, 12, **params)
    call(middleware, {}, 13, name="bare")
    first, second = (event["call"] for event in events.events_of("tool_call_start"))
    message = {"jsonrpc": "2.0", "id": 12, "method": "tools/call", "params": params}
    assert first["bytes_in"] == len(json.dumps(message, separators=(",", ":"), ensure_ascii=False).encode())
    assert first["call_context"] == {"callId": "c1"}
    assert second["bytes_in"] == len('{"jsonrpc":"2.0","id":13,"method":"tools/call","params":{"name":"bare"}}')
    assert second["preview"]["args_preview"] == "{}"


@pytest.mark.parametrize(
    ("arguments", "reason_code"),
    [
        ({"x": math.inf}, "AMBIGUOUS_MESSAGE"),
        ({"x": math.nan}, "AMBIGUOUS_MESSAGE"),
        ({"x": "\ud800"}, "AMBIGUOUS_MESSAGE"),
        ({"x": object()}, "UNINSPECTED_ARGS"),
        ({"x": "y" * 2_000_000}, "UNINSPECTED_ARGS"),
    ],
)
def test_arguments_that_cannot_be_read_are_refused_where_a_rule_needs_them(
    events: EventFile, arguments: Any, reason_code: str
) -> None:
    rule = {
        "rule_id": "no-force",
        "kind": "deny",
        "enabled": True,
        "severity": "warn",
        "match": {"args": {"has_keys": ["force"]}},
        "effect": {"action": "BLOCK"},
    }
    bundle = {"policy_id": "p", "version": "1", "mode": "guardrails", "defaults": {"decision_on_error": "BLOCK"}}
    Path("policy.json").write_text(json.dumps({**bundle, "selectors": {}, "rules": [rule]}))
    middleware = protected("policy.json")
    with pytest.raises(MCPError) as caught:
        call(middleware, {}, name="t", arguments=arguments)
    assert caught.value.error.data["subluminal"]["reason_code"] == reason_code
    assert call(middleware, {"ok": 1}, name="t", arguments={"x": None, "big": 1 << 80}) == {"ok": 1}


def test_large_messages_are_judged_by_name_and_recorded_without_preview(events: EventFile) -> None:
    middleware = protected()
    big = "x" * 2_000_000
    call(middleware, {"content": [{"type": "text", "text": big}]}, name="search", arguments={"word": big})
    (start,) = events.events_of("tool_call_start")
    assert start["call"]["preview"]["truncated"] and len(start["call"]["args_stream_hash"]) == 64
    sent = json.dumps({"word": big}, separators=(",", ":")).encode()
    assert start["call"]["args_raw_hash"] == hashlib.sha256(sent).hexdigest()
    assert only_end(events)["preview"]["truncated"] and len(only_end(events)["result_stream_hash"]) == 64
    assert only_end(events)["bytes_out"] > 2_000_000


def test_a_call_that_asks_for_input_and_its_continuation_are_one_call(events: EventFile) -> None:
    middleware = protected()
    asks = {"resultType": "input_required", "requestState": "s1", "inputRequests": {}}
    assert call(middleware, asks, 1, name="add_note", arguments={"text": "a"}) == asks
    assert not events.events_of("tool_call_end")
    more = {"requestState": "s1", "inputResponses": {"q": 1}}
    call(middleware, {"content": []}, 2, name="add_note", arguments={"text": "a"}, **more)
    assert [event["type"] for event in events.events() if event["type"].startswith("tool_call")] == [
        *("tool_call_start", "tool_call_decision", "tool_call_decision"),
        "tool_call_end",
    ]
    call(middleware, {"content": []}, 3, name="add_note", arguments={"text": "b"})
    with pytest.raises(MCPError, match="few-writes"):
        call(middleware, {}, 4, name="add_note", arguments={"text": "c"}, requestState="invented")
    assert len(events.events_of("tool_call_start")) == 3, "an invented state continues nothing"


def test_calls_that_wait_for_input_for_ever_are_bounded(events: EventFile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(legs, "MAX_WAITING_CALLS", 2)
    middleware = protected()
    for number in range(4):
        asks = {"resultType": "input_required", "requestState": f"s{number % 3}"}
        call(middleware, asks, number, name="ask", arguments={})
    ends = events.events_of("tool_call_end")
    assert [end["status"] for end in ends] == ["CANCELLED", "CANCELLED"]
    assert {end["error"]["message"] for end in ends} == {"input was asked for and never came"}


def test_a_call_that_becomes_a_task_is_not_said_to_have_ended_well(events: EventFile) -> None:
    call(protected(), {"task": {"taskId": "t1", "status": "working"}}, name="long", arguments={})
    assert only_end(events)["status"] == "CANCELLED"
    assert "task" in only_end(events)["error"]["message"]


def test_refusals_can_be_results(events: EventFile, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "config.toml").write_text('[shim]\nrefusal_style = "result"\n')
    result = call(protected(), {}, name="delete_note", arguments={})
    assert result["isError"] is True and "no-deletes" in result["content"][0]["text"]
    assert result["_meta"]["subluminal"]["action"] == "BLOCK"


def test_a_failing_result_without_words_still_says_that_it_failed(events: EventFile) -> None:
    middleware = protected()
    for content in ([], None, [{"type": "image"}], [{"type": "text", "text": " "}]):
        call(middleware, {"content": content, "isError": True}, name="x", arguments={})
    assert {end["error"]["message"] for end in events.events_of("tool_call_end")} == {"the tool reported an error"}


def test_a_result_that_is_no_json_does_not_break_the_tool(events: EventFile) -> None:
    odd = {"content": object()}
    assert call(protected(), odd, name="x", arguments={}) is odd
    assert call(protected(), None, name="x", arguments={}) is None
    assert [end["status"] for end in events.events_of("tool_call_end")] == ["OK", "OK"]


def test_a_fault_of_ours_after_the_tool_has_run_keeps_its_answer(
    events: EventFile, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    middleware = protected()

    def broken(*_: Any, **__: Any) -> None:
        raise KeyError("secret text")

    monkeypatch.setattr(Gate, "settle", broken)
    assert call(middleware, {"content": []}, name="x", arguments={}) == {"content": []}
    said = capsys.readouterr().err
    assert "not recorded (KeyError)" in said and "secret text" not in said


def test_no_secret_of_the_arguments_is_recorded(events: EventFile) -> None:
    token = "ghp_" + "a1B2c3D4e5" * 3 + "a1B2c3"
    with pytest.raises(MCPError) as caught:
        call(protected(), {}, name="delete_note", arguments={"token": token})
    assert token.encode() not in events.raw()
    assert token not in json.dumps(caught.value.error.data)


def test_text_of_values_keeps_their_order_and_numbers() -> None:
    assert (
        args_text({"b": 1, "a": [1.0, 1 << 70, None, "é"]})
        == '{"b":1,"a":[1.0,1180591620717411303424,null,"é"]}'.encode()
    )
    assert args_text({"a": math.inf}) == b'{"a":Infinity}'
    assert args_text("\ud800") == b'"\\ud800"'
    deep: Any = 0
    for _ in range(100_000):
        deep = [deep]
    assert args_text(deep) is None


def test_the_first_name_heard_of_a_server_counts() -> None:
    calls = Calls(POLICY)
    calls.name_server(None)
    calls.name_server("root")
    calls.name_server("other")
    assert calls.runtime.server_name == "root"


FAILING = {
    "rule_id": "failing",
    "kind": "breaker",
    "enabled": True,
    "severity": "warn",
    "match": {},
    "effect": {"breaker": {"scope": "run", "error_threshold": 1, "window_ms": 60_000, "on_trip": "BLOCK"}},
}


def test_an_end_waits_for_the_state_without_blocking_and_is_recorded_even_if_it_is_stopped(events: EventFile) -> None:
    bundle = {"policy_id": "p", "version": "1", "mode": "guardrails", "defaults": {"decision_on_error": "BLOCK"}}
    Path("policy.json").write_text(json.dumps({**bundle, "selectors": {}, "rules": [FAILING]}))
    middleware = protected("policy.json")
    holder = SharedState.open("run-1")

    async def rest(ctx: Any) -> Any:
        holder.begin()  # another process holds the state from here on
        return {"content": [], "isError": True}

    async def one(stop: bool) -> Any:
        params = {"name": "x", "arguments": {}}
        task = asyncio.create_task(middleware(SimpleNamespace(method="tools/call", request_id=1, params=params), rest))
        for _ in range(100):
            await asyncio.sleep(0)
        assert not task.done(), "it waits, and the loop goes on"
        if stop:
            task.cancel()
        else:
            holder.abandon()
        return await task

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(one(stop=True))
    holder.abandon()
    assert asyncio.run(one(stop=False)) == {"content": [], "isError": True}
    assert [end["status"] for end in events.events_of("tool_call_end")] == ["ERROR", "ERROR"]
    with pytest.raises(MCPError):
        call(middleware, {}, name="x", arguments={})
