"""Servers of every in-process host, the example policy, and one script of calls that meets each of its rules."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.sink import EventFile

EXAMPLES = Path(__file__).resolve().parent.parent.parent / "examples"
POLICY = EXAMPLES / "policy.yaml"
# tool, arguments, the code of the refusal or None
SCRIPT: list[tuple[str, dict[str, Any], int | None]] = [
    ("add_note", {"text": "one"}, None),
    ("search", {"word": "one"}, None),
    ("search", {"word": "two"}, None),
    ("search", {"word": "three"}, -32082),
    ("delete_note", {"number": 1}, -32081),
    ("add_note", {"text": "two"}, None),
    ("add_note", {"text": "three"}, -32083),
    ("export_all", {}, None),
    ("export_all", {}, -32084),
    ("search", {"word": "after the end"}, -32084),
]
# Every decision of that policy, a tool that fails, and text that must be counted in bytes.
CALLS: list[tuple[str, Any]] = [
    ("add_note", {"text": 'grüße \U0001f600 "quoted" \\ and /slash'}),
    ("search", {"word": "a"}),
    ("search", {"word": "b"}),
    ("search", {"word": "c"}),
    ("delete_note", {"number": 1}),
    ("add_note", {"text": "two", "extra": [1, 2.5, None, True, {"b": 1, "a": -0.125}]}),
    ("add_note", {"text": "three"}),
    ("fail", {"why": "on purpose"}),
    ("export_all", {}),
    ("export_all", {}),
    ("search", {"word": "after the end"}),
]
ACTIONS = {None: "ALLOW", -32081: "BLOCK", -32082: "THROTTLE", -32083: "REJECT_WITH_HINT", -32084: "TERMINATE_RUN"}


def isolate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> EventFile:
    """This very process as a host of its own: no SUB_* of the machine, a home below tmp_path, events to a file."""
    for name in [name for name in os.environ if name.startswith("SUB_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SUB_HOME", str(tmp_path / "sub"))
    monkeypatch.setenv("SUB_RUN_ID", "run-1")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(EXAMPLES))
    for name in ("notes", "mcp_server", "fastmcp_server"):
        sys.modules.pop(name, None)
    events = EventFile(tmp_path / "events.jsonl")
    monkeypatch.setenv("SUB_EVENTS", events.argument)
    return events


def mcp_server(*tools: Callable[..., Any], name: str = "notes") -> Any:
    from mcp.server.mcpserver import MCPServer

    server = MCPServer(name, log_level="CRITICAL")
    for tool in tools:
        server.add_tool(tool)
    return server


def fastmcp_server(*tools: Callable[..., Any], name: str = "notes") -> Any:
    from fastmcp import FastMCP

    server: Any = FastMCP(name)
    for tool in tools:
        server.tool(tool)
    return server


async def play(client: Any) -> list[tuple[int | None, Any]]:
    """The whole script through an official client: (code, data or result) of each call."""
    from mcp.shared.exceptions import MCPError

    outcomes: list[tuple[int | None, Any]] = []
    for tool, arguments, _ in SCRIPT:
        try:
            outcomes.append((None, await client.call_tool(tool, arguments)))
        except MCPError as error:
            outcomes.append((error.error.code, error.error.data))
    return outcomes


def check_script(outcomes: list[tuple[int | None, Any]], events: EventFile) -> None:
    """Every call had its answer, and the record says the same."""
    assert [code for code, _ in outcomes] == [code for _, _, code in SCRIPT]
    decisions = [event["decision"]["action"] for event in events.events_of("tool_call_decision")]
    assert decisions == [ACTIONS[code] for _, _, code in SCRIPT]
    starts = events.events_of("tool_call_start")
    assert [start["call"]["tool_name"] for start in starts] == [tool for tool, _, _ in SCRIPT]
    assert {(start["call"]["server_name"], start["call"]["transport"]) for start in starts} == {("notes", "in_process")}
    assert len(events.events_of("tool_call_end")) == len(SCRIPT)
    for start, (code, data) in zip(starts, outcomes, strict=True):
        if code is not None:
            told = data["subluminal"]
            assert (told["call_id"], told["args_hash"]) == (start["call"]["call_id"], start["call"]["args_hash"])
            assert told["action"] == ACTIONS[code]
            assert ("backoff_ms" in told, "hint" in told) == (code == -32082, code == -32083)
