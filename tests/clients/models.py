"""Fake model servers on loopback: enough of the Messages API and the Responses API to drive the real agent CLIs.

A server answers the requests of the main conversation from a script, one turn per request, and repeats a last text when
the script is used up. Every request body is kept, so that a test can look at what the model was shown. Requests that
are not the conversation (titles, token counts, model lists) get a plain answer and use up no turn.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Text:
    """The model says something, in pieces of `piece` characters."""

    text: str
    piece: int = 12


@dataclass(frozen=True)
class ToolCall:
    """The model calls a tool. An MCP tool is named by `server` and `tool`, a tool of the client's own by `tool`."""

    tool: str
    arguments: dict[str, Any] = field(default_factory=dict)
    server: str | None = None
    before: str = ""


@dataclass(frozen=True)
class ApiError:
    """The API refuses the request."""

    status: int
    type: str = "api_error"
    message: str = "scripted failure"


@dataclass(frozen=True)
class Stall:
    """The model begins to speak and then says nothing more, until the client goes away or the server closes."""

    text: str = "thinking about it"


@dataclass(frozen=True)
class Die:
    """The connection breaks in the middle of the answer."""

    text: str = "about to"


Turn = Text | ToolCall | ApiError | Stall | Die


class ModelServer:
    """One fake model API. Use as a context manager; `url` is its base address."""

    def __init__(self, turns: list[Turn], last: Turn | None = None) -> None:
        self._turns = list(turns)
        self._last = last or Text("Done.")
        self._lock = threading.Condition()
        self._closing = threading.Event()
        self.requests: list[dict[str, Any]] = []
        self.side_requests: list[tuple[str, dict[str, Any]]] = []
        handler = type("Handler", (_Handler,), {"server_model": self})
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}"
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)

    def __enter__(self) -> ModelServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        self._http.shutdown()
        self._http.server_close()

    def wait_for_requests(self, count: int, timeout: float = 30.0) -> None:
        """Until the conversation has made `count` requests."""
        with self._lock:
            if not self._lock.wait_for(lambda: len(self.requests) >= count, timeout):
                raise AssertionError(f"{len(self.requests)} of {count} model requests after {timeout} s")

    def take_turn(self, body: dict[str, Any]) -> Turn:
        with self._lock:
            self.requests.append(body)
            self._lock.notify_all()
            return self._turns.pop(0) if self._turns else self._last

    def stalled(self, connection: socket.socket) -> None:
        """Hold a connection open until the client leaves."""
        connection.settimeout(0.1)
        while not self._closing.is_set():
            try:
                if not connection.recv(1):
                    return
            except TimeoutError:
                continue
            except OSError:
                return

    # What each API adds.

    def is_conversation(self, path: str, body: dict[str, Any]) -> bool:
        raise AssertionError("a server of one API")

    def side_answer(self, path: str) -> dict[str, Any]:
        return {}

    def stream(self, turn: Turn, number: int) -> Iterator[tuple[str, dict[str, Any]]]:
        raise AssertionError("a server of one API")

    def error_body(self, turn: ApiError) -> dict[str, Any]:
        return {"type": "error", "error": {"type": turn.type, "message": turn.message}}

    def tools_offered(self, request: int = -1) -> list[str]:
        """Names of the tools in one request, by default the last."""
        raise AssertionError("a server of one API")

    def tool_outputs(self) -> list[str]:
        """What the model was shown as the outcome of its tool calls, in the last request."""
        raise AssertionError("a server of one API")


class MessagesServer(ModelServer):
    """The Anthropic Messages API: `POST /v1/messages`, answered as server-sent events."""

    def is_conversation(self, path: str, body: dict[str, Any]) -> bool:
        return path.split("?")[0] == "/v1/messages" and bool(body.get("tools"))

    def side_answer(self, path: str) -> dict[str, Any]:
        if "count_tokens" in path:
            return {"input_tokens": 10}
        return _message(0, [{"type": "text", "text": "ok"}])

    def tools_offered(self, request: int = -1) -> list[str]:
        return [tool["name"] for tool in self.requests[request].get("tools", [])]

    def tool_outputs(self) -> list[str]:
        blocks = [
            block
            for message in self.requests[-1]["messages"]
            if isinstance(message["content"], list)
            for block in message["content"]
        ]
        return [_flat(block.get("content", "")) for block in blocks if block.get("type") == "tool_result"]

    def stream(self, turn: Turn, number: int) -> Iterator[tuple[str, dict[str, Any]]]:
        yield _sse("message_start", message=_message(number, []))
        if isinstance(turn, ToolCall):
            index = 0
            if turn.before:
                yield from self._text_block(0, turn.before, 12)
                index = 1
            yield from self._tool_block(index, turn, number)
            stop = "tool_use"
        elif isinstance(turn, Text):
            yield from self._text_block(0, turn.text, turn.piece)
            stop = "end_turn"
        else:
            assert isinstance(turn, Stall | Die)
            yield from list(self._text_block(0, turn.text, 12))[:-1]
            return
        yield _sse("message_delta", delta={"stop_reason": stop, "stop_sequence": None}, usage={"output_tokens": 7})
        yield _sse("message_stop")

    def _text_block(self, index: int, text: str, piece: int) -> Iterator[tuple[str, dict[str, Any]]]:
        yield _sse("content_block_start", index=index, content_block={"type": "text", "text": ""})
        for start in range(0, len(text), piece):
            delta = {"type": "text_delta", "text": text[start : start + piece]}
            yield _sse("content_block_delta", index=index, delta=delta)
        yield _sse("content_block_stop", index=index)

    def _tool_block(self, index: int, turn: ToolCall, number: int) -> Iterator[tuple[str, dict[str, Any]]]:
        name = f"mcp__{turn.server}__{turn.tool}" if turn.server else turn.tool
        block = {"type": "tool_use", "id": f"toolu_{number:04}", "name": name, "input": {}}
        yield _sse("content_block_start", index=index, content_block=block)
        delta = {"type": "input_json_delta", "partial_json": json.dumps(turn.arguments)}
        yield _sse("content_block_delta", index=index, delta=delta)
        yield _sse("content_block_stop", index=index)


class ResponsesServer(ModelServer):
    """The OpenAI Responses API: `POST /responses`, answered as server-sent events."""

    def is_conversation(self, path: str, body: dict[str, Any]) -> bool:
        return path.split("?")[0].endswith("/responses")

    def side_answer(self, path: str) -> dict[str, Any]:
        return {"object": "list", "data": [], "models": []}

    def error_body(self, turn: ApiError) -> dict[str, Any]:
        return {"error": {"type": turn.type, "code": turn.type, "message": turn.message}}

    def tools_offered(self, request: int = -1) -> list[str]:
        """MCP tools as `namespace.name`, all others by name or type."""
        names = []
        for tool in self.requests[request].get("tools", []):
            if tool.get("type") == "namespace":
                names += [f"{tool['name']}.{inner['name']}" for inner in tool.get("tools", [])]
            else:
                names.append(tool.get("name") or tool["type"])
        return names

    def tool_outputs(self) -> list[str]:
        items = [item for item in self.requests[-1]["input"] if str(item.get("type", "")).endswith("call_output")]
        return [_flat(item.get("output", "")) for item in items]

    def stream(self, turn: Turn, number: int) -> Iterator[tuple[str, dict[str, Any]]]:
        response = {"id": f"resp_{number}", "object": "response", "status": "in_progress", "output": []}
        yield _sse("response.created", response=response)
        items: list[dict[str, Any]] = []
        if isinstance(turn, ToolCall):
            if turn.before:
                items.append((yield from self._text_item(turn.before, f"msg_{number}", 12, 0)))
            items.append((yield from self._call_item(turn, number, len(items))))
        elif isinstance(turn, Text):
            items.append((yield from self._text_item(turn.text, f"msg_{number}", turn.piece, 0)))
        else:
            assert isinstance(turn, Stall | Die)
            yield from list(self._text_item(turn.text, f"msg_{number}", 12, 0))[:-1]
            return
        usage = {
            "input_tokens": 11,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": 7,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": 18,
        }
        yield _sse("response.completed", response={**response, "status": "completed", "output": items, "usage": usage})

    def _text_item(self, text: str, item_id: str, piece: int, index: int) -> Iterator[tuple[str, dict[str, Any]]]:
        item: dict[str, Any] = {"type": "message", "id": item_id, "role": "assistant", "status": "in_progress"}
        yield _sse("response.output_item.added", output_index=index, item={**item, "content": []})
        for start in range(0, len(text), piece):
            delta = text[start : start + piece]
            yield _sse("response.output_text.delta", item_id=item_id, output_index=index, content_index=0, delta=delta)
        content = [{"type": "output_text", "text": text, "annotations": []}]
        item = {**item, "status": "completed", "content": content}
        yield _sse("response.output_item.done", output_index=index, item=item)
        return item

    def _call_item(self, turn: ToolCall, number: int, index: int) -> Iterator[tuple[str, dict[str, Any]]]:
        item: dict[str, Any] = {
            "type": "function_call",
            "id": f"fc_{number:04}",
            "call_id": f"call_{number:04}",
            "name": turn.tool,
            "arguments": json.dumps(turn.arguments),
            "status": "completed",
        }
        if turn.server:
            item["namespace"] = f"mcp__{turn.server}"
        yield _sse("response.output_item.added", output_index=index, item=item)
        yield _sse("response.output_item.done", output_index=index, item=item)
        return item


class _Handler(BaseHTTPRequestHandler):
    server_model: ModelServer
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self._json(200, {})

    def do_GET(self) -> None:
        self.server_model.side_requests.append((self.path, {}))
        self._json(200, self.server_model.side_answer(self.path))

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("content-length") or 0)) or b"{}")
        model = self.server_model
        if not model.is_conversation(self.path, body):
            model.side_requests.append((self.path, body))
            self._json(200, model.side_answer(self.path))
            return
        turn = model.take_turn(body)
        if isinstance(turn, ApiError):
            self._json(turn.status, model.error_body(turn))
            return
        try:
            self._events(turn, len(model.requests))
        except OSError:
            pass  # the client has gone

    def _events(self, turn: Turn, number: int) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        for name, value in self.server_model.stream(turn, number):
            self.wfile.write(f"event: {name}\ndata: {json.dumps(value)}\n\n".encode())
            self.wfile.flush()
            time.sleep(0.002)  # separate packets, so that clients see pieces and not one blob
        if isinstance(turn, Stall):
            self.server_model.stalled(self.connection)
        self.close_connection = True

    def _json(self, status: int, value: dict[str, Any]) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def _sse(name: str, **fields: Any) -> tuple[str, dict[str, Any]]:
    return name, {"type": name, **fields}


def _message(number: int, content: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "id": f"msg_{number:04}",
        "type": "message",
        "role": "assistant",
        "model": "claude-sonnet-4-5",
        "content": content,
        "stop_reason": "end_turn" if content else None,
        "stop_sequence": None,
        "usage": {"input_tokens": 11, "output_tokens": 1},
    }


def _flat(content: Any) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(_flat(part.get("text", part)) if isinstance(part, dict) else str(part) for part in content)
    return json.dumps(content)
