"""ADAPT: the border between a protocol and the core. An adapter reads and writes its protocol; the core decides."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness.fake_server import fake_server
from harness.shim import FIXTURE_POLICIES, Shim
from harness.sink import EventDict
from subluminal.contracts.events import decode_event
from subluminal.contracts.identity import Identity, Source
from subluminal.contracts.toolcall import ToolCall
from subluminal.core.engine.stack import Engine, Stack
from subluminal.core.engine.state import LocalState
from subluminal.core.gate.gate import CallRecord, Gate
from subluminal.core.redact.redactor import Redactor
from subluminal.policy.compile.bundle import compile_bundle

# Words that only a JSON-RPC adapter may know. None may appear in what the core records.
PROTOCOL_WORDS = (b"jsonrpc", b"tools/call", b"progressToken", b'"method"', b"an-id-of-the-protocol")


class CarrierPigeon:
    """An adapter of a protocol that does not exist: each message is "SERVER TOOL ARGUMENTS"."""

    transport = "unknown"

    def __init__(self, policy: str) -> None:
        identity = Identity("run-pigeon", "sender", "custom", "dev")
        snapshot = compile_bundle((FIXTURE_POLICIES / policy).read_bytes(), policy)
        stack = Stack([Engine(snapshot, identity)])
        self.gate = Gate(identity, Source("host", "process", "pigeon-1"), stack, LocalState(), Redactor())
        self.gate.open(1_700_000_000_000, 0)

    def deliver(self, message: str) -> tuple[CallRecord, list[EventDict]]:
        server, tool, arguments = message.split(" ", 2)
        call = ToolCall(server, tool, arguments.encode(), len(message), self.transport)
        record = self.gate.judge(call, 1_700_000_000_000, 10)
        self.gate.announce(record, 1_700_000_000_000)
        self.gate.settle(record, "OK", 1_700_000_000_005, 15, latency_ms=5, bytes_out=2, result_raw=b"ok")
        lines = self.gate.take().splitlines(keepends=True)
        for line in lines:
            decode_event(line)
        return record, [json.loads(line) for line in lines]


@pytest.mark.contract("ADAPT-001")
def test_the_core_needs_nothing_but_the_fields_of_the_contract() -> None:
    message = 'post send_letter {"to":"Ada","stamps":2}'
    record, events = CarrierPigeon("deny_above_allow.yaml").deliver(message)
    assert record.decision.action == "ALLOW"
    (call,) = (event["call"] for event in events if event["type"] == "tool_call_start")
    assert (call["server_name"], call["tool_name"], call["transport"]) == ("post", "send_letter", "unknown")
    assert call["bytes_in"] == len(message)
    assert json.loads(call["preview"]["args_preview"]) == {"to": "Ada", "stamps": 2}


@pytest.mark.contract("ADAPT-001")
def test_any_adapter_is_judged_by_the_same_policy() -> None:
    pigeon = CarrierPigeon("deny_above_allow.yaml")
    record, _ = pigeon.deliver("post delete_letters {}")
    assert (record.decision.action, record.decision.rule_id) == ("BLOCK", "no-deletes")
    code, message, data = pigeon.gate.refusal(record)
    assert code == -32081
    assert message and data["subluminal"]["tool_name"] == "delete_letters"


def run_over_stdio(tmp_path: Path, arguments: str) -> tuple[bytes, dict[str, Any], int]:
    setup = Shim(tmp_path, "post", fake_server(tools={"send_letter": {}}), policy="deny_above_allow.yaml")
    params = f'{{"name":"send_letter","_meta":{{"progressToken":"p"}},"arguments":{arguments}}}'
    line = f'{{"jsonrpc":"2.0","id":"an-id-of-the-protocol","method":"tools/call","params":{params}}}\n'.encode()
    with setup.start() as agent:
        agent.initialize()
        agent.send_raw(line)
        agent.reply("an-id-of-the-protocol")
        agent.finish()
    setup.events.wait_type("run_end")
    (start,) = setup.events.events_of("tool_call_start")
    return setup.events.raw(), start["call"], len(line) - 1


@pytest.mark.contract("ADAPT-001")
def test_the_stdio_adapter_gives_the_core_the_fields_and_nothing_of_json_rpc(tmp_path: Path) -> None:
    raw, call, size = run_over_stdio(tmp_path, '{"to": "Ada", "stamps": 2}')
    assert (call["server_name"], call["tool_name"], call["transport"]) == ("post", "send_letter", "mcp_stdio")
    assert call["bytes_in"] == size
    assert json.loads(call["preview"]["args_preview"]) == {"to": "Ada", "stamps": 2}
    for word in PROTOCOL_WORDS:
        assert word not in raw, word


@pytest.mark.contract("ADAPT-001")
def test_both_adapters_compute_the_same_args_hash(tmp_path: Path) -> None:
    _, call, _ = run_over_stdio(tmp_path, '{ "stamps": 2.0, "to": "Ada" }')
    _, events = CarrierPigeon("allow_all.yaml").deliver('post send_letter {"to":"Ada","stamps":2}')
    assert {event["call"]["args_hash"] for event in events if "call" in event} == {call["args_hash"]}


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
    data = reply["error"]["data"]["subluminal"]
    required = "v action rule_id reason_code summary run_id call_id server_name tool_name args_hash policy"
    assert set(required.split()) <= set(data)
    assert set(data["policy"]) == {"policy_id", "policy_version", "policy_hash"}
    assert executed.read_bytes() == b"", "the server never saw the call"
