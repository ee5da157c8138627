"""Whatever a server could read as a tool call, the shim has judged: hostile messages, and servers that parse otherwise.

What the shim lets through is shown to every spy of the harness. None may run the tool that policy denies.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path

import pytest

from harness import hostile
from harness.engine import rule, tools
from harness.exchange import Talk, scanned
from harness.fake_server import fake_server
from harness.shim import Shim
from harness.spies import SCAN_SPIES, SPIES, tools_run
from subluminal.mcp.message.reading import AMBIGUOUS, CALL

SEED = 20260728
GENERATED = int(os.environ.get("SUB_TEST_DIFFERENTIAL", "4000"))
DENY = rule("no-danger", "deny", tools(hostile.TOOL))
POLICY = {
    "policy_id": "p",
    "version": "1",
    "mode": "guardrails",
    "defaults": {"decision_on_error": "BLOCK"},
    "selectors": {},
    "rules": [DENY],
}


def session() -> Talk:
    return Talk(DENY)


def let_through(talk: Talk, line: bytes) -> bytes:
    out = [message + b"\n" for side, message in talk.client(line) if side == "server"]
    talk.events.clear()
    return b"".join(out)


def let_through_scanned(talk: Talk, line: bytes) -> bytes:
    """As the relay does with a message that is too large to hold."""
    reading = scanned(line)
    if reading.kind in (CALL, AMBIGUOUS) and not talk.exchange.client_call(reading, line, len(line), 1, 1):
        return b""
    return line + b"\n"


def assert_harmless(out: bytes, line: bytes, spies: Iterable[str] = SPIES) -> None:
    if out:
        for spy in spies:
            assert hostile.TOOL not in tools_run(spy, out), (
                f"{spy} runs it: {line[:300]!r} (let through: {out[:300]!r})"
            )


@pytest.mark.parametrize("spy", SPIES)
def test_the_spies_can_be_fooled_at_all(spy: str) -> None:
    """Else the tests below would prove nothing."""
    fooled = [line for line in hostile.table() if hostile.TOOL in tools_run(spy, line + b"\n")]
    assert len(fooled) > 20


def test_no_spy_runs_the_denied_tool_after_any_message_of_the_table() -> None:
    talk = session()
    for line in hostile.table():
        assert_harmless(let_through(talk, line), line)
        assert_harmless(let_through_scanned(talk, line), line, SCAN_SPIES)


def test_no_spy_runs_the_denied_tool_after_any_generated_message() -> None:
    talk = session()
    passed = 0
    for line in hostile.Generator(SEED).messages(GENERATED):
        out = let_through(talk, line)
        passed += bool(out)
        assert_harmless(out, line)
        assert_harmless(let_through_scanned(talk, line), line, SCAN_SPIES)
    assert passed > GENERATED // 50, "messages that are harmless must pass, else nothing is shown"


def test_no_spy_runs_the_denied_tool_behind_the_real_shim(tmp_path: Path) -> None:
    record = tmp_path / "stream"
    setup = Shim(tmp_path, "server", fake_server(tools={"*": {}}, record=str(record)), policy=POLICY)
    table, large = hostile.table(), hostile.oversize()
    with setup.start(timeout=60) as agent:
        agent.initialize()
        for line in [*table, *hostile.Generator(SEED + 1).messages(500)]:
            agent.send_raw(line + b"\n", wait=False)
        for line in large:
            agent.send_raw(line + b"\n")
        assert "result" in agent.call(hostile.DECOY, {}, id="the last"), "the shim lives and lets good calls through"
        agent.finish()
    stream = record.read_bytes()
    for line in stream.split(b"\n"):
        assert_harmless(line + b"\n" if line else b"", line)
    assert_harmless(stream, b"the whole stream")
    decisions = setup.events.events_of("tool_call_decision")
    blocked = [event for event in decisions if event["decision"]["action"] == "BLOCK"]
    assert len(blocked) > len(table) // 2
    named = [event for event in decisions if event["call"]["tool_name"] == hostile.TOOL]
    assert len(named) > 50
    assert {event["decision"]["action"] for event in named} == {"BLOCK"}


def test_in_observe_mode_the_same_messages_pass_unchanged_and_the_record_says_ambiguous(tmp_path: Path) -> None:
    record = tmp_path / "stream"
    script = fake_server(tools={"*": {"never": True}}, record=str(record))
    setup = Shim(tmp_path, "server", script, policy={**POLICY, "mode": "observe"})
    lines = hostile.table()
    with setup.start(timeout=60) as agent:
        agent.send_raw(b"\n".join(lines) + b"\n")
        agent.send({"jsonrpc": "2.0", "id": "the last", "method": "ping"})
        agent.reply("the last")
        agent.finish()
    assert record.read_bytes().startswith(b"\n".join(lines) + b"\n")
    decisions = setup.events.events_of("tool_call_decision")
    assert {event["decision"]["action"] for event in decisions} == {"ALLOW"}
    would = [event["decision"].get("would", {}).get("explain", {}).get("reason_code") for event in decisions]
    assert would.count("AMBIGUOUS_MESSAGE") > 50
    assert json.dumps(would).count("null") < len(would)
