"""Servers that protect themselves, each host in memory with its official client, on a loop of its own."""

from __future__ import annotations

import inspect
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import chdir, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from harness.adapters.interface import Adapter, Outcome, Session, Setting
from harness.shim import isolated_env, write_policy
from harness.sink import EventFile

Tool = Callable[..., Any]


@contextmanager
def as_its_own_process(place: Path, env: Mapping[str, str]) -> Iterator[None]:
    """This very process with the surroundings of another: nothing of the machine's SUB_* and no home but `place`."""
    with mock.patch.dict(os.environ, isolated_env(place, **env), clear=True), chdir(place):
        yield


def make_tool(name: str, arguments: Iterable[str], failure: str | None, executed: list[str]) -> Tool:
    """Hosts read the signature to know what a tool takes."""

    def tool(**given: Any) -> str:
        executed.append(name)
        if failure is not None:
            raise ValueError(failure)
        return "ok"

    kind = inspect.Parameter.KEYWORD_ONLY
    takes = [inspect.Parameter(each, kind, default=None, annotation=Any) for each in sorted(arguments)]
    tool.__name__ = name
    tool.__annotations__ = {**{each.name: Any for each in takes}, "return": str}
    tool.__signature__ = inspect.Signature(takes, return_annotation=str)  # type: ignore[attr-defined]
    return tool


class InProcessSession(Session):
    def __init__(self, portal: Any, call_tool: Callable[..., Any], events: EventFile, executed: list[str]) -> None:
        self._portal = portal
        self._call_tool = call_tool
        self.events = events
        self._executed = executed

    @property
    def executed(self) -> list[str]:
        return self._executed

    def call_text(self, tool: str, arguments: str) -> Outcome:
        from mcp.shared.exceptions import MCPError

        try:
            result = self._portal.call(self._call_tool, tool, json.loads(arguments))
        except MCPError as error:
            return Outcome(error.error.code, error.error.message, error.error.data["subluminal"])
        return Outcome(failed=bool(result.is_error))


class InProcess(Adapter):
    """One host. `make` builds its server, unprotected, from tools; `guard` protects it and gives what ends the run."""

    transport = "in_process"

    def __init__(self, name: str, make: Callable[[str, list[Tool]], Any], guard: Callable[..., Any]) -> None:
        self.name = name
        self._make = make
        self._guard = guard

    @contextmanager
    def start(self, setting: Setting) -> Iterator[Session]:
        from anyio.from_thread import start_blocking_portal

        executed: list[str] = []
        events = EventFile(setting.place / "events.jsonl")
        tools = [make_tool(tool, setting.arguments, why, executed) for tool, why in setting.all_tools.items()]
        with as_its_own_process(setting.place, setting.env):
            server = self._make(setting.server_name, tools)
            policy = write_policy(setting.place, setting.policy)
            guard = self._guard(server, policy=policy, events=events.argument)
            client, options = client_of(server)
            with start_blocking_portal() as portal, portal.wrap_async_context_manager(client) as session:

                async def call_tool(tool: str, given: Any) -> Any:
                    return await session.call_tool(tool, given, **options)

                portal.call(session.list_tools)  # as every client does before it calls one
                yield InProcessSession(portal, call_tool, events, executed)
            guard.close()


def client_of(server: Any) -> tuple[Any, dict[str, Any]]:
    """The host's own client, and what makes it hand failures over instead of raising them."""
    if type(server).__module__.startswith("fastmcp"):
        from fastmcp import Client as FastClient

        return FastClient(server), {"raise_on_error": False}
    from mcp import Client

    return Client(server), {}


def mcp_server(name: str, tools: list[Tool]) -> Any:
    from mcp.server.mcpserver import MCPServer

    server = MCPServer(name, log_level="CRITICAL")
    for tool in tools:
        server.add_tool(tool)
    return server


def low_level_server(name: str, tools: list[Tool]) -> Any:
    import mcp_types as types
    from mcp.server.lowlevel import Server

    known = {tool.__name__: tool for tool in tools}

    async def on_call(ctx: Any, params: Any) -> Any:
        try:
            text, failed = known[params.name](**(params.arguments or {})), False
        except Exception as error:
            text, failed = str(error), True
        return types.CallToolResult(content=[types.TextContent(type="text", text=text)], is_error=failed)

    async def on_list(ctx: Any, params: Any) -> Any:
        schema = {"type": "object"}
        return types.ListToolsResult(tools=[types.Tool(name=tool, input_schema=schema) for tool in known])

    return Server(name, on_call_tool=on_call, on_list_tools=on_list)


def fastmcp_server(name: str, tools: list[Tool]) -> Any:
    from fastmcp import FastMCP

    server: Any = FastMCP(name)
    for tool in tools:
        server.tool(tool)
    return server


def protected(server: Any, **options: Any) -> Any:
    from subluminal.adapters.in_process import protect

    return protect(server, **options)


def with_middleware(server: Any, **options: Any) -> Any:
    from subluminal.adapters.in_process.fast_mcp import SubluminalMiddleware

    middleware = SubluminalMiddleware(**options)
    server.add_middleware(middleware)
    return middleware
