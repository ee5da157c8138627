"""BUF: messages above MAX_INSPECT_BYTES pass whole and unchanged, in bounded memory, and are recorded."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from harness.fake_server import fake_server
from harness.processes import memory_kib
from harness.shim import Shim
from subluminal.contracts.vocabulary import MAX_INSPECT_BYTES

CALLS_AT_ONCE = 50
LARGE = 2 * MAX_INSPECT_BYTES
# A shim that held the calls would need 100 MiB for the requests alone and as much for the replies.
MAX_GROWTH_KIB = 12 * 1024


def call_line(request_id: str, tool: str, size: int) -> bytes:
    """A call whose bulk is not all the same byte, so that a lost or doubled piece changes the hash."""
    block = "".join(f"{number:06d}-é," for number in range(1000))
    data = (block * (size // len(block.encode()) + 1)).encode()[:size].decode("utf-8", "ignore")
    params = json.dumps({"name": tool, "arguments": {"data": data}}, ensure_ascii=False)
    return f'{{"jsonrpc":"2.0","id":"{request_id}","method":"tools/call","params":{params}}}'.encode()


@pytest.mark.contract("BUF-001")
@pytest.mark.parametrize("policy", ["allow_all.yaml", "deny_above_allow.yaml"])
def test_a_large_call_is_forwarded_and_its_preview_marked_truncated(tmp_path: Path, policy: str) -> None:
    setup = Shim(tmp_path, "store", fake_server(tools={"put": {}}), policy=policy)
    line = call_line("big", "put", MAX_INSPECT_BYTES + 1)
    with setup.start() as agent:
        agent.initialize()
        agent.send_raw(line + b"\n")
        assert agent.reply("big")["result"]["content"][0]["text"] == "ok"
        agent.finish()
    setup.events.wait_type("run_end")
    call = setup.events.events_of("tool_call_start")[0]["call"]
    assert call["tool_name"] == "put"
    assert call["bytes_in"] == len(line), "the newline frames the message, it is not part of it"
    assert call["preview"]["truncated"] is True
    assert call["preview"].get("args_preview", "[TRUNCATED]") == "[TRUNCATED]"
    assert setup.events.events_of("tool_call_decision")[0]["decision"]["action"] == "ALLOW"


@pytest.mark.contract("BUF-001")
def test_a_large_result_is_passed_on_and_its_preview_marked_truncated(tmp_path: Path) -> None:
    setup = Shim(tmp_path, "store", fake_server(tools={"get": {"result_bytes": LARGE}}))
    (reply,) = setup.run(("get", {}))
    assert reply["result"]["content"][0]["text"] == "x" * LARGE
    end = setup.events.events_of("tool_call_end")[0]
    assert end["status"] == "OK"
    assert end["bytes_out"] >= LARGE
    assert end["preview"]["truncated"] is True
    assert end["preview"].get("result_preview", "[TRUNCATED]") == "[TRUNCATED]"


@pytest.mark.contract("BUF-001")
def test_a_large_call_is_judged_like_any_other(tmp_path: Path) -> None:
    executed = tmp_path / "executed"
    server = fake_server(executed=str(executed))
    setup = Shim(tmp_path, "store", server, policy="deny_above_allow.yaml")
    with setup.start() as agent:
        agent.initialize()
        agent.send_raw(call_line("big", "delete_all", LARGE) + b"\n")
        assert agent.reply("big")["error"]["code"] == -32081
        agent.call("echo")
        agent.finish()
    assert [json.loads(line)["tool"] for line in executed.read_text().splitlines()] == ["echo"]


@pytest.mark.contract("BUF-002")
def test_fifty_large_calls_at_once_stay_in_bounded_memory(tmp_path: Path) -> None:
    """The server answers none before all fifty have arrived, so they are outstanding together, and answers large."""
    tools = {"put": {"hold_until": CALLS_AT_ONCE, "result_bytes": LARGE}, "echo": {}}
    setup = Shim(tmp_path, "store", fake_server(tools=tools), policy="allow_all.yaml")
    with setup.start(timeout=90) as agent:
        agent.initialize()
        agent.call("echo")
        before = agent.memory_kib()
        ids = [f"big-{number}" for number in range(CALLS_AT_ONCE)]
        for each in ids:
            agent.send_raw(call_line(each, "put", LARGE) + b"\n", wait=False)
        replies = agent.replies(ids)
        peak = memory_kib(agent.pid, "VmHWM")
        agent.finish()
    assert {len(reply["result"]["content"][0]["text"]) for reply in replies} == {LARGE}
    assert peak - before < MAX_GROWTH_KIB, f"grew by {peak - before} KiB"
    setup.events.wait_type("run_end")
    for kind in ("tool_call_start", "tool_call_decision", "tool_call_end"):
        assert len(setup.events.events_of(kind)) == CALLS_AT_ONCE + 1
    assert {event["status"] for event in setup.events.events_of("tool_call_end")} == {"OK"}


@pytest.mark.contract("BUF-003")
@pytest.mark.parametrize("size", [MAX_INSPECT_BYTES - 4096, MAX_INSPECT_BYTES + 1, 20 * MAX_INSPECT_BYTES])
def test_the_server_receives_a_large_message_byte_for_byte(tmp_path: Path, size: int) -> None:
    setup = Shim(tmp_path, "store", fake_server(tools={"put": {"echo": True}}), policy="allow_all.yaml")
    line = call_line("big", "put", size) + b"\n"
    with setup.start() as agent:
        agent.initialize()
        agent.send_raw(line)
        report = json.loads(agent.reply("big")["result"]["content"][0]["text"])
        agent.finish()
    assert report["line_bytes"] == len(line)
    assert report["line_sha256"] == hashlib.sha256(line).hexdigest()


@pytest.mark.contract("BUF-004")
def test_a_truncated_message_carries_the_hash_of_its_raw_bytes(tmp_path: Path) -> None:
    setup = Shim(tmp_path, "store", fake_server(tools={"put": {}}), policy="allow_all.yaml")
    line = call_line("big", "put", LARGE)
    with setup.start() as agent:
        agent.initialize()
        agent.send_raw(line + b"\n")
        agent.reply("big")
        agent.call("put", {"small": 1})
        agent.finish()
    setup.events.wait_type("run_end")
    big, small = (event["call"] for event in setup.events.events_of("tool_call_start"))
    assert big["args_stream_hash"] == hashlib.sha256(line).hexdigest()
    assert "args_stream_hash" not in small
    assert len(small["args_hash"]) == 64
