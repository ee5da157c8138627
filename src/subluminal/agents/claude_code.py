"""Claude Code: `claude -p --output-format stream-json --verbose`, mapped without I/O.

Traps: with `--include-partial-messages` a text comes twice, as deltas and then whole in an `assistant` message of the
same message id, just before its `content_block_stop`; tool results come in `user` messages; a failed API call is a
`result` of subtype `success` with `is_error` true, so only `is_error` counts.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, ClassVar

from msgspec import Raw, Struct

from subluminal.agents.base import Backend, JsonMapper, RunRequest
from subluminal.agents.lines import MAX_LINE_BYTES
from subluminal.agents.progress import MAX_ID_CHARS, short_id
from subluminal.contracts.agent_event import AgentEvent

KIND = "claude_code"
# Tool calls still without a result whose names are remembered.
MAX_OPEN_CALLS = 1024


class Block(Struct):
    type: str = ""
    text: str | None = None
    id: str | None = None
    name: str | None = None
    input: Raw = Raw()
    tool_use_id: str | None = None
    is_error: bool | None = None
    content: Raw = Raw()


class Message(Struct):
    id: str | None = None
    content: list[Block] | str | None = None


class Delta(Struct):
    type: str = ""
    text: str | None = None


class StreamEvent(Struct):
    type: str = ""
    index: int = 0
    message: Message | None = None
    delta: Delta | None = None


class Line(Struct):
    """Only what the mapping needs; every other field is skipped without being built."""

    type: str = ""
    subtype: str = ""
    message: Message | str | None = None
    event: StreamEvent | None = None
    parent_tool_use_id: str | None = None
    # Of these any type is taken, so that a change in one detail does not cost us the line.
    is_error: Any = None
    result: Any = None
    session_id: Any = None
    model: Any = None
    claude_code_version: Any = None
    permissionMode: Any = None
    num_turns: Any = None
    duration_ms: Any = None
    total_cost_usd: Any = None
    api_error_status: Any = None


class Mapper(JsonMapper[Line]):
    """`stream-json` bytes to events."""

    def __init__(self, max_line_bytes: int = MAX_LINE_BYTES) -> None:
        super().__init__(KIND, Line, max_line_bytes)
        self._speaking: OrderedDict[str, str] = OrderedDict()  # the open message of each (sub-)agent
        self._open_calls: OrderedDict[str, str] = OrderedDict()

    def _map(self, line: Line, size: int) -> list[AgentEvent]:
        if line.type == "system":
            return self._system(line)
        if line.type == "assistant" and isinstance(line.message, Message):
            return self._assistant(line, line.message, size)
        if line.type == "user" and isinstance(line.message, Message):
            return self._user(line, line.message, size)
        if line.type == "stream_event" and line.event is not None:
            return self._stream_event(line, line.event, size)
        if line.type == "result":
            return self._result(line)
        return self._events.unknown(line.type, size)

    def _system(self, line: Line) -> list[AgentEvent]:
        names = ("session_id", "model", "claude_code_version", "permissionMode")
        data = _details(line, names) if line.subtype == "init" else None
        return self._events.status(f"system {line.subtype}".rstrip(), data)

    def _assistant(self, line: Line, message: Message, size: int) -> list[AgentEvent]:
        blocks = message.content
        if not isinstance(blocks, list):
            return self._events.unknown("assistant", size, "assistant")
        events: list[AgentEvent] = []
        for block in blocks:
            if block.type == "text" and block.text is not None:
                events += self._text(line, message, block.text)
            elif block.type == "tool_use":
                events += self._tool_use(line, block)
            else:
                events += self._events.unknown(f"assistant/{block.type}", size, "assistant")
        return events

    def _text(self, line: Line, message: Message, text: str) -> list[AgentEvent]:
        if line.parent_tool_use_id is None:
            self.final_text = text
        rest = self._told.rest(message.id, text)
        return self._events.text(rest, _parent(line), delta=rest != text) if rest else []

    def _tool_use(self, line: Line, block: Block) -> list[AgentEvent]:
        name = block.name or ""
        if block.id is not None and len(name) <= MAX_ID_CHARS:
            self._open_calls[short_id(block.id)] = name
            if len(self._open_calls) > MAX_OPEN_CALLS:
                self._open_calls.popitem(last=False)
        data = {"phase": "start", "id": block.id, **_named(name), "status": "in_progress"}
        return self._events.tool_call(_present({**data, "bytes_in": _size(block.input), **(_parent(line) or {})}))

    def _user(self, line: Line, message: Message, size: int) -> list[AgentEvent]:
        blocks = message.content
        if not isinstance(blocks, list):
            return self._events.unknown("user", size, "user")
        events: list[AgentEvent] = []
        for block in blocks:
            if block.type == "tool_result":
                events += self._tool_result(line, block)
            else:
                events += self._events.unknown(f"user/{block.type}", size, "user")
        return events

    def _tool_result(self, line: Line, block: Block) -> list[AgentEvent]:
        name = self._open_calls.pop(short_id(block.tool_use_id or ""), "")
        phase, status = ("fail", "failed") if block.is_error else ("complete", "completed")
        data = {"phase": phase, "id": block.tool_use_id, **_named(name), "status": status}
        return self._events.tool_result(_present({**data, "bytes_out": _size(block.content), **(_parent(line) or {})}))

    def _stream_event(self, line: Line, event: StreamEvent, size: int) -> list[AgentEvent]:
        speaker = short_id(line.parent_tool_use_id or "")
        if event.type == "message_start" and event.message is not None and event.message.id is not None:
            self._speaking[speaker] = short_id(event.message.id)
            if len(self._speaking) > MAX_OPEN_CALLS:
                self._speaking.popitem(last=False)
        delta = event.delta
        if event.type == "content_block_delta" and delta is not None and delta.type == "text_delta" and delta.text:
            self._told.add(self._speaking.get(speaker), event.index, delta.text)
            return self._events.text(delta.text, _parent(line), delta=True)
        return self._events.unknown(f"stream_event/{event.type}", size)

    def _result(self, line: Line) -> list[AgentEvent]:
        names = ("subtype", "session_id", "num_turns", "duration_ms", "total_cost_usd", "api_error_status")
        data = _details(line, names)
        if line.is_error:
            self.failure = line.subtype if line.subtype.startswith("error") else "error"
            why = line.result if line.result and isinstance(line.result, str) else ""
            return self._events.error(f"result failed: {why}" if why else f"result {self.failure}", data)
        if isinstance(line.result, str):
            self.final_text = line.result
        return self._events.status(f"result {line.subtype}".rstrip(), data)


class ClaudeCode(Backend):
    kind = KIND
    client = "claude"
    program = "claude"
    capabilities = frozenset({"text", "text_deltas", "tool_events", "cost"})
    reserved: ClassVar = {
        "--output-format": "the back end reads stream-json and sets it itself.",
        "--input-format": "the prompt is an argument; the agent's standard input is the null device.",
    }

    def command(self, request: RunRequest) -> list[str]:
        # After `--` a prompt that looks like an option stays a prompt, and variadic options cannot swallow it.
        options = ["-p", "--output-format", "stream-json", "--verbose"]
        return [request.program or self.program, *options, *request.args, "--", request.prompt]

    def mapper(self) -> Mapper:
        return Mapper()


def _named(name: str) -> dict[str, Any]:
    """Claude Code joins the server's and the tool's name of an MCP tool: `mcp__SERVER__TOOL`."""
    if name.startswith("mcp__"):
        server, found, tool = name[5:].partition("__")
        if found:
            return {"name": name, "server_name": server, "tool_name": tool}
    return {"name": name or None}


def _parent(line: Line) -> dict[str, Any] | None:
    parent = line.parent_tool_use_id
    return None if parent is None else {"parent_tool_use_id": parent}


def _details(line: Line, names: tuple[str, ...]) -> dict[str, Any]:
    """Plain values only: a nested one could carry content."""
    values = {name: getattr(line, name) for name in names}
    return _present({name: value for name, value in values.items() if isinstance(value, str | int | float)})


def _present(data: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in data.items() if value is not None and value != ""}


def _size(raw: Raw) -> int | None:
    """Bytes of the value as the agent wrote it; None when there was none."""
    return memoryview(raw).nbytes or None
