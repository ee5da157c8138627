"""Messages far larger than memory should hold: bounded growth, right hashes, judged wherever the name stands."""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.driver import Agent
from harness.fake_server import fake_server
from harness.shim import Shim

MIB = 1 << 20
MAX_GROWTH_KIB = 8 * 1024
LARGE = 64 * MIB
ENDLESS = 40 * MIB

# Reads without holding, answers each line with its size and hash; "reply N" in the first bytes asks for N bytes.
METER = """
import hashlib, os, re
digest, size, head = hashlib.sha256(), 0, b""
def put(data):
    view = memoryview(data)
    while view:
        view = view[os.write(1, view[:65536]):]
while data := os.read(0, 1 << 16):
    while data:
        part, newline, data = data.partition(b"\\n")
        digest.update(part); size += len(part); head = (head + part)[:300]
        if not newline:
            break
        asked = re.search(rb"reply (\\d+)", head)
        if asked:
            put(b'{"jsonrpc":"2.0","result":{"content":[],"bulk":"')
            block = b"0123456789abcdef" * 4096
            for _ in range(int(asked[1]) // len(block)):
                put(block)
            put(b'"},"id":"big"}\\n')
        else:
            found = size, digest.hexdigest().encode()
            put(b'{"jsonrpc":"2.0","id":"big","result":{"size":%d,"sha256":"%s"}}\\n' % found)
        digest, size, head = hashlib.sha256(), 0, b""
"""


def bundle(mode: str, *rules: dict[str, Any]) -> dict[str, Any]:
    return {
        "policy_id": "p",
        "version": "1",
        "mode": mode,
        "defaults": {"decision_on_error": "ALLOW"},
        "selectors": {},
        "rules": list(rules),
    }


DENY = {
    "rule_id": "no",
    "kind": "deny",
    "enabled": True,
    "severity": "warn",
    "match": {"tool_name": {"glob": ["bad*"]}},
    "effect": {"action": "BLOCK"},
}


def meter(tmp_path: Path, mode: str, **env: str) -> Shim:
    server = [sys.executable, "-S", "-c", METER]
    return Shim(tmp_path, "meter", server, policy=bundle(mode, DENY), env=env)


def warm(agent: Agent) -> int:
    """The high-water mark after everything has been used once."""
    for name in ("good", "bad"):
        agent.call(name, {"x": 1}, id="big")
    agent.send_raw(call_line("good", 2 * MIB))
    agent.pump_until(lambda: len(agent.received) >= 3)
    return agent.memory_kib("VmHWM")


def call_line(tool: str, size: int, name_last: bool = False) -> bytes:
    bulk = (b"0123456789abcdef" * (size // 16 + 1))[:size]
    name = b'"name":"%s"' % tool.encode()
    args = b'"arguments":{"bulk":"%s"}' % bulk
    members = (args, name) if name_last else (name, args)
    return b'{"jsonrpc":"2.0","id":"big","method":"tools/call","params":{%s,%s}}\n' % members


@pytest.mark.parametrize("mode", ["observe", "guardrails"])
def test_a_64_mib_argument_passes_in_bounded_memory_with_the_right_hash(tmp_path: Path, mode: str) -> None:
    setup = meter(tmp_path, mode)
    line = call_line("good", LARGE)
    with setup.start(timeout=60) as agent:
        before = warm(agent)
        agent._replies.clear()
        agent.send_raw(line, wait=False)
        result = agent.reply("big")["result"]
        grown = agent.memory_kib("VmHWM") - before
        agent.finish()
    expected = hashlib.sha256(line[:-1]).hexdigest()
    assert (result["size"], result["sha256"]) == (len(line) - 1, expected)
    assert grown <= MAX_GROWTH_KIB
    start = setup.events.events_of("tool_call_start")[-1]["call"]
    assert (start["bytes_in"], start["args_stream_hash"]) == (len(line) - 1, expected)


def test_a_64_mib_result_passes_in_bounded_memory_with_the_right_hash(tmp_path: Path) -> None:
    setup = meter(tmp_path, "guardrails")
    with setup.start(timeout=60) as agent:
        before = warm(agent)
        agent._replies.clear()
        agent.start_call("good", {"do": f"reply {LARGE}"}, id="big")
        agent.pump_until(lambda: len(agent.received[-1]) > LARGE)
        line = agent.received[-1]
        grown = agent.memory_kib("VmHWM") - before
        agent.finish()
    assert line.count(b"0123456789abcdef") == LARGE // 16
    assert grown <= MAX_GROWTH_KIB
    end = setup.events.events_of("tool_call_end")[-1]
    assert end["status"] == "OK"
    assert (end["bytes_out"], end["result_stream_hash"]) == (len(line) - 1, hashlib.sha256(line[:-1]).hexdigest())


@pytest.mark.parametrize("name_last", [False, True])
def test_a_large_call_to_a_denied_tool_is_refused_wherever_its_name_stands(tmp_path: Path, name_last: bool) -> None:
    record = tmp_path / "stream"
    server = fake_server(tools={"*": {}}, record=str(record))
    setup = Shim(tmp_path, "store", server, policy=bundle("guardrails", DENY))
    with setup.start() as agent:
        agent.send_raw(call_line("bad", 3 * MIB, name_last))
        assert agent.reply("big")["error"]["code"] == -32081
        assert "result" in agent.call("good")
        agent.finish()
    assert b"bad" not in record.read_bytes()


def test_a_message_above_the_limit_is_refused_cleanly_and_the_next_one_served(tmp_path: Path) -> None:
    setup = meter(tmp_path, "guardrails", SUB_MAX_MESSAGE_BYTES=str(2 * MIB))
    with setup.start() as agent:
        agent.send_raw(call_line("good", 3 * MIB))
        error = agent.reply("big")["error"]
        assert (error["code"], error["data"]["subluminal"]["reason_code"]) == (-32081, "MESSAGE_TOO_LARGE")
        assert f"larger than {2 * MIB} bytes" in error["message"]
        agent._replies.clear()
        assert "result" in agent.call("good", {"n": 1}, id="big")
        agent.finish()


@pytest.mark.parametrize("mode", ["observe", "guardrails"])
def test_an_endless_line_from_the_client_is_bounded_in_memory_and_on_disk(tmp_path: Path, mode: str) -> None:
    setup = meter(tmp_path, mode, SUB_MAX_MESSAGE_BYTES=str(4 * MIB))
    with setup.start(timeout=60) as agent:
        before = warm(agent)
        sent = 0
        block = b"x" * MIB
        agent.send_raw(b'{"jsonrpc":"2.0","id":"big","method":"tools/call","params":{"name":"good","arguments":{"a":"')
        while sent < ENDLESS:
            agent.send_raw(block)
            sent += len(block)
            assert held_bytes(agent.pid) <= 5 * MIB
        assert agent.memory_kib("VmHWM") - before <= MAX_GROWTH_KIB
        agent.finish()


def held_bytes(pid: int) -> int:
    """What the process keeps in files without a name."""
    total = 0
    for name in os.listdir(f"/proc/{pid}/fd"):
        try:
            target = os.readlink(f"/proc/{pid}/fd/{name}")
            if target.endswith(" (deleted)"):
                total += os.stat(f"/proc/{pid}/fd/{name}").st_blocks * 512
        except OSError:
            continue
    return total


@pytest.mark.parametrize("mode", ["observe", "guardrails"])
def test_an_endless_line_from_the_server_streams_through_in_bounded_memory(tmp_path: Path, mode: str) -> None:
    server = "import os\nwhile True: os.write(1, b'x' * 65536)"
    setup = Shim(tmp_path, "endless", [sys.executable, "-S", "-c", server], policy=bundle(mode))
    with setup.start(timeout=60) as agent:
        agent.pump_until(lambda: len(agent._incoming) > 4 * MIB)
        before = agent.memory_kib("VmHWM")
        agent.pump_until(lambda: len(agent._incoming) > ENDLESS)
        assert agent.memory_kib("VmHWM") - before <= MAX_GROWTH_KIB


def test_nothing_of_a_held_message_stays_on_disk_after_a_kill(tmp_path: Path) -> None:
    setup = meter(tmp_path, "guardrails")
    with setup.start() as agent:
        agent.send_raw(call_line("good", 8 * MIB)[:-1])
        agent.pump_until(lambda: held_bytes(agent.pid) > 7 * MIB)
        agent.signal(9)
        agent.wait_exit()
    spool = tmp_path / "sub" / "spool"
    assert [path.name for path in spool.iterdir() if path.suffix != ".jsonl"] == []


def test_a_large_message_that_cannot_be_held_is_refused_not_let_through(tmp_path: Path) -> None:
    """SUB_HOME is a file: there is no room for anything."""
    record = tmp_path / "stream"
    server = fake_server(tools={"*": {}}, record=str(record))
    setup = Shim(tmp_path, "store", server, policy=bundle("guardrails", DENY))
    (tmp_path / "sub").write_text("not a directory")
    with setup.start() as agent:
        agent.send_raw(call_line("good", 3 * MIB))
        assert agent.reply("big")["error"]["code"] == -32081
        assert "result" in agent.call("good")
        agent.finish()
    assert record.stat().st_size < MIB
