"""Many calls at once through one in-process server, sinks that take nothing, and a server killed in the middle."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.in_process import POLICY, isolate, mcp_server
from harness.shim import isolated_env
from harness.sink import EventFile
from subluminal.adapters.in_process import protect
from subluminal.adapters.tool_lock import (
    MiddlewareRequest,
    ToolAdmissionDeniedError,
    ToolLockAdapterOptions,
    create_tool_lock_adapter,
)
from subluminal.admission import bind_call, registry_from_policy

pytest.importorskip("mcp.server.mcpserver", reason="mcp 2.x is not installed")

CALLS = 1000
LIMIT = 400


def budget_policy(tmp_path: Path) -> str:
    rule = {
        "rule_id": "limit",
        "kind": "budget",
        "enabled": True,
        "severity": "warn",
        "match": {},
        "effect": {"budget": {"scope": "run", "limit_calls": LIMIT, "on_exceed": "BLOCK"}},
    }
    bundle = {"policy_id": "p", "version": "1", "mode": "guardrails", "defaults": {"decision_on_error": "BLOCK"}}
    path = tmp_path / "policy.json"
    path.write_text(json.dumps({**bundle, "selectors": {}, "rules": [rule]}))
    return str(path)


@pytest.fixture
def events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> EventFile:
    return isolate(tmp_path, monkeypatch)


def test_a_thousand_calls_at_once_keep_the_budget_exact(events: EventFile, tmp_path: Path) -> None:
    from mcp import Client

    executed: list[int] = []

    async def work(number: int) -> str:
        await asyncio.sleep(0)
        executed.append(number)
        return str(number)

    server = mcp_server(work)
    calls = protect(server, policy=budget_policy(tmp_path))

    async def run() -> list[Any]:
        async with Client(server) as client:
            many = (client.call_tool("work", {"number": number}) for number in range(CALLS))
            return await asyncio.gather(*many, return_exceptions=True)

    results = asyncio.run(run())
    calls.close()
    refused = [result for result in results if isinstance(result, Exception)]
    assert (len(executed), len(refused)) == (LIMIT, CALLS - LIMIT)
    assert {error.error.code for error in refused} == {-32081}
    decisions = [event["decision"]["action"] for event in events.events_of("tool_call_decision")]
    assert (decisions.count("ALLOW"), decisions.count("BLOCK")) == (LIMIT, CALLS - LIMIT)
    assert [event["source"]["seq"] for event in events.events()] == list(range(1, len(events.events()) + 1))
    assert [event["call"]["seq"] for event in events.events_of("tool_call_start")] == list(range(1, CALLS + 1))
    ends = {event["call"]["call_id"]: event["status"] for event in events.events_of("tool_call_end")}
    assert len(ends) == CALLS
    summary = events.events_of("run_end")[0]["run"]["summary"]
    assert (summary["calls_total"], summary["calls_allowed"], summary["calls_blocked"]) == (CALLS, LIMIT, CALLS - LIMIT)


def test_a_thousand_calls_through_the_stage_keep_order_and_count(events: EventFile, tmp_path: Path) -> None:
    registry = registry_from_policy(budget_policy(tmp_path))
    journal: list[tuple[str, int]] = []
    options = ToolLockAdapterOptions(
        on_event=lambda event: journal.append(("event", event.at)), on_deny=lambda reason: journal.append(("deny", 0))
    )
    stage = create_tool_lock_adapter(registry, options)

    async def one(number: int) -> str:
        state = bind_call(server_name="s", args=b'{"n":%d}' % number)
        try:
            await stage(MiddlewareRequest("ada", "work", None, state), registry.watched(lambda: asyncio.sleep(0)))
        except ToolAdmissionDeniedError:
            journal.append(("rejected", 0))
            return "denied"
        return "done"

    async def run() -> list[str]:
        return await asyncio.gather(*(one(number) for number in range(CALLS)))

    outcomes = asyncio.run(run())
    registry.close()
    assert (outcomes.count("done"), outcomes.count("denied")) == (LIMIT, CALLS - LIMIT)
    denials = CALLS - LIMIT
    assert [word for word, _ in journal] == ["event", "deny", "rejected"] * denials
    assert [at for word, at in journal if word == "event"] == list(range(1, denials + 1))


def test_a_sink_that_nobody_reads_never_stops_the_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from subluminal.adapters.in_process.mcp_sdk import SubluminalMiddleware

    isolate(tmp_path, monkeypatch)
    reader, writer = os.pipe()
    monkeypatch.setenv("SUB_EVENTS", f"fd:{writer}")
    middleware = SubluminalMiddleware("notes", POLICY)

    async def rest(ctx: Any) -> dict[str, Any]:
        return {"content": []}

    async def run() -> None:
        for number in range(500):
            params = {"name": "look", "arguments": {"text": "x" * 500, "n": number}}
            await middleware(SimpleNamespace(method="tools/call", request_id=number, params=params), rest)

    asyncio.run(run())
    middleware.close()
    os.set_blocking(reader, False)
    seen = os.read(reader, 1 << 20)
    spilled = b"".join(path.read_bytes() for path in (tmp_path / "sub" / "spool").glob("*.jsonl"))
    os.close(reader)
    os.close(writer)
    whole = [json.loads(line) for line in (seen[: seen.rfind(b"\n") + 1] + spilled).splitlines()]
    assert sum(event["type"] == "tool_call_decision" for event in whole) == 500, "what the pipe did not take is spooled"


def test_a_server_killed_at_any_moment_has_recorded_every_answer(tmp_path: Path) -> None:
    events = EventFile(tmp_path / "events.jsonl")
    env = isolated_env(tmp_path, SUB_EVENTS=events.argument)
    program = (
        "from mcp.server.mcpserver import MCPServer\n"
        "from subluminal.adapters.in_process import protect\n"
        "server = MCPServer('notes', log_level='ERROR')\n"
        "@server.tool()\n"
        "def look(n: int) -> str:\n"
        "    return str(n)\n"
        "protect(server)\n"
        "server.run('stdio')\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program], env=env, cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdin is not None and process.stdout is not None

    def ask(number: int, method: str, params: dict[str, Any]) -> dict[str, Any]:
        assert process.stdin is not None and process.stdout is not None
        message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        process.stdin.write(json.dumps(message).encode() + b"\n")
        process.stdin.flush()
        reply: dict[str, Any] = json.loads(process.stdout.readline())
        return reply

    try:
        hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
        ask(1, "initialize", hello)
        process.stdin.write(b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n')
        process.stdin.flush()
        for number in range(2, 40):
            assert "result" in ask(number, "tools/call", {"name": "look", "arguments": {"n": number}})
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait(20)
        process.stdin.close()
        process.stdout.close()
    assert len(events.events_of("tool_call_decision")) == len(events.events_of("tool_call_end")) == 38
