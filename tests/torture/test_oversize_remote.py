"""Messages far larger than memory should hold, between a client on stdio and a server behind a URL."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.http_servers import Heard, Wire, raw_server
from harness.shim import Shim

MIB = 1 << 20
MAX_GROWTH_KIB = 8 * 1024
RESULT = 64 * MIB
ARGUMENT = 20 * MIB
BLOCK = b"0123456789abcdef" * 4096


def size_and_hash(heard: Heard, wire: Wire) -> None:
    wire.json(wire.result({"size": len(heard.body), "sha256": hashlib.sha256(heard.body).hexdigest()}))


def result_of(size: int, form: str) -> Callable[[Heard, Wire], None]:
    def call(_: Heard, wire: Wire) -> None:
        before, after = b'{"jsonrpc":"2.0",\n"result":{"content":[],"bulk":"', b'"},"id":"big"}'
        if form == "text/event-stream":
            wire.stream()
            before, after = b"data: " + before.replace(b"\n", b"\ndata: "), after + b"\n\n"
        else:
            wire.head(200, len(before) + size + len(after), Content_Type=form)
        wire.send(before)
        for _ in range(size // len(BLOCK)):
            wire.send(BLOCK)
        wire.send(after)

    return call


@pytest.mark.parametrize("form", ["application/json", "text/event-stream"])
def test_a_64_mib_result_passes_in_bounded_memory_with_the_right_hash(tmp_path: Path, form: str) -> None:
    with raw_server({"tools/call": result_of(2 * MIB, form)}) as server:
        setup = Shim(tmp_path, "big", ["--url", server.url])
        with setup.start(timeout=60) as agent:
            agent.initialize()
            for _ in range(2):
                agent.call("t", id="big")
            before = agent.memory_kib("VmHWM")
            server.on["tools/call"] = result_of(RESULT, form)
            agent.start_call("t", id="big")
            agent.pump_until(lambda: len(agent.received[-1]) > RESULT)
            line = agent.received[-1][:-1]
            grown = agent.memory_kib("VmHWM") - before
            assert agent.finish() == 0
    assert b"\n" not in line and line.count(b"0123456789abcdef") == RESULT // 16
    assert grown <= MAX_GROWTH_KIB
    end = setup.events.events_of("tool_call_end")[-1]
    assert (end["bytes_out"], end["status"]) == (len(line), "OK")
    assert (
        end["preview"].get("result_stream_hash", hashlib.sha256(line).hexdigest()) == hashlib.sha256(line).hexdigest()
    )


@pytest.mark.parametrize("mode", ["observe", "guardrails"])
def test_a_20_mib_argument_is_posted_byte_for_byte_in_bounded_memory(tmp_path: Path, mode: str) -> None:
    deny = {"rule_id": "no", "kind": "deny", "match": {"tool_name": {"glob": ["bad*"]}}, "effect": {"action": "BLOCK"}}
    policy = {
        "policy_id": "p", "version": "1", "mode": mode, "defaults": {"decision_on_error": "ALLOW"}, "selectors": {},
        "rules": [deny],
    }  # fmt: skip

    def line(name: str, size: int) -> bytes:
        bulk = (BLOCK * (size // len(BLOCK)))[:size]
        return b'{"jsonrpc":"2.0","id":"big","method":"tools/call","params":{"arguments":{"b":"%s"},"name":"%s"}}' % (
            bulk,
            name.encode(),
        )

    with raw_server({"tools/call": size_and_hash}) as server:
        with Shim(tmp_path, "big", ["--url", server.url], policy=policy).start(timeout=60) as agent:
            agent.initialize()
            agent.send_raw(line("good", 2 * MIB) + b"\n")
            agent.reply("big")
            before = agent.memory_kib("VmHWM")
            agent._replies.clear()
            large = line("good", ARGUMENT)
            agent.send_raw(large + b"\n", wait=False)
            result = agent.reply("big")["result"]
            grown = agent.memory_kib("VmHWM") - before
            refused = line("bad", ARGUMENT)
            agent._replies.clear()
            agent.send_raw(refused + b"\n", wait=False)
            assert ("error" in agent.reply("big")) == (mode == "guardrails")
            assert agent.finish() == 0
        bodies = [len(heard.body) for heard in server.of("tools/call")]
    assert (result["size"], result["sha256"]) == (len(large), hashlib.sha256(large).hexdigest())
    assert grown <= MAX_GROWTH_KIB
    assert (len(refused) in bodies) == (mode == "observe")


def test_a_large_message_is_sent_again_whole_where_the_server_did_not_take_it(tmp_path: Path) -> None:
    """It answers before it has read all, with a redirect and with a session that it has forgotten."""
    asked: list[str] = []

    def call(heard: Heard, wire: Wire) -> None:
        asked.append(heard.target)
        if len(asked) == 1:
            wire.head(404)
        elif heard.target == "/mcp":
            wire.head(307, Location="/mcp/other")
        else:
            size_and_hash(heard, wire)

    with raw_server({"tools/call": call}) as server, Shim(tmp_path, "big", ["--url", server.url]).start() as agent:
        agent.initialize()
        argument = "x" * (3 * MIB)
        result = agent.call("t", {"b": argument})["result"]
        assert result["size"] > len(argument)
        assert len({heard.body for heard in server.of("tools/call")}) == 1
    assert asked == ["/mcp", "/mcp", "/mcp/other"]
