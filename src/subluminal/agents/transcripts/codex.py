"""Lines of Codex: `function_call`, `custom_tool_call` and `local_shell_call` items, and how they ended.

Traps, seen in 0.60, 0.130 and 0.166: `arguments` is text with JSON in it; a tool of a server is `mcp__srv__tool` in the
earlier ones, `name` and `namespace` in the later; only the later have `item_completed` with a status, before that the
output's text alone tells of a failure; a sub-agent has a file of its own that names its `parent_thread_id`; a session
that goes on repeats `session_meta`.
"""

from __future__ import annotations

import re
from typing import Any

from msgspec import Raw, Struct, field

from subluminal.adapters.tools.codex import hook_input, hook_name
from subluminal.adapters.tools.names import with_paths
from subluminal.agents.transcripts.claude import Called, moment
from subluminal.agents.transcripts.found import CODEX
from subluminal.agents.transcripts.seen import Session
from subluminal.contracts.jsontext import to_json

WORDS = (b"_call", b'"session_meta"', b'"turn_context"', b'"item_completed"')
_FAILED = frozenset({"failed", "declined"})
# How the outputs of earlier versions begin where a call failed.
_FAILURES = (
    b"tool call error",
    b"unsupported call",
    b"exec_command failed",
    b"failed to ",
    b"error:",
    b"err: ",
    b"blocked by",
    b"was refused (",
)
_EXIT_CODES = re.compile(rb'(?:exit_code\\?": ?|Exit code: |Process exited with code )(-?[0-9]+)')
_PARENT = re.compile(rb'"parent_thread_id": ?"([^"\\]+)"')


class Action(Struct):
    command: list[str] = field(default_factory=list)
    working_directory: str | None = None


class Item(Struct):
    type: str = ""
    id: str = ""
    status: str | None = None
    exit_code: int | None = None


class Payload(Struct):
    type: str = ""
    id: str = ""
    cwd: str = ""
    parent_thread_id: str | None = None
    source: Raw = Raw()
    name: str = ""
    namespace: str | None = None
    arguments: str = ""
    input: str = ""
    call_id: str = ""
    output: Raw = Raw()
    action: Action | None = None
    item: Item | None = None


class Line(Struct):
    type: str = ""
    timestamp: str = ""
    payload: Payload | None = None


class Reader:
    """The lines of one file; the calls of a sub-agent belong to the run of the thread that started it."""

    shape = Line
    words = WORDS

    def __init__(self, called: Called) -> None:
        self._called = called
        self._cwd = ""
        self._messages = 0  # calls that stand before any output are of one
        self._answered = True
        self.session = Session()

    def take(self, line: Line) -> None:
        said = line.payload
        if said is None:
            return
        if line.type == "session_meta":
            parent = said.parent_thread_id or _parent(bytes(said.source))
            self.session.run_id = self.session.run_id or parent or said.id
            self._cwd = said.cwd or self._cwd
        elif line.type == "turn_context":
            self._cwd = said.cwd or self._cwd
        elif line.type == "response_item":
            self._item(said, line)
        elif line.type == "event_msg" and said.type == "item_completed" and said.item is not None:
            item = said.item
            if item.status is not None or item.exit_code is not None:
                self.session.ended(item.id, item.status not in _FAILED and not item.exit_code, again=True)

    def _item(self, said: Payload, line: Line) -> None:
        if said.type == "function_call":
            self._began(said.name, said.namespace or "", said.arguments, said.call_id, line)
        elif said.type == "custom_tool_call":
            self._began(said.name, "", to_json({"input": said.input}), said.call_id, line)
        elif said.type == "local_shell_call" and said.action is not None:
            given: dict[str, Any] = {"command": said.action.command}
            if said.action.working_directory:
                given["workdir"] = said.action.working_directory
            self._began("local_shell", "", to_json(given), said.call_id or said.id, line)
        elif said.type in ("function_call_output", "custom_tool_call_output"):
            self._answered = True
            self.session.ended(said.call_id, not _failed(bytes(said.output)))

    def _began(self, name: str, namespace: str, arguments: str, call_id: str, line: Line) -> None:
        """Under the names and arguments that its hooks would have, so that one policy means both."""
        tool = self._called(hook_name(name, namespace))
        given, start = hook_input(name, namespace, arguments.encode("utf-8", "replace"), self._cwd)
        whole = with_paths(CODEX, tool[1], given, start) if tool is not None else given
        self._messages += self._answered
        self._answered = False
        at_ms, message = moment(line.timestamp), str(self._messages)
        self.session.began(call_id, tool, whole, at_ms, start, len(given), message)


def _parent(source: bytes) -> str:
    """Later versions say it below `source`, where the way there differs."""
    found = _PARENT.search(source)
    return found[1].decode("utf-8", "replace") if found else ""


def _failed(output: bytes) -> bool:
    """By the text, where nothing else tells: `{"metadata":{"exit_code":1}}`, `Process exited with code 1`."""
    ends = _EXIT_CODES.findall(output)
    if ends:
        return bool(ends[-1] != b"0")
    head = output[:120].lower().lstrip(b'"[{ ')
    return any(word in head for word in _FAILURES)
