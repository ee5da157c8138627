"""What a back end is: a kind, its capabilities, a command line, and a mapper from its bytes to `AgentEvent`.

A mapper does no I/O. `feed` takes whatever bytes have arrived, cut anywhere; `finish` is called once at the end of
the stream. Everything either returns is within the bounds of the envelope and free of raw lines.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar

from msgspec import Struct

from subluminal.agents.lines import BadLine, LineReader
from subluminal.agents.progress import TextProgress
from subluminal.contracts.agent_event import AgentEvent, AgentEventKind, bound_event, well_formed
from subluminal.contracts.errors import AgentError

if TYPE_CHECKING:
    from subluminal.agents.run import AgentRun

# Native type names are short words; a longer one is not a type but content, which Unknown events must not carry.
MAX_TYPE_NAME = 64

T = TypeVar("T")


class Mapper(Protocol):
    """`final_text` is the agent's answer so far; `failure` says, in a word, that the agent itself reported failing."""

    final_text: str | None
    failure: str | None

    def feed(self, data: bytes) -> list[AgentEvent]: ...

    def finish(self) -> list[AgentEvent]: ...


class RunRequest(Struct, eq=False):
    """One prompt for one agent. `timeout_s` 0 means none; `env` is laid over a copy of our own environment."""

    prompt: str
    args: Sequence[str] = ()
    cwd: str | None = None
    env: dict[str, str] = {}
    timeout_s: float = 0
    program: str | None = None
    show_stderr: bool = False

    def __post_init__(self) -> None:
        self.args, self.env = tuple(self.args), dict(self.env)

    def check(self) -> None:
        """Refuse, before anything is started, what no back end could run."""
        if not self.prompt.strip():
            raise AgentError("the prompt is blank", hint="Say what the agent is to do.")
        if not (math.isfinite(self.timeout_s) and self.timeout_s >= 0):
            raise AgentError(f"a timeout of {self.timeout_s} s is not possible", hint="Use seconds, or 0 for none.")
        for word in (self.prompt, *self.args, *self.env, *self.env.values()):
            if "\0" in word:
                raise AgentError("a NUL byte cannot be part of a prompt, an argument or a variable")
            if well_formed(word) != word:
                raise AgentError("a prompt, an argument or a variable is not valid Unicode")
        for name in self.env:
            if not name or "=" in name:
                raise AgentError(f"{name!r} cannot be the name of a variable")


class Backend:
    """An agent program. Subclasses give the class attributes, `command` and `mapper`."""

    kind: str
    client: str = "custom"
    program: str
    capabilities: frozenset[str] = frozenset()
    # Options that would change the stream we read, and why the user need not give them.
    reserved: ClassVar[Mapping[str, str]] = {}

    def command(self, request: RunRequest) -> list[str]:
        raise AssertionError("subclasses say how their program is called")

    def mapper(self) -> Mapper:
        raise AssertionError("subclasses map their own stream")

    def check(self, request: RunRequest) -> None:
        """Raise `AgentError` for what can be known to be wrong before anything is started."""
        request.check()
        for arg in request.args:
            name = arg.split("=", 1)[0]
            if name in self.reserved:
                raise AgentError(f"{name} cannot be passed on: {self.reserved[name]}")
        self.command(request)

    def run(self, request: RunRequest) -> AgentRun:
        """Check the request, then start it on the running event loop."""
        from subluminal.agents.run import AgentRun

        self.check(request)
        return AgentRun(self, request)


class EventBuilder:
    """Makes the bounded events of one back end; shared by the mappers so that all speak alike."""

    __slots__ = ("_kind",)

    def __init__(self, kind: str) -> None:
        self._kind = kind

    def text(self, text: str, data: dict[str, Any] | None = None, *, delta: bool = False) -> list[AgentEvent]:
        """`delta`: a piece of a text that goes on; without it the text is a whole one (or its chunks)."""
        if delta:
            data = {**(data or {}), "delta": True}
        return bound_event(AgentEvent(self._kind, AgentEventKind.TextOutput, "assistant", text, None, data))

    def tool_call(self, data: dict[str, Any]) -> list[AgentEvent]:
        return bound_event(AgentEvent(self._kind, AgentEventKind.ToolCall, "tool", None, None, data))

    def tool_result(self, data: dict[str, Any]) -> list[AgentEvent]:
        return bound_event(AgentEvent(self._kind, AgentEventKind.ToolResult, "tool", None, None, data))

    def status(self, message: str, data: Any = None) -> list[AgentEvent]:
        return bound_event(AgentEvent(self._kind, AgentEventKind.Status, "status", None, message, data))

    def error(self, message: str, data: Any = None) -> list[AgentEvent]:
        return bound_event(AgentEvent(self._kind, AgentEventKind.Error, "error", None, message, data))

    def unknown(self, native: str, size: int, channel: str | None = None) -> list[AgentEvent]:
        data: dict[str, Any] = {"bytes": size}
        if native and len(native) <= MAX_TYPE_NAME:
            data["type"] = native
        return bound_event(AgentEvent(self._kind, AgentEventKind.Unknown, channel, None, None, data))

    def bad_line(self, line: BadLine) -> list[AgentEvent]:
        """The size of a line that cannot be read, never its content."""
        if line.reason == "unexpected_shape":
            return self.unknown("", line.size)
        why = "is over the line limit" if line.reason == "oversize" else "is not JSON"
        return self.error(f"a line of {line.size} bytes {why}", {"bytes": line.size, "reason": line.reason})


class JsonMapper(Generic[T]):
    """A mapper of lines of JSON; what a line means is the subclass's `_map`."""

    def __init__(self, kind: str, shape: type[T], max_line_bytes: int) -> None:
        self.final_text: str | None = None
        self.failure: str | None = None
        self._events = EventBuilder(kind)
        self._told = TextProgress()
        self._lines = LineReader(shape, max_line_bytes)

    def feed(self, data: bytes) -> list[AgentEvent]:
        return self._mapped(self._lines.feed(data))

    def finish(self) -> list[AgentEvent]:
        return self._mapped(self._lines.finish())

    def _mapped(self, items: Iterable[tuple[T, int] | BadLine]) -> list[AgentEvent]:
        events: list[AgentEvent] = []
        for item in items:
            events += self._events.bad_line(item) if isinstance(item, BadLine) else self._map(*item)
        return events

    def _map(self, line: T, size: int) -> list[AgentEvent]:
        raise NotImplementedError
