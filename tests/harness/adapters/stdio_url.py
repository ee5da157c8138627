"""`sub shim --url`: a client on real pipes, a server behind a real socket."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

from harness.adapters.interface import Adapter, Session, Setting
from harness.adapters.stdio import agent_session, executed_file
from harness.http_servers import Heard, Wire, raw_server
from harness.shim import Shim
from harness.sink import EventFile


class StdioUrl(Adapter):
    """Replies come as JSON and as events in turn."""

    name = "stdio url"
    transport = "mcp_stdio"

    @contextmanager
    def start(self, setting: Setting) -> Iterator[Session]:
        executed = executed_file(setting)

        def list_tools(_: Heard, wire: Wire) -> None:
            tools = [{"name": tool, "inputSchema": {"type": "object"}} for tool in setting.all_tools]
            wire.json(wire.result({"tools": tools}))

        def call(heard: Heard, wire: Wire) -> None:
            tool = heard.message["params"]["name"]
            with open(executed, "a", encoding="utf-8") as file:
                file.write(json.dumps({"tool": tool}) + "\n")
            why = setting.all_tools.get(tool)
            result = wire.result({"content": [{"type": "text", "text": why or "done"}], "isError": why is not None})
            if len(server.of("tools/call")) % 2:
                wire.stream()
                wire.event(result)
            else:
                wire.json(result)

        events = EventFile(setting.place / "events.jsonl")
        with raw_server({"tools/list": list_tools, "tools/call": call}) as server:
            words = ["--url", server.url]
            shim = Shim(
                setting.place, setting.server_name, words, policy=setting.policy, events=events, env=dict(setting.env)
            )
            with agent_session(shim.start(), events, executed) as session:
                yield session
