"""ADAPT-002 to the byte: one sequence of calls, once through the real stdio shim and once in-process.

The server is the same program on the official SDK: behind the shim it is not protected, alone it protects itself. An
agent on real pipes sends the very same bytes to both, and compares all that it gets and all that is recorded.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.adapters.every import Played
from harness.adapters.own_process import OwnProcess
from harness.adapters.stdio import Stdio
from harness.driver import Agent
from harness.in_process import CALLS, POLICY
from harness.places import ROOT
from harness.shim import Shim, isolated_env
from harness.sink import EventDict, EventFile
from subluminal.contracts.events import decode_event

SERVER = """
import sys
sys.path.insert(0, sys.argv[1])
from notes import TOOLS
kind, policy = sys.argv[2], sys.argv[3] if len(sys.argv) > 3 else None
def fail(why: str) -> str:
    "Always fails."
    raise ValueError(why)
if kind == "mcp":
    from mcp.server.mcpserver import MCPServer
    server = MCPServer("notes", log_level="ERROR")
    for tool in (*TOOLS, fail):
        server.add_tool(tool)
    run = lambda: server.run("stdio")
else:
    import logging
    logging.disable(logging.CRITICAL)
    from fastmcp import FastMCP
    server = FastMCP("notes")
    for tool in (*TOOLS, fail):
        server.tool(tool)
    run = lambda: server.run(show_banner=False)
if policy:
    from subluminal.adapters.in_process import protect
    protect(server, policy=policy)
run()
"""
# With the ways in which a host itself refuses a call, before one of the last terminates the run.
AT = len(CALLS) - 3
ALL_CALLS: list[tuple[str, Any]] = [*CALLS[:AT], ("no_such_tool", {}), ("add_note", {"wrong": 1}), *CALLS[AT:]]
# sha256 of {"big":12345678901234567890123,"e":100,"n":1.5,"text":"grüße"}, computed with `sha256sum`.
SPELLED_HASH = "255ec28d6bdd71b980f7e1c2784ddc3ae48516676b52d4e294dae654d7766e4b"
IDENTITY = {"SUB_RUN_ID": "run-1", "SUB_AGENT_ID": "agent-1", "SUB_CLIENT": "claude", "SUB_PRINCIPAL": "ada"}


def lines() -> list[bytes]:
    """Compact JSON, as clients write it. One carries the client's own id for the call."""
    found = []
    for number, (tool, arguments) in enumerate(ALL_CALLS):
        params: dict[str, Any] = {"name": tool, "arguments": arguments}
        if number == 0:
            params["_meta"] = {"claudecode/toolUseId": "toolu_1"}
        message = {"jsonrpc": "2.0", "id": number + 100, "method": "tools/call", "params": params}
        found.append(json.dumps(message, separators=(",", ":"), ensure_ascii=False).encode() + b"\n")
    return found


def converse(agent: Agent) -> list[dict[str, Any]]:
    agent.initialize()
    agent.request("tools/list")
    replies = []
    for number, line in enumerate(lines()):
        agent.send_raw(line)
        replies.append(agent.reply(number + 100, timeout=30))
    agent.finish()
    return replies


def through_shim(tmp_path: Path, command: list[str]) -> tuple[list[dict[str, Any]], list[EventDict]]:
    where = tmp_path / "shim"
    where.mkdir()
    setup = Shim(where, "notes", command, policy=POLICY, env=IDENTITY)
    with setup.start() as agent:
        replies = converse(agent)
    setup.events.wait_type("run_end")
    return replies, setup.events.events()


def in_process(tmp_path: Path, command: list[str]) -> tuple[list[dict[str, Any]], list[EventDict]]:
    where = tmp_path / "inside"
    where.mkdir()
    events = EventFile(where / "events.jsonl")
    env = isolated_env(where, SUB_EVENTS=events.argument, **IDENTITY)
    with Agent([*command, str(POLICY)], env=env, cwd=where) as agent:
        replies = converse(agent)
    events.wait_type("run_end")
    return replies, events.events()


def comparable(event: EventDict) -> dict[str, Any]:
    """Without what must differ: the moment, the producer, how long it took, the transport, and how the server is
    started, which only a shim knows."""
    text = json.dumps(event).replace(event["source"]["shim_id"], "SHIM")
    value: dict[str, Any] = json.loads(text)
    for name in ("ts", "source", "latency_ms", "overhead_us"):
        value.pop(name, None)
    run = value.get("run", {})
    for name in ("started_at", "ended_at"):
        run.pop(name, None)
    run.get("summary", {}).pop("duration_ms", None)
    value.get("call", {}).pop("transport", None)
    value.get("tools", {}).pop("launch", None)
    return value


def told_by_both(events: list[EventDict]) -> list[EventDict]:
    """Without what a server says at `initialize`, which only a shim hears."""
    assert [event["source"]["seq"] for event in events] == list(range(1, len(events) + 1))
    openings = [
        event for event in events if {item["kind"] for item in event.get("tools", {}).get("items", ())} == {"server"}
    ]
    return [event for event in events if event not in openings]


def server_command(tmp_path: Path, kind: str) -> list[str]:
    program = tmp_path / "server.py"
    program.write_text(SERVER)
    return [sys.executable, str(program), str(ROOT / "examples"), kind]


@pytest.mark.contract("ADAPT-002")
@pytest.mark.parametrize("kind", ["mcp", "fastmcp"])
def test_the_same_calls_through_shim_and_in_process_leave_the_same_record(tmp_path: Path, kind: str) -> None:
    command = server_command(tmp_path, kind)
    shim_replies, shim_events = through_shim(tmp_path, command)
    own_replies, own_events = in_process(tmp_path, command)

    for ours, theirs in zip(told_by_both(own_events), told_by_both(shim_events), strict=True):
        assert comparable(ours) == comparable(theirs)
    assert {event["call"]["transport"] for event in own_events if event["type"] == "tool_call_start"} == {"in_process"}
    assert {event["call"]["transport"] for event in shim_events if event["type"] == "tool_call_start"} == {"mcp_stdio"}
    actions = {event["decision"]["action"] for event in own_events if event["type"] == "tool_call_decision"}
    assert actions == {"ALLOW", "BLOCK", "THROTTLE", "REJECT_WITH_HINT", "TERMINATE_RUN"}
    for line in own_events:
        decode_event(json.dumps(line).encode())

    shim_id, own_id = shim_events[0]["source"]["shim_id"], own_events[0]["source"]["shim_id"]
    for ours, theirs in zip(own_replies, shim_replies, strict=True):
        assert json.loads(json.dumps(ours).replace(own_id, shim_id)) == theirs, "the client cannot tell them apart"


@pytest.mark.contract("ADAPT-002")
def test_arguments_written_in_any_way_have_the_same_args_hash(tmp_path: Path) -> None:
    """White space, escapes, key order and spellings of numbers are the client's; the hash is of what they mean."""
    arguments = '{ "text" : "gr\\u00fc\\u00dfe",\t"n": 1.50, "big": 12345678901234567890123, "e": 1E2 }'
    for adapter in (Stdio(), OwnProcess("mcp", "mcp")):
        played = Played(adapter, tmp_path / adapter.name, "allow_all.yaml", ("add_note", arguments))
        assert played.actions == ["ALLOW"]
        (start,) = played.events.events_of("tool_call_start")
        assert start["call"]["args_hash"] == SPELLED_HASH
