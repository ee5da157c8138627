"""ADAPT: the border between a protocol and the core. An adapter reads and writes its protocol; the core decides."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from contract.conftest import Play
from harness.adapters.every import Played
from harness.adapters.interface import TOOL_FAILURES, Adapter
from harness.adapters.stdio import Stdio
from harness.fake_server import fake_server
from harness.in_process import CALLS, POLICY
from harness.shim import Shim
from harness.sink import EventDict

# Words that only a JSON-RPC adapter may know. None may appear in what the core records.
PROTOCOL_WORDS = (b"jsonrpc", b"tools/call", b"progressToken", b'"method"', b"call-1", b"an-id-of-the-protocol")
LETTER = {"to": "Ada", "stamps": 2}
# sha256 of {"stamps":2,"to":"Ada"}, computed once outside this project with `sha256sum`.
LETTER_HASH = "5bf359359fb25cf6222b88782e7a267f8475fab513e5422eecb4b1f2f1a15342"
ACTIONS = [
    *("ALLOW", "ALLOW", "ALLOW", "THROTTLE", "BLOCK", "ALLOW", "REJECT_WITH_HINT", "ALLOW", "ALLOW"),
    *("TERMINATE_RUN", "TERMINATE_RUN"),
]


@pytest.mark.contract("ADAPT-001")
def test_the_core_gets_the_fields_of_the_contract_and_nothing_of_the_protocol(adapter: Adapter, play: Play) -> None:
    played = play("deny_above_allow.yaml", ("send_letter", LETTER), server_name="post")
    assert played.actions == ["ALLOW"]
    (call,) = (event["call"] for event in played.events.events_of("tool_call_start"))
    assert (call["server_name"], call["tool_name"], call["transport"]) == ("post", "send_letter", adapter.transport)
    assert call["bytes_in"] >= len(json.dumps(LETTER, separators=(",", ":")))
    assert json.loads(call["preview"]["args_preview"]) == LETTER
    for word in PROTOCOL_WORDS:
        assert word not in played.events.raw(), word


@pytest.mark.contract("ADAPT-001")
def test_every_adapter_is_judged_by_the_same_policy(play: Play) -> None:
    played = play("deny_above_allow.yaml", ("delete_letters", {}), server_name="post")
    assert played.actions == ["BLOCK"]
    assert played.decisions[0]["rule_id"] == "no-deletes"
    assert played.outcomes[0].data["tool_name"] == "delete_letters"


@pytest.mark.contract("ADAPT-001", "ADAPT-002")
def test_every_adapter_computes_the_same_args_hash(play: Play) -> None:
    spellings = [json.dumps(LETTER), '{ "stamps": 2.0, "to": "\\u0041da" }']
    events = play("allow_all.yaml", *[("send_letter", text) for text in spellings]).events
    assert {event["call"]["args_hash"] for event in events.events() if "call" in event} == {LETTER_HASH}


@pytest.fixture(scope="module")
def through_the_shim(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """The record that every other adapter must leave as well."""
    return record(Played(Stdio(), tmp_path_factory.mktemp("shim"), *scripted(), **FAILING))


FAILING: dict[str, Any] = {"failing": {"fail": "on purpose"}, "server_name": "notes"}


def scripted() -> tuple[Any, ...]:
    return (POLICY, *CALLS)


def record(played: Played) -> list[dict[str, Any]]:
    """What was recorded, without what must differ: moments, producer, identity, sizes, transport, the tools' words.
    What a model's provider states of its messages is told by the model API alone, what a server says of its tools where
    lists of them pass."""
    assert played.actions == ACTIONS
    events = played.events.events()
    assert [event["source"]["seq"] for event in events] == list(range(1, len(events) + 1))
    return [comparable(event) for event in events if event["type"] not in ("model_message", "tools_seen")]


def comparable(event: EventDict) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(json.dumps(event).replace(event["source"]["shim_id"], "SHIM"))
    kept = ("type", "v", "call", "decision", "status", "run", "policy", "hint", "breaker")
    value = {name: value[name] for name in kept if name in value}
    for name in ("bytes_in", "transport", "call_context"):
        value.get("call", {}).pop(name, None)
    for name in ("started_at", "ended_at", "meta"):
        value.get("run", {}).pop(name, None)
    value.get("run", {}).get("summary", {}).pop("duration_ms", None)
    if event["type"] == "tool_call_end" and "error" in event:
        value["error_class"] = event["error"]["class"]
    return value


@pytest.mark.contract("ADAPT-002")
def test_the_same_calls_through_any_adapter_leave_the_same_record(
    adapter: Adapter, play: Play, through_the_shim: list[dict[str, Any]]
) -> None:
    adapter.need(TOOL_FAILURES)
    for ours, theirs in zip(record(play(*scripted(), **FAILING)), through_the_shim, strict=True):
        assert ours == theirs


@pytest.mark.contract("ADAPT-003")
def test_a_refusal_is_an_error_of_the_clients_own_protocol_and_no_tool_runs(play: Play) -> None:
    """What an adapter's `Session` reads as a refusal is exactly what a client of that protocol takes for an error."""
    played = play("deny_above_allow.yaml", ("delete_letters", {}), ("send_letter", LETTER))
    assert [outcome.action for outcome in played.outcomes] == ["BLOCK", "ALLOW"]
    assert played.executed == ["send_letter"]
    data = played.outcomes[0].data
    required = "v action rule_id reason_code summary run_id call_id server_name tool_name args_hash policy"
    assert set(required.split()) <= set(data)


@pytest.mark.contract("ADAPT-001")
def test_bytes_in_is_the_message_and_the_client_s_own_marks_stay_out_of_the_record(tmp_path: Path) -> None:
    setup = Shim(tmp_path, "post", fake_server(tools={"send_letter": {}}), policy="deny_above_allow.yaml")
    params = f'{{"name":"send_letter","_meta":{{"progressToken":"p"}},"arguments":{json.dumps(LETTER)}}}'
    line = f'{{"jsonrpc":"2.0","id":"an-id-of-the-protocol","method":"tools/call","params":{params}}}\n'.encode()
    with setup.start() as agent:
        agent.initialize()
        agent.send_raw(line)
        agent.reply("an-id-of-the-protocol")
        agent.finish()
    setup.events.wait_type("run_end")
    (start,) = setup.events.events_of("tool_call_start")
    assert start["call"]["bytes_in"] == len(line) - 1, "the newline frames the message, it is not part of it"
    for word in PROTOCOL_WORDS:
        assert word not in setup.events.raw(), word


@pytest.mark.contract("ADAPT-003")
@pytest.mark.parametrize("raw_id", ["7", '"seven"', "12345678901234567890", '"\\u0041"'])
def test_a_refusal_is_a_valid_json_rpc_error_for_exactly_that_request(tmp_path: Path, raw_id: str) -> None:
    executed = tmp_path / "executed"
    server = fake_server(executed=str(executed))
    setup = Shim(tmp_path, "post", server, policy="deny_above_allow.yaml")
    with setup.start() as agent:
        agent.initialize()
        params = '{"name":"delete_letters","arguments":{}}'
        agent.send_raw(f'{{"jsonrpc":"2.0","id":{raw_id},"method":"tools/call","params":{params}}}\n'.encode())
        reply = agent.reply(json.loads(raw_id))
        agent.finish()
    assert set(reply) == {"jsonrpc", "id", "error"}
    assert reply["jsonrpc"] == "2.0"
    assert f'"id":{raw_id}'.encode() in agent.received[-1], "the id is echoed byte for byte"
    assert set(reply["error"]) == {"code", "message", "data"}
    assert isinstance(reply["error"]["code"], int)
    assert isinstance(reply["error"]["message"], str)
    assert set(reply["error"]["data"]) == {"subluminal"}
    assert executed.read_bytes() == b"", "the server never saw the call"
