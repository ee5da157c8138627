"""What stands beside a message over HTTP from 2026-07-28 on: headers that repeat what the message says.

They are made from the body, so that the two cannot disagree. Values that no header can carry are in the form
`=?base64?...?=`. A tool's schema names the arguments that are repeated (`x-mcp-header`); how a value is written, and
which annotations count, is what the SDKs compare.
"""

from __future__ import annotations

import binascii
import re

import msgspec
from msgspec import Raw

from subluminal.mcp.message.reading import UNREADABLE, read_value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

METHOD = b"mcp-method"
NAME = b"mcp-name"
PARAMETER = b"mcp-param-"
PROTOCOL_VERSION = b"mcp-protocol-version"
SESSION_ID = b"mcp-session-id"
LAST_EVENT_ID = b"last-event-id"
# Which member of `params` the name is.
NAMED_BY = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
ANNOTATION = "x-mcp-header"

# What one server may make us remember.
MAX_TOOLS = 4096
MAX_PARAMETERS = 64
MAX_POSITIONS = 100_000
_PLAIN = re.compile(r"[\x20-\x7e]*")
_ENCODED = re.compile(r"=\?base64\?.*\?=")
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]{1,128}")
_INTEGER = re.compile(rb"-?[0-9]+")
_TYPES = ("string", "integer", "boolean")
# Where a schema holds further schemas. An annotation that stands below one of these has no single place in the
# arguments, and makes all annotations of its tool void.
_ONE_SCHEMA = frozenset((
    "items", "contains", "unevaluatedItems", "additionalProperties", "propertyNames", "unevaluatedProperties", "not",
    "if", "then", "else", "contentSchema",
))  # fmt: skip
_SCHEMAS = frozenset(("allOf", "anyOf", "oneOf", "prefixItems"))
_NAMED_SCHEMAS = frozenset(("patternProperties", "dependentSchemas", "$defs", "definitions"))

Path = tuple[str, ...]
_members = msgspec.json.Decoder(dict[str, Raw]).decode


def header_value(text: str) -> bytes:
    """Printable ASCII stays as it is, but for white space at an end and for what looks encoded already."""
    if _PLAIN.fullmatch(text) and text == text.strip() and not _ENCODED.fullmatch(text):
        return text.encode("ascii")
    encoded: bytes = binascii.b2a_base64(text.encode("utf-8", "surrogatepass"), newline=False)
    return b"=?base64?" + encoded + b"?="


class ParameterHeaders:
    """Which arguments of which tool are repeated in headers, as far as tools have been listed."""

    __slots__ = ("_tools",)

    def __init__(self) -> None:
        self._tools: dict[str, dict[Path, str]] = {}

    def learn(self, result: Any) -> None:
        """The result of `tools/list`."""
        tools = result.get("tools") if isinstance(result, dict) else None
        for tool in tools if isinstance(tools, list) else ():
            name = tool.get("name") if isinstance(tool, dict) else None
            if not isinstance(name, str):
                continue
            found = annotated(tool.get("inputSchema"))
            if found and (name in self._tools or len(self._tools) < MAX_TOOLS):
                self._tools[name] = found
            else:
                self._tools.pop(name, None)

    def knows(self, tool_name: str) -> bool:
        return tool_name in self._tools

    def of_call(self, tool_name: str, arguments: bytes) -> list[tuple[bytes, bytes]]:
        headers = []
        for path, token in self._tools.get(tool_name, {}).items():
            text = _text(_value(arguments, path))
            if text is not None:
                headers.append((PARAMETER + token.encode("ascii"), header_value(text)))
        return headers


def annotated(schema: Any) -> dict[Path, str]:
    """Path of properties to header, of every annotation; empty where one of them is not as it should be."""
    found: dict[Path, str] = {}
    taken: set[str] = set()
    waiting: list[tuple[Path | None, Any]] = [((), schema)]
    for _ in range(MAX_POSITIONS):
        if not waiting:
            return found
        path, node = waiting.pop()
        if not isinstance(node, dict):
            continue
        if ANNOTATION in node:
            token = node[ANNOTATION]
            if not path or not isinstance(token, str) or not _TOKEN.fullmatch(token) or token.lower() in taken:
                return {}
            if node.get("type") not in _TYPES or len(found) >= MAX_PARAMETERS:
                return {}
            taken.add(token.lower())
            found[path] = token
        waiting += _below(path, node)
    return {}


def _below(path: Path | None, node: dict[str, Any]) -> list[tuple[Path | None, Any]]:
    below: list[tuple[Path | None, Any]] = []
    for keyword, value in node.items():
        if keyword == "properties" and isinstance(value, dict):
            # A path deeper than this is none that anybody calls; and its copies would cost its depth squared.
            deeper = path is not None and len(path) < MAX_PARAMETERS
            below += [((*path, name) if deeper and path is not None else None, sub) for name, sub in value.items()]
        elif keyword in _ONE_SCHEMA:
            below.append((None, value))
        elif keyword in _SCHEMAS and isinstance(value, list):
            below += [(None, sub) for sub in value]
        elif keyword in _NAMED_SCHEMAS and isinstance(value, dict):
            below += [(None, sub) for sub in value.values()]
    return below


def _value(arguments: bytes, path: Path) -> bytes | None:
    """The raw value at a path; None where there is none."""
    for name in path:
        try:
            raw = _members(arguments).get(name)
        except UNREADABLE:
            return None
        if raw is None:
            return None
        arguments = bytes(raw)
    return arguments


def _text(raw: bytes | None) -> str | None:
    """A string, a truth value or a number as it stands in a header; None for whatever else."""
    if raw is None:
        return None
    if raw in (b"true", b"false") or _INTEGER.fullmatch(raw):
        return raw.decode("ascii")
    value = read_value(raw)
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() else repr(value)
    return value if isinstance(value, str) else None
