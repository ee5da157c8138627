"""Codex: `codex exec --json`, mapped without I/O.

Traps: items are flat, and a failed one is an `item.completed` whose status says so; an error item before
`turn.started` is a warning, so an Error event alone does not mean that the run failed; `item.updated` repeats the
whole text so far.
"""

from __future__ import annotations

from typing import Any, ClassVar

from msgspec import Raw, Struct

from subluminal.agents.base import Backend, JsonMapper, RunRequest
from subluminal.agents.lines import MAX_LINE_BYTES
from subluminal.contracts.agent_event import AgentEvent
from subluminal.contracts.errors import AgentError

KIND = "codex"
STATUS_TYPES = frozenset({"thread.started", "turn.started", "turn.completed"})
PHASES = {"item.started": "start", "item.updated": "delta", "item.completed": "complete"}
TOOL_ITEMS = frozenset({"command_execution", "file_change", "mcp_tool_call", "web_search", "collab_tool_call"})
TEXT_ITEMS = frozenset({"agent_message", "reasoning"})
FAILED = frozenset({"failed", "declined"})


class Fault(Struct):
    message: str | None = None


class Todo(Struct):
    completed: bool = False


class Item(Struct):
    id: str | None = None
    type: str = ""
    text: str | None = None
    message: str | None = None
    status: str | None = None
    server: str | None = None
    tool: str | None = None
    exit_code: int | None = None
    items: list[Todo] | None = None
    arguments: Raw = Raw()
    command: Raw = Raw()
    query: Raw = Raw()
    prompt: Raw = Raw()
    changes: Raw = Raw()
    result: Raw = Raw()
    aggregated_output: Raw = Raw()
    error: Raw = Raw()


class Line(Struct):
    """Only what the mapping needs; every other field is skipped without being built."""

    type: str = ""
    thread_id: str | None = None
    usage: Any = None
    error: Fault | None = None
    message: str | None = None
    item: Item | None = None


class Mapper(JsonMapper[Line]):
    """`--json` bytes to events."""

    def __init__(self, max_line_bytes: int = MAX_LINE_BYTES) -> None:
        super().__init__(KIND, Line, max_line_bytes)

    def _map(self, line: Line, size: int) -> list[AgentEvent]:
        if line.item is not None and line.type in PHASES:
            return self._item(line.type, line.item, size)
        if line.type in STATUS_TYPES:
            if line.type == "turn.completed":
                self.failure = None
            data = _present({"thread_id": line.thread_id, "usage": _counts(line.usage)})
            return self._events.status(line.type, data or None)
        if line.type in ("turn.failed", "error"):
            return self._failure(line)
        return self._events.unknown(line.type, size)

    def _failure(self, line: Line) -> list[AgentEvent]:
        # `error` also announces a retry; only the end of the turn tells whether the run failed.
        if line.type == "turn.failed":
            self.failure = line.type
        why = line.error.message if line.error is not None else line.message
        return self._events.error(f"{line.type}: {why}" if why else line.type, {"type": line.type})

    def _item(self, native: str, item: Item, size: int) -> list[AgentEvent]:
        if item.type in TEXT_ITEMS:
            return self._text(native, item)
        if item.type in TOOL_ITEMS:
            return self._tool(PHASES[native], item)
        if item.type == "todo_list":
            todos = item.items or []
            done = sum(todo.completed for todo in todos)
            return self._events.status(f"todo_list {done}/{len(todos)}", {"completed": done, "total": len(todos)})
        if item.type == "error":
            return self._events.error(item.message or "item error", _present({"type": "item.error", "id": item.id}))
        return self._events.unknown(f"{native}/{item.type}", size)

    def _text(self, native: str, item: Item) -> list[AgentEvent]:
        text = item.text or ""
        if item.type == "agent_message":
            self.final_text = text
        rest = self._told.rest(item.id, text)
        if native != "item.completed":
            self._told.restart(item.id, text)
        data = {"item_type": "reasoning"} if item.type == "reasoning" else None
        delta = native != "item.completed" or rest != text
        return self._events.text(rest, data, delta=delta) if rest else []

    def _tool(self, phase: str, item: Item) -> list[AgentEvent]:
        failed = item.status in FAILED
        if phase == "complete" and failed:
            phase = "fail"
        data: dict[str, Any] = {"phase": phase, "id": item.id, "name": item.tool or item.type, "item_type": item.type}
        data |= {"server_name": item.server, "tool_name": item.tool, "status": item.status}
        data["bytes_in"] = _size(item.arguments, item.command, item.query, item.prompt, item.changes)
        if phase in ("start", "delta"):
            return self._events.tool_call(_present(data))
        data |= {"exit_code": item.exit_code, "bytes_out": _size(item.result, item.aggregated_output, item.error)}
        return self._events.tool_result(_present(data))


class Codex(Backend):
    kind = KIND
    client = "codex"
    program = "codex"
    capabilities = frozenset({"text", "tool_events", "usage"})
    reserved: ClassVar = {
        "--json": "the back end sets it itself.",
        "--experimental-json": "the back end reads the stable stream and sets it itself.",
    }

    def command(self, request: RunRequest) -> list[str]:
        if request.prompt.strip() == "-":
            raise AgentError('the prompt "-" makes Codex read its standard input, which is the null device')
        # After `--` a prompt that looks like an option or a subcommand stays a prompt.
        return [request.program or self.program, "exec", "--json", *request.args, "--", request.prompt]

    def mapper(self) -> Mapper:
        return Mapper()


def _present(data: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in data.items() if value is not None}


def _counts(usage: Any) -> dict[str, int] | None:
    if not isinstance(usage, dict):
        return None
    return {name: count for name, count in usage.items() if isinstance(count, int)}


def _size(*values: Raw) -> int | None:
    """Bytes of the values as the agent wrote them; None when there were none (or only nulls)."""
    return sum(memoryview(value).nbytes for value in values if not _is_null(value)) or None


def _is_null(value: Raw) -> bool:
    return memoryview(value).nbytes == 4 and bytes(value) == b"null"
