"""Lines of Claude Code: a `tool_use` block on an `assistant` line, its `tool_result` on a later `user` line.

Traps, seen in 2.0.30, 2.1.197 and 2.1.325: one block a line, though calls of one message are parallel; results come in
any order; `api-request-blob` lines repeat whole messages, so that only `assistant` and `user` lines count;
`attributionMcpServer` names the tool before; a refusal, a denial by the user and a failed tool are all `is_error`.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Raw, Struct

from subluminal.agents.transcripts.seen import Session
from subluminal.contracts.moments import epoch_ms, is_moment

# A client's name of a tool -> its server and its tool; None: no tool.
Called = Callable[[str], tuple[str, str] | None]
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
    id: str = ""
    content: list[Block] | str = ""


class Line(Struct):
    type: str = ""
    cwd: str = ""
    timestamp: str = ""
    sessionId: str = ""
    message: Message | None = None


class Reader:
    """The lines of one file. `called` resolves a client's name of a tool."""

    shape = Line
    words = WORDS

    def __init__(self, called: Called) -> None:
        self._called = called
        self.session = Session()

    def take(self, line: Line) -> None:
        if line.type not in ("assistant", "user") or line.message is None:
            return
        self.session.run_id = self.session.run_id or line.sessionId
        content = line.message.content
        for block in content if isinstance(content, list) else ():
            if block.type == "tool_use" and line.type == "assistant":
                given = bytes(block.input)
                at_ms = moment(line.timestamp)
                called, message = self._called(block.name), line.message.id
                self.session.began(block.id, called, given, at_ms, line.cwd, len(given), message)
            elif block.type == "tool_result" and line.type == "user":
                self.session.ended(block.tool_use_id, not block.is_error)


def moment(text: str) -> int:
    return epoch_ms(text) if is_moment(text) else 0
