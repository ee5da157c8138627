"""MCP over HTTP, at either end: `sub proxy mcp` before a command or a URL."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from harness.adapters.interface import Adapter, Outcome, Session, Setting
from harness.adapters.stdio import executed_file, outcome_of
from harness.fake_server import fake_server
from harness.http_servers import Heard, RawServer, Wire, raw_server
from harness.proxy import Proxy, proxy
from harness.sink import EventFile

# Who acts is said with each request: the environment of a proxy is not that of its clients.
IDENTITY = {"SUB_RUN_ID": "Subluminal-Run-Id", "SUB_AGENT_ID": "Subluminal-Agent-Id"}


@contextmanager
def tools_behind_a_url(setting: Setting, executed: Path) -> Iterator[RawServer]:
    def listed(heard: Heard, wire: Wire) -> None:
        wire.json(wire.result({"tools": [{"name": tool, "inputSchema": {}} for tool in setting.all_tools]}))

    def called(heard: Heard, wire: Wire) -> None:
        tool = heard.message["params"]["name"]
        with executed.open("a") as file:
            file.write(json.dumps({"tool": tool}) + "\n")
        why = setting.all_tools[tool]
        result: dict[str, Any] = {"content": [{"type": "text", "text": why or "done"}]}
        wire.json(wire.result(result if why is None else {**result, "isError": True}))

    with raw_server({"tools/list": listed, "tools/call": called}) as server:
        yield server


class HttpSession(Session):
    def __init__(self, door: Proxy, executed: Path) -> None:
        self.door = door
        self.events: EventFile = door.events
        self._executed = executed
        self._calls = 0

    @property
    def executed(self) -> list[str]:
        return [json.loads(line)["tool"] for line in self._executed.read_text().splitlines()]

    def call_text(self, tool: str, arguments: str) -> Outcome:
        self._calls += 1
        params = f'{{"name":{json.dumps(tool, ensure_ascii=False)},"arguments":{arguments}}}'
        body = f'{{"jsonrpc":"2.0","id":"call-{self._calls}","method":"tools/call","params":{params}}}'
        answer = self.door.post(body.encode())
        assert answer.status == 200, (answer.status, answer.body)
        return outcome_of(answer.json())


@contextmanager
def http_session(door: Proxy, setting: Setting, executed: Path) -> Iterator[Session]:
    door.headers = {header: setting.env[name] for name, header in IDENTITY.items() if name in setting.env}
    door.initialize()
    door.post({"jsonrpc": "2.0", "id": "list", "method": "tools/list"})
    yield HttpSession(door, executed)


class HttpProcess(Adapter):
    name = "http, process"
    transport = "mcp_http"

    @contextmanager
    def start(self, setting: Setting) -> Iterator[Session]:
        executed = executed_file(setting)
        behaviours = {tool: {} if why is None else {"is_error": why} for tool, why in setting.all_tools.items()}
        command = fake_server(tools=behaviours, executed=str(executed))
        options: dict[str, Any] = {"name": setting.server_name, "command": command, "env": dict(setting.env)}
        with (
            proxy(setting.place, setting.policy, **options) as door,  # type: ignore[arg-type]
            http_session(door, setting, executed) as session,
        ):
            yield session


class HttpUrl(Adapter):
    name = "http, url"
    transport = "mcp_http"

    @contextmanager
    def start(self, setting: Setting) -> Iterator[Session]:
        executed = executed_file(setting)
        with tools_behind_a_url(setting, executed) as server:
            options: dict[str, Any] = {"name": setting.server_name, "url": server.url, "env": dict(setting.env)}
            with (
                proxy(setting.place, setting.policy, **options) as door,  # type: ignore[arg-type]
                http_session(door, setting, executed) as session,
            ):
                yield session
