"""What a client's name of a tool means, and its arguments as rules may ask for them.

A client's own tools are those of the server `builtin`, under the client's names. `mcp__S__T` is the tool T of the
server S: those of servers that no shim stands before are governed as well, and those that a shim sees too are joined.
"""

from __future__ import annotations

import os

import msgspec

from subluminal.adapters.tools.patches import named_in_patch, named_in_shell
from subluminal.contracts.jsontext import to_json
from subluminal.contracts.vocabulary import BUILTIN_SERVER, SURFACE_CLASSES, UNREAD_PATH
from subluminal.host.run.tool_notes import RunToolNotes
from subluminal.mcp.tools import ToolNotes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from subluminal.adapters.tools.patches import Named

MCP_PREFIX = "mcp__"
_BETWEEN = "__"
# A name can be cut in as many places as an agent likes; servers with more underlines have none of these.
_MAX_CUTS = 8
MAX_SERVERS = 256
# The argument that is added: the files that a patch names.
PATHS = "paths"
PATCH_TOOL = "apply_patch"

_object = msgspec.json.Decoder(dict).decode


class Tools:
    """Names of one run. `configured` are the servers that our configuration knows by name."""

    def __init__(self, run_id: str, configured: Iterable[str] = ()) -> None:
        self._run_id = run_id
        self._configured = {_spelled(name): name for name in configured}
        self._notes: dict[str, ToolNotes] = {}

    def called(self, name: str) -> tuple[str, str]:
        """The server and the tool of a client's name."""
        if not name.startswith(MCP_PREFIX):
            return BUILTIN_SERVER, name
        cuts = _cuts(name[len(MCP_PREFIX) :])
        if not cuts:
            return BUILTIN_SERVER, name
        for server, tool in cuts:
            if server in self._configured:
                return self._configured[server], tool
        if len(cuts) > 1:
            for server, tool in cuts:
                if self.risk_classes(server, tool) is not None:
                    return server, tool
        return cuts[0]

    def risk_classes(self, server: str, tool: str) -> frozenset[str] | None:
        """What a server has said of its tool to a shim of this run; None: nothing. Of a client's own none."""
        if server == BUILTIN_SERVER:
            return frozenset()
        notes = self._notes.get(server)
        known = None if notes is None else notes.risk_classes.get(tool)
        if known is None or known & SURFACE_CLASSES:  # it may have been listed since, or approved
            if len(self._notes) >= MAX_SERVERS:
                self._notes.clear()
            notes = self._notes[server] = ToolNotes(RunToolNotes(self._run_id, server))
            known = notes.recalled(tool)
        return known


def _cuts(name: str) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    at = name.find(_BETWEEN, 1)
    while at > 0 and len(found) < _MAX_CUTS:
        if at + len(_BETWEEN) < len(name):
            found.append((name[:at], name[at + len(_BETWEEN) :]))
        at = name.find(_BETWEEN, at + 1)
    return found


def _spelled(server: str) -> str:
    """As clients write it into names of tools."""
    return "".join(char if char.isascii() and (char.isalnum() or char in "_-") else "_" for char in server)


def with_paths(client: str, tool_name: str, tool_input: bytes, cwd: str) -> bytes:
    """The arguments, with the files of the patch in them as `paths`; the same bytes where there is no patch."""
    if client != "codex" or not (tool_name == PATCH_TOOL or b"atch" in tool_input or b"\\u" in tool_input):
        return tool_input
    try:
        value = _object(tool_input)
    except (ValueError, RecursionError):
        return tool_input  # the gate says what is wrong with it
    named = _named(tool_name, value)
    if named is None:
        return tool_input
    start = os.path.join(cwd or "/", *(word for word in (value.get("workdir"),) if isinstance(word, str)))
    paths = [os.path.join(start, named.directory, path) for path in named.paths]
    if not named.complete or not os.path.isabs(start):
        paths.append(UNREAD_PATH)
    added = to_json({PATHS: paths}).encode("utf-8", "surrogatepass")
    body = tool_input.strip()
    return body[:-1].rstrip() + (b"," if value else b"") + added[1:]


def _named(tool_name: str, value: dict[str, Any]) -> Named | None:
    """By what the tool carries out: a patch as such, or a line that may apply one."""
    if tool_name == PATCH_TOOL:
        text = value.get("command", value.get("input", value.get("patch")))
        return named_in_patch(text if isinstance(text, str) else "")
    text = value.get("command", value.get("cmd"))
    if isinstance(text, list):
        text = text[-1] if text and all(isinstance(word, str) for word in text) else None
    return named_in_shell(text) if isinstance(text, str) else None
