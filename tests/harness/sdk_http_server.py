"""Real MCP servers over HTTP, with the Python SDK: a process that is told line by line which ones to serve.

    {"json": true}      a new server; its port is printed. `json` (replies as JSON), `stateless`, `sse` (the transport
                        of 2024-11-05), `events` (an event store: streams can be resumed)
    {"restart": PORT}   it is ended, and begun again on its port: it knows nobody any more
    {"stop": PORT}

One process for all of them: loading the SDK takes seconds. It ends with its stdin.
"""

from __future__ import annotations

import json
import os
import sys
from threading import Thread
from typing import Annotated, Any

import anyio
import mcp_types as types
import uvicorn
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.streamable_http import EventStore
from pydantic import BaseModel, Field

from harness.ports import listening


class Answer(BaseModel):
    colour: str


class Kept(EventStore):
    """All events, in memory."""

    def __init__(self) -> None:
        self.events: list[tuple[str, Any]] = []

    async def store_event(self, stream_id: str, message: Any) -> str:
        self.events.append((stream_id, message))
        return str(len(self.events) - 1)

    async def replay_events_after(self, last_event_id: str, send_callback: Any) -> str | None:
        from mcp.server.streamable_http import EventMessage

        begin = int(last_event_id)
        stream = self.events[begin][0]
        for number, (of, message) in enumerate(self.events):
            if number > begin and of == stream and message is not None:
                await send_callback(EventMessage(message, str(number)))
        return stream


def make_server() -> MCPServer:
    server = MCPServer("sdk", log_level="CRITICAL")
    ran: list[str] = []

    @server.tool()
    def echo(text: str) -> str:
        ran.append(text)
        return text

    @server.tool()
    def what_ran() -> str:
        return json.dumps(ran)

    @server.tool()
    def headers(context: Context) -> str:
        """What came with this very call."""
        return json.dumps(dict(context.headers or {}))

    @server.tool()
    def big(size: int) -> str:
        return "x" * size

    @server.tool()
    def size_of(text: str) -> str:
        return str(len(text))

    @server.tool()
    def routed(
        region: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Region"})],
        count: Annotated[int, Field(json_schema_extra={"x-mcp-header": "Count"})] = 0,
    ) -> str:
        return f"{region} {count}"

    @server.tool()
    async def ask(context: Context) -> str:
        answer = await context.elicit("Which colour?", Answer)
        return answer.data.colour if answer.action == "accept" else answer.action

    @server.tool()
    async def think(context: Context) -> str:
        message = types.SamplingMessage(role="user", content=types.TextContent(text="well?"))
        result = await context.request_context.session.create_message([message], max_tokens=10)
        return result.content.text

    @server.tool()
    async def where(context: Context) -> str:
        result = await context.request_context.session.list_roots()
        return ",".join(str(root.uri) for root in result.roots)

    @server.tool()
    async def progress(steps: int, context: Context) -> str:
        for step in range(steps):
            await context.report_progress(step + 1, steps)
        return "done"

    @server.tool()
    async def cut(context: Context) -> str:
        """Ends the stream of its own call, and goes on."""
        await context.info("an event has an id, and by it the stream is gone on with")
        close = context.request_context.close_sse_stream
        if close is not None:
            await close()
        return "after the cut" if close is not None else "never cut"

    @server.tool()
    async def hang() -> str:
        await anyio.sleep_forever()

    return server


class Served:
    def __init__(self, options: dict[str, Any], port: int = 0) -> None:
        self.options = options
        listener = listening(port, backlog=512)
        self.port = int(listener.getsockname()[1])
        config = uvicorn.Config(make_app(options), log_level="critical", timeout_graceful_shutdown=0)
        self.server = uvicorn.Server(config)
        self.thread = Thread(target=self.server.run, args=([listener],), daemon=True)
        self.thread.start()

    def stop(self) -> None:
        self.server.should_exit = self.server.force_exit = True
        self.thread.join()


def make_app(options: dict[str, Any]) -> Any:
    server = make_server()
    if options.get("sse"):
        return server.sse_app()
    return server.streamable_http_app(
        json_response=options.get("json", False),
        stateless_http=options.get("stateless", False),
        event_store=Kept() if options.get("events") else None,
        retry_interval=50 if options.get("events") else None,
        max_request_body_size=1 << 30,
    )


def main() -> None:
    served: dict[int, Served] = {}
    for line in sys.stdin:
        wanted = json.loads(line)
        port = wanted.get("restart") or wanted.get("stop")
        if port is None:
            new = Served(wanted)
        else:
            served[port].stop()
            if "stop" in wanted:
                print(port, flush=True)
                continue
            new = Served(served[port].options, port)
        served[new.port] = new
        print(new.port, flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
