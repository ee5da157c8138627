"""Any program that prints lines: nothing is known of what they mean, so only Status is reported, never the lines.

The command is the request's own (`program` and `args`), and the prompt is its last argument.
"""

from __future__ import annotations

from collections.abc import Callable

from subluminal.agents.base import Backend, EventBuilder, RunRequest
from subluminal.agents.lines import MAX_LINE_BYTES, BadLine, LineSplitter
from subluminal.contracts.agent_event import AgentEvent
from subluminal.contracts.errors import AgentError

KIND = "generic"


class Mapper:
    """One Status per line that is not blank: its number and its size."""

    def __init__(self, max_line_bytes: int = MAX_LINE_BYTES, heard: Callable[[bytes], None] | None = None) -> None:
        self._heard = heard
        self.final_text: str | None = None
        self.failure: str | None = None
        self._events = EventBuilder(KIND)
        self._splitter = LineSplitter(max_line_bytes)
        self._count = 0

    def feed(self, data: bytes) -> list[AgentEvent]:
        if self._heard is not None:
            self._heard(data)
        return [event for line in self._splitter.feed(data) for event in self._map(line)]

    def finish(self) -> list[AgentEvent]:
        return [event for line in self._splitter.finish() for event in self._map(line)]

    def _map(self, line: bytes | BadLine) -> list[AgentEvent]:
        self._count += 1
        size = line.size if isinstance(line, BadLine) else len(line)
        return self._events.status(f"line {self._count}: {size} bytes", {"line": self._count, "bytes": size})


class Generic(Backend):
    """`heard`: who gets what the program prints, as it comes; it is in no event."""

    heard: Callable[[bytes], None] | None = None
    kind = KIND
    client = "custom"
    program = ""
    capabilities = frozenset({"status"})

    def command(self, request: RunRequest) -> list[str]:
        if not request.program:
            raise AgentError("the generic back end needs a program to run", hint="Give one with --program.")
        return [request.program, *request.args, request.prompt]

    def mapper(self) -> Mapper:
        return Mapper(heard=self.heard)
