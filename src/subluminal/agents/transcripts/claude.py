"""Lines of Claude Code: a `tool_use` block on an `assistant` line, its `tool_result` on a later `user` line.

Traps, seen in 2.0.30, 2.1.197 and 2.1.325: one block a line, though calls of one message are parallel; results come in
any order; `api-request-blob` lines repeat whole messages, so that only `assistant` and `user` lines count;
`attributionMcpServer` names the tool before; a refusal, a denial by the user and a failed tool are all `is_error`.
"""

from __future__ import annotations

from typing import Any

from msgspec import Raw, Struct, convert, json

from subluminal.agents.transcripts.seen import SeenCall, within_bounds
from subluminal.contracts.moments import epoch_ms, is_moment

ORIGIN = "claude"
# What a line of interest has in it; most lines have neither and are not parsed.
WORDS = (b'"tool_use"', b'"tool_result"')


class Block(Struct):
    type: str = ""
    id: str = ""
    name: str = ""
    input: Raw = Raw()
    tool_use_id: str = ""
    is_error: bool | None = None


class Message(Struct):
    content: list[Block] | str = ""


class Line(Struct):
    type: str = ""
    cwd: str = ""
    timestamp: str = ""
    sessionId: str = ""
    message: Message | None = None


class Session:
    """One file. `called` resolves a client's name of a tool."""

    def __init__(self, called: Any) -> None:
        self._called = called
        self._open: dict[str, SeenCall] = {}
        self.run_id = ""
        self.calls: list[SeenCall] = []
        self.unread = 0

    shape = Line
    words = WORDS

    def take(self, line: Line, size: int) -> None:
        if line.type not in ("assistant", "user") or line.message is None:
            return
        self.run_id = self.run_id or line.sessionId
        content = line.message.content
        for block in content if isinstance(content, list) else ():
            if block.type == "tool_use" and line.type == "assistant":
                self._begin(block, line)
            elif block.type == "tool_result" and line.type == "user":
                call = self._open.pop(block.tool_use_id, None)
                if call is not None:
                    call.ok = not block.is_error

    def _begin(self, block: Block, line: Line) -> None:
        named = self._called(block.name)
        if named is None or block.id in self._open:
            return
        args = decoded(bytes(block.input))
        if args is None:
            self.unread += 1
            return
        at_ms = moment(line.timestamp)
        whole, cut = within_bounds(args)
        server_name, tool_name = named
        size = len(bytes(block.input))
        call = SeenCall(server_name, tool_name, whole, size, at_ms, line.cwd, use_id=block.id, cut=cut)
        self._open[block.id] = call
        self.calls.append(call)


def decoded(raw: bytes) -> dict[str, Any] | None:
    """Arguments as they were given; None: no object, or none that can be read."""
    try:
        value = convert(json.decode(raw or b"{}"), dict[str, Any])
    except (ValueError, RecursionError):
        return None
    return value


def moment(text: str) -> int:
    return epoch_ms(text) if is_moment(text) else 0
