"""Real servers of mcp 2.x and fastmcp 4.x, driven by their official clients, in memory and over stdio."""

from __future__ import annotations

import asyncio
import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.in_process import EXAMPLES, POLICY, check_script, fastmcp_server, isolate, mcp_server, play
from harness.shim import isolated_env
from harness.sink import EventFile
from subluminal.adapters.in_process import protect
from subluminal.contracts.errors import UsageError

pytest.importorskip("mcp.server.mcpserver", reason="mcp 2.x is not installed")
pytest.importorskip("fastmcp", reason="fastmcp is not installed")


@pytest.fixture
def events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> EventFile:
    return isolate(tmp_path, monkeypatch)


def client_of(server: Any) -> Any:
    if type(server).__module__.startswith("fastmcp"):
        from fastmcp import Client as FastClient

        return FastClient(server)
    from mcp import Client

    return Client(server)


def in_memory(server: Any, talk: Any) -> Any:
    async def run() -> Any:
        async with client_of(server) as client:
            return await talk(client)

    return asyncio.run(run())


@pytest.mark.contract("ADAPT-003")
@pytest.mark.parametrize("example", ["mcp_server", "fastmcp_server"])
def test_an_example_server_in_memory_answers_each_decision_with_its_code(events: EventFile, example: str) -> None:
    server = importlib.import_module(example).make_server()
    outcomes = in_memory(server, play)
    check_script(outcomes, events)


@pytest.mark.parametrize("example", ["mcp_server", "fastmcp_server"])
def test_an_example_server_over_stdio_answers_the_same(tmp_path: Path, example: str) -> None:
    from mcp import Client, StdioServerParameters

    events = EventFile(tmp_path / "events.jsonl")
    env = isolated_env(tmp_path, SUB_EVENTS=events.argument)
    program = str(EXAMPLES / f"{example}.py")
    parameters = StdioServerParameters(command=sys.executable, args=[program], env=env, cwd=str(tmp_path))

    async def run() -> Any:
        async with Client(parameters) as client:
            return await play(client)

    outcomes = asyncio.run(run())
    events.wait_type("run_end")
    check_script(outcomes, events)
    assert events.types()[:2] == ["run_start", "policy_loaded"]
    assert events.events_of("run_end")[0]["run"]["status"] == "TERMINATED"


@pytest.mark.parametrize("make", [mcp_server, fastmcp_server])
def test_protect_is_one_line_for_every_host(events: EventFile, make: Any) -> None:
    from notes import TOOLS

    server = make(*TOOLS)
    calls = protect(server, policy=POLICY)
    check_script(in_memory(server, play), events)
    calls.close()
    assert events.types()[-1] == "run_end"


def test_the_low_level_server_of_the_sdk_can_be_protected(events: EventFile) -> None:
    import mcp_types as types
    from mcp.server.lowlevel.server import Server

    async def on_call(ctx: Any, params: Any) -> Any:
        return types.CallToolResult(content=[types.TextContent(type="text", text=params.name)])

    async def on_list(ctx: Any, params: Any) -> Any:
        return types.ListToolsResult(tools=[])

    server: Any = Server("notes", on_call_tool=on_call, on_list_tools=on_list)
    protect(server, policy=POLICY)
    check_script(in_memory(server, play), events)


def test_a_tool_that_fails_is_recorded_as_the_client_sees_it(events: EventFile) -> None:
    def fail(why: str) -> str:
        raise ValueError(why)

    server = mcp_server(fail)
    protect(server, policy=POLICY)
    result = in_memory(server, lambda client: client.call_tool("fail", {"why": "on purpose"}))
    assert result.is_error
    (end,) = events.events_of("tool_call_end")
    assert (end["status"], end["error"]["class"]) == ("ERROR", "upstream_error")
    assert end["error"]["message"] == result.content[0].text
    assert end["bytes_out"] > 0


def test_fastmcp_middleware_sees_a_failing_tool_as_well(events: EventFile) -> None:
    from fastmcp.exceptions import ToolError

    from subluminal.adapters.in_process.fast_mcp import SubluminalMiddleware

    def fail(why: str) -> str:
        raise ValueError(why)

    server = fastmcp_server(fail)
    middleware = SubluminalMiddleware(policy=POLICY)
    server.add_middleware(middleware)
    with pytest.raises(ToolError):
        in_memory(server, lambda client: client.call_tool("fail", {"why": "on purpose"}))
    middleware.close()
    (end,) = events.events_of("tool_call_end")
    assert end["status"] == "ERROR"


def test_annotations_raise_the_risk_class_of_a_tool(events: EventFile) -> None:
    from mcp_types import ToolAnnotations

    def wipe() -> str:
        return "wiped"

    def peek() -> str:
        return "seen"

    policy = Path.cwd() / "policy.json"
    policy.write_text(
        '{"policy_id":"p","version":"1","mode":"guardrails","defaults":{"decision_on_error":"BLOCK"},"selectors":{},'
        '"rules":[{"rule_id":"no-writes","kind":"deny","enabled":true,"severity":"warn",'
        '"match":{"risk_class":["write_like"]},"effect":{"action":"BLOCK"}}]}'
    )
    for make in (mcp_server, fastmcp_server):
        server = make(peek)
        (server.add_tool if make is mcp_server else server.tool)(
            wipe, annotations=ToolAnnotations(destructive_hint=True)
        )
        if make is mcp_server:
            protect(server, policy=policy)
        else:
            from subluminal.adapters.in_process.fast_mcp import SubluminalMiddleware

            server.add_middleware(SubluminalMiddleware(policy=policy))

        async def talk(client: Any) -> None:
            await client.list_tools()
            await client.call_tool("peek", {})
            with pytest.raises(Exception, match="no-writes"):
                await client.call_tool("wipe", {})

        in_memory(server, talk)


def test_protect_stands_outside_retries_and_sees_the_names_the_client_uses(events: EventFile) -> None:
    from fastmcp.server.middleware.error_handling import RetryMiddleware

    attempts: list[int] = []

    def flaky() -> str:
        attempts.append(1)
        raise ConnectionError("again")

    child = fastmcp_server(flaky, name="child")
    server = fastmcp_server()
    server.mount(child, namespace="kid")
    server.add_middleware(RetryMiddleware(max_retries=2, base_delay=0.001, retry_exceptions=(Exception,)))
    protect(server, policy=POLICY)

    async def talk(client: Any) -> None:
        for tool in ("kid_flaky", "delete_all"):
            with pytest.raises(Exception, match=r"flaky|again|no-deletes"):
                await client.call_tool(tool, {})

    in_memory(server, talk)
    starts = [event["call"]["tool_name"] for event in events.events_of("tool_call_start")]
    assert starts == ["kid_flaky", "delete_all"], "one judgement per call of the client, under its own name"
    assert len(attempts) > 1


def test_what_is_no_server_is_refused_with_a_sentence() -> None:
    with pytest.raises(UsageError, match="not a server that can be protected"):
        protect(object(), server_name="x")
    with pytest.raises(UsageError, match="no name"):
        protect(object())
