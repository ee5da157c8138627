"""A run told to a person: the agent's words as they come, and one short line for each thing it does.

Yields pieces for stdout (the words) and stderr (everything else). Words of an agent may hold terminal control
sequences; they are shown and never obeyed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from subluminal.contracts.agent_event import MAX_TEXT_BYTES, AgentCompletion, AgentEvent, AgentEventKind
from subluminal.reports.printable import printable

# A chunk this full goes on in the next event.
_FULL_CHUNK = MAX_TEXT_BYTES - 4


class Piece(NamedTuple):
    text: str
    is_words: bool
    failed: bool = False


class Narrative:
    def __init__(self, verbose: bool = False) -> None:
        self._verbose = verbose
        self._line_open = False
        self._text_open = False  # the next piece of text belongs to the same one

    def tell(self, event: AgentEvent) -> Iterator[Piece]:
        if event.kind is AgentEventKind.TextOutput:
            yield from self._words(event)
            return
        line = self._line(event)
        if line is not None:
            yield from self._end_line()
            yield Piece(line + "\n", False, event.kind is AgentEventKind.Error or _failed(event))

    def end(self, completion: AgentCompletion) -> Iterator[Piece]:
        yield from self._end_line()
        if completion.status != "SUCCEEDED":
            why = f": {completion.message}" if completion.message else ""
            yield Piece(f"{completion.agent_kind} {completion.status.lower()}{_shown(why)}\n", False, True)

    def _words(self, event: AgentEvent) -> Iterator[Piece]:
        text = event.text or ""
        delta = isinstance(event.data, dict) and event.data.get("delta") is True
        if not self._text_open:
            yield from self._end_line()
        self._text_open = delta or len(text.encode()) > _FULL_CHUNK
        if text:
            self._line_open = not text.endswith("\n")
            yield Piece(_shown(text), True)
        if not self._text_open:
            yield from self._end_line()

    def _end_line(self) -> Iterator[Piece]:
        if self._line_open:
            yield Piece("\n", True)
        self._line_open = self._text_open = False

    def _line(self, event: AgentEvent) -> str | None:
        data = event.data if isinstance(event.data, dict) else {}
        if event.kind is AgentEventKind.ToolCall:
            return f"> {_tool(data)}" if data.get("phase") == "start" else None
        if event.kind is AgentEventKind.ToolResult:
            return f"< {_tool(data)} {data.get('status', 'ended')}{_size(data)}"
        if event.kind is AgentEventKind.Error:
            return f"! {_shown(event.message or 'error')}"
        if event.kind is AgentEventKind.Status and self._verbose:
            return f"- {_shown(event.message or 'status')}"
        return None


def _shown(text: str) -> str:
    return printable(text, keep="\n\t")


def _tool(data: dict[str, object]) -> str:
    server, tool = data.get("server_name"), data.get("tool_name")
    return _shown(f"{server}/{tool}" if server and tool else str(data.get("name") or data.get("id") or "tool"))


def _size(data: dict[str, object]) -> str:
    size = data.get("bytes_out")
    return f" ({size} bytes)" if size is not None else ""


def _failed(event: AgentEvent) -> bool:
    return isinstance(event.data, dict) and event.data.get("phase") == "fail"
