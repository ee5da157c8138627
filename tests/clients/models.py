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
from collections.abc import Callable, Iterator
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
    """The model calls a tool. An MCP tool is named by `server` and `tool`, a tool of the client's own by `tool`.

    Of `arguments` that are a text the Responses API makes the input of a free-form tool."""

    tool: str
    arguments: dict[str, Any] | str = field(default_factory=dict)
    server: str | None = None
    before: str = ""


@dataclass(frozen=True)
class Together:
    """The model calls several tools in one answer."""

    calls: tuple[ToolCall, ...]


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
    """The connection breaks in the middle of the answer: within some text, or within `call`."""

    text: str = "about to"
    call: ToolCall | None = None


@dataclass(frozen=True)
class Decided:
    """What the model does depends on what it was shown, or on what has happened meanwhile: `by` is asked then."""

    by: Callable[[ModelServer], Turn]


Turn = Text | ToolCall | Together | ApiError | Stall | Die | Decided


@dataclass(frozen=True)
class Seen:
    """A request as it arrived, byte for byte."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


# How the task of a sub-agent begins, so that its requests are told from those of the main conversation.
AGENT = "As the agent beside me:"


class ModelServer:
    """One fake model API. Use as a context manager; `url` is its base address."""

    def __init__(self, turns: list[Turn], last: Turn | None = None) -> None:
        self._turns = list(turns)
        self.agent_turns: list[Turn] = []  # answers to sub-agents, which begin with AGENT
        self._last = last or Text("Done.")
        self._lock = threading.Condition()
        self._closing = threading.Event()
        self.usage: dict[str, Any] = {}  # what the model states beside its usual numbers
        self.numbered_from = 0  # ids in a session that goes on must be new
        self.seen: list[Seen] = []  # all requests, those of the conversation and others
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

    def add_turns(self, *turns: Turn) -> None:
        with self._lock:
            self._turns += turns

    def take_turn(self, body: dict[str, Any]) -> Turn:
        with self._lock:
            self.requests.append(body)
            self._lock.notify_all()
            script = self.agent_turns if self.is_sub_agent(body) else self._turns
            turn = script.pop(0) if script else self._last
        return turn.by(self) if isinstance(turn, Decided) else turn

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

    def recorded(self, method: str, path: str, headers: dict[str, str], body: bytes) -> None:
        with self._lock:
            self.seen.append(Seen(method, path, headers, body))

    # What each API adds.

    def is_conversation(self, path: str, body: dict[str, Any]) -> bool:
        raise AssertionError("a server of one API")

    def is_sub_agent(self, body: dict[str, Any]) -> bool:
        return False

    def side_answer(self, path: str) -> dict[str, Any]:
        return {}

    def stream(self, turn: Turn, number: int) -> Iterator[tuple[str, dict[str, Any]]]:
        raise AssertionError("a server of one API")

    def whole(self, turn: Turn, number: int) -> dict[str, Any]:
        """The answer to a request that asks for no stream."""
        raise AssertionError("an API whose client always asks for a stream")

    def error_body(self, turn: ApiError) -> dict[str, Any]:
        return {"type": "error", "error": {"type": turn.type, "message": turn.message}}

    def tools_offered(self, request: int = -1) -> list[str]:
        """Names of the tools in one request, by default the last."""
        raise AssertionError("a server of one API")

    def tool_outputs(self, request: int = -1) -> list[str]:
        """What the model was shown as the outcome of its tool calls, by default in the last request."""
        raise AssertionError("a server of one API")

    def tool_calls(self, request: int = -1) -> list[tuple[str, Any]]:
        """The calls that the model was shown as its own: name, and input as it wrote it."""
        raise AssertionError("a server of one API")


class MessagesServer(ModelServer):
    """The Anthropic Messages API: `POST /v1/messages`, answered as server-sent events."""

    def is_sub_agent(self, body: dict[str, Any]) -> bool:
        return AGENT in _flat(body["messages"][0]["content"])

    def is_conversation(self, path: str, body: dict[str, Any]) -> bool:
        return path.split("?")[0] == "/v1/messages" and bool(body.get("tools"))

    def side_answer(self, path: str) -> dict[str, Any]:
        if "count_tokens" in path:
            return {"input_tokens": 10}
        return _message(0, [{"type": "text", "text": "ok"}])

    def tools_offered(self, request: int = -1) -> list[str]:
        return [tool["name"] for tool in self.requests[request].get("tools", [])]

    def tool_outputs(self, request: int = -1) -> list[str]:
        return [_flat(block.get("content", "")) for block in self._blocks(request) if block["type"] == "tool_result"]

    def tool_calls(self, request: int = -1) -> list[tuple[str, Any]]:
        return [(block["name"], block["input"]) for block in self._blocks(request) if block["type"] == "tool_use"]

    def _blocks(self, request: int) -> list[dict[str, Any]]:
        messages = self.requests[request]["messages"]
        return [block for each in messages if isinstance(each["content"], list) for block in each["content"]]

    def stream(self, turn: Turn, number: int) -> Iterator[tuple[str, dict[str, Any]]]:
        yield _sse("message_start", message=_message(number, [], self.usage))
        if isinstance(turn, ToolCall | Together):
            index = 0
            for name, call in _named_calls(turn, number):
                if call.before:
                    yield from self._text_block(index, call.before, 12)
                    index += 1
                yield from self._tool_block(index, call, name)
                index += 1
            stop = "tool_use"
        elif isinstance(turn, Text):
            yield from self._text_block(0, turn.text, turn.piece)
            stop = "end_turn"
        else:
            assert isinstance(turn, Stall | Die)
            cut = turn.call if isinstance(turn, Die) else None
            begun = self._tool_block(0, cut, f"{number:04}") if cut else self._text_block(0, turn.text, 12)
            yield from list(begun)[:-1]
            return
        yield _sse("message_delta", delta={"stop_reason": stop, "stop_sequence": None}, usage={"output_tokens": 7})
        yield _sse("message_stop")

    def whole(self, turn: Turn, number: int) -> dict[str, Any]:
        if isinstance(turn, Text):
            return _message(number, [{"type": "text", "text": turn.text}], self.usage)
        assert isinstance(turn, ToolCall | Together)
        blocks = [self._tool_use(call, name) | {"input": call.arguments} for name, call in _named_calls(turn, number)]
        return _message(number, blocks, self.usage) | {"stop_reason": "tool_use"}

    def _text_block(self, index: int, text: str, piece: int) -> Iterator[tuple[str, dict[str, Any]]]:
        yield _sse("content_block_start", index=index, content_block={"type": "text", "text": ""})
        for start in range(0, len(text), piece):
            delta = {"type": "text_delta", "text": text[start : start + piece]}
            yield _sse("content_block_delta", index=index, delta=delta)
        yield _sse("content_block_stop", index=index)

    def _tool_block(self, index: int, turn: ToolCall, number: str) -> Iterator[tuple[str, dict[str, Any]]]:
        yield _sse("content_block_start", index=index, content_block=self._tool_use(turn, number))
        delta = {"type": "input_json_delta", "partial_json": json.dumps(turn.arguments)}
        yield _sse("content_block_delta", index=index, delta=delta)
        yield _sse("content_block_stop", index=index)

    @staticmethod
    def _tool_use(turn: ToolCall, number: str) -> dict[str, Any]:
        name = f"mcp__{turn.server}__{turn.tool}" if turn.server else turn.tool
        return {"type": "tool_use", "id": f"toolu_{number}", "name": name, "input": {}}


class ResponsesServer(ModelServer):
    """The OpenAI Responses API: `POST /responses`, answered as server-sent events."""

    def is_sub_agent(self, body: dict[str, Any]) -> bool:
        told = [item for item in body["input"] if item.get("role") == "user"]
        return any(AGENT in _flat(item.get("content", "")) for item in told)

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

    def tool_outputs(self, request: int = -1) -> list[str]:
        items = [item for item in self.requests[request]["input"] if str(item.get("type", "")).endswith("call_output")]
        return [_flat(item.get("output", "")) for item in items]

    def tool_calls(self, request: int = -1) -> list[tuple[str, Any]]:
        found = []
        for item in self.requests[request]["input"]:
            if item.get("type") == "function_call":
                found.append((".".join(filter(None, (item.get("namespace"), item["name"]))), item["arguments"]))
            elif item.get("type") == "custom_tool_call":
                found.append((item["name"], item["input"]))
        return found

    def stream(self, turn: Turn, number: int) -> Iterator[tuple[str, dict[str, Any]]]:
        response = {"id": f"resp_{number}", "object": "response", "status": "in_progress", "output": []}
        yield _sse("response.created", response=response)
        items: list[dict[str, Any]] = []
        if isinstance(turn, ToolCall | Together):
            for name, call in _named_calls(turn, number):
                if call.before:
                    items.append((yield from self._text_item(call.before, f"msg_{name}", 12, len(items))))
                items.append((yield from self._call_item(call, name, len(items))))
        elif isinstance(turn, Text):
            items.append((yield from self._text_item(turn.text, f"msg_{number}", turn.piece, 0)))
        else:
            assert isinstance(turn, Stall | Die)
            cut = turn.call if isinstance(turn, Die) else None
            begun = (
                self._call_item(cut, f"{number:04}", 0) if cut else self._text_item(turn.text, f"msg_{number}", 12, 0)
            )
            yield from list(begun)[:-1]
            return
        usage = {
            "input_tokens": 11,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": 7,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": 18,
            **self.usage,
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

    def _call_item(self, turn: ToolCall, number: str, index: int) -> Iterator[tuple[str, dict[str, Any]]]:
        item: dict[str, Any] = {"id": f"fc_{number}", "call_id": f"call_{number}", "name": turn.tool}
        if isinstance(turn.arguments, str):
            item |= {"type": "custom_tool_call", "input": turn.arguments}
        else:
            item |= {"type": "function_call", "arguments": json.dumps(turn.arguments)}
        item["status"] = "completed"
        if turn.server:
            item["namespace"] = f"mcp__{turn.server}"
        elif "." in turn.tool:
            item["namespace"], item["name"] = turn.tool.split(".", 1)
        yield _sse("response.output_item.added", output_index=index, item=item)
        yield _sse("response.output_item.done", output_index=index, item=item)
        return item


class _Handler(BaseHTTPRequestHandler):
    server_model: ModelServer
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self._record(b"")
        self._json(200, {})

    def do_GET(self) -> None:
        self._record(b"")
        self.server_model.side_requests.append((self.path, {}))
        self._json(200, self.server_model.side_answer(self.path))

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("content-length") or 0))
        self._record(raw)
        body = json.loads(raw or b"{}")
        model = self.server_model
        if not model.is_conversation(self.path, body):
            model.side_requests.append((self.path, body))
            self._json(200, model.side_answer(self.path))
            return
        turn = model.take_turn(body)
        number = model.numbered_from + len(model.requests)
        if isinstance(turn, ApiError):
            self._json(turn.status, model.error_body(turn))
            return
        if not body.get("stream"):
            self._whole(turn, number)
            return
        try:
            self._events(turn, number)
        except OSError:
            pass  # the client has gone

    def _record(self, body: bytes) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.server_model.recorded(self.command, self.path, headers, body)

    def _whole(self, turn: Turn, number: int) -> None:
        if isinstance(turn, Stall | Die):
            if isinstance(turn, Stall):
                self.server_model.stalled(self.connection)
            self.close_connection = True
        else:
            self._json(200, self.server_model.whole(turn, number))

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


def _named_calls(turn: ToolCall | Together, number: int) -> list[tuple[str, ToolCall]]:
    """Each call of a turn, with what makes its id one of its own."""
    if isinstance(turn, ToolCall):
        return [(f"{number:04}", turn)]
    return [(f"{number:04}_{place:02}", call) for place, call in enumerate(turn.calls)]


def _sse(name: str, **fields: Any) -> tuple[str, dict[str, Any]]:
    return name, {"type": name, **fields}


def _message(number: int, content: list[dict[str, Any]], usage: dict[str, Any] | None = None) -> dict[str, Any]:
    return {
        "id": f"msg_{number:04}",
        "type": "message",
        "role": "assistant",
        "model": "claude-sonnet-4-5",
        "content": content,
        "stop_reason": "end_turn" if content else None,
        "stop_sequence": None,
        "usage": {"input_tokens": 11, "output_tokens": 1, **(usage or {})},
    }


def _flat(content: Any) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(_flat(part.get("text", part)) if isinstance(part, dict) else str(part) for part in content)
    return json.dumps(content)
