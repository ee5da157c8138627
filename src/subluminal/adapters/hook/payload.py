"""What a client's hook says, as far as anybody here asks: one JSON object on the hook's stdin.

The client wrote it, but what is in it comes from a model and from tools. An object that two parsers could read
differently has a `fault`; nothing is raised.
"""

from __future__ import annotations

import msgspec
from msgspec import Raw, Struct

from subluminal.contracts.canonical import read_args
from subluminal.contracts.errors import CanonicalError
from subluminal.contracts.jsontext import quote

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# Names and ids that are longer belong to nobody.
MAX_WORD_CHARS = 4_096
# A client calls some tens of tools at once.
MAX_BATCH = 4_096

_members = msgspec.json.Decoder(dict[str, Raw]).decode
_elements = msgspec.json.Decoder(list[Raw]).decode
_any = msgspec.json.Decoder().decode
_UNREADABLE = (ValueError, RecursionError)


class Payload(Struct, eq=False, gc=False):
    """`tool_input`, `tool_response` as JSON text, byte for byte; empty where there is none. `fault`: see above."""

    event: str = ""
    tool_name: str = ""
    tool_input: bytes = b""
    tool_use_id: str = ""
    agent_id: str = ""
    cwd: str = ""
    source: str = ""
    file_path: str = ""  # of settings that changed
    tool_response: bytes = b""
    error: str = ""
    is_interrupt: bool = False
    duration_ms: int | None = None
    batch: list[str] = []  # the ids of the calls that PostToolBatch tells of
    fault: str | None = None


def read_payload(text: bytes, max_inspect_bytes: int) -> Payload:
    try:
        members = _members(text)
    except _UNREADABLE:
        return Payload(fault="not one JSON object")
    fault = None
    if _length(members) != len(text):
        fault = _fault_of(text, max_inspect_bytes)
    payload = Payload(
        event=_word(members, "hook_event_name"),
        tool_name=_word(members, "tool_name"),
        tool_input=bytes(members.get("tool_input", b"")),
        tool_use_id=_word(members, "tool_use_id"),
        agent_id=_word(members, "agent_id"),
        cwd=_word(members, "cwd"),
        source=_word(members, "source"),
        file_path=_word(members, "file_path"),
        tool_response=bytes(members.get("tool_response", b"")),
        error=_text(members, "error"),
        is_interrupt=bytes(members.get("is_interrupt", b"")) == b"true",
        duration_ms=_duration(bytes(members.get("duration_ms", b""))),
        fault=fault,
    )
    if "tool_calls" in members:
        payload.batch = _batch(bytes(members["tool_calls"]))
    return payload


def _length(members: dict[str, Raw]) -> int:
    """Of an object with these members, written compactly: then no key stands in it twice."""
    keys = sum(len(quote(key).encode("utf-8", "surrogatepass")) for key in members)
    return 1 + keys + sum(len(bytes(raw)) + 2 for raw in members.values()) if members else 2


def _fault_of(text: bytes, max_inspect_bytes: int) -> str | None:
    """Written otherwise: read with every key in view, where that takes no longer than any other message."""
    if len(text) > max_inspect_bytes:
        return "too large to be read exactly"
    try:
        read_args(text)
    except CanonicalError as error:
        return error.kind
    return None


def _value(members: dict[str, Raw], name: str) -> Any:
    try:
        return _any(members[name]) if name in members else None
    except _UNREADABLE:
        return None


def _word(members: dict[str, Raw], name: str) -> str:
    text = _text(members, name)
    return text if len(text) <= MAX_WORD_CHARS else ""


def _text(members: dict[str, Raw], name: str) -> str:
    raw = bytes(members.get(name, b""))
    value = _value(members, name) if raw[:1] == b'"' else None
    return value if isinstance(value, str) else ""


def _duration(raw: bytes) -> int | None:
    """Some clients write milliseconds with a fraction."""
    whole = raw.partition(b".")[0]
    return int(whole) if 0 < len(whole) < 16 and whole.isdigit() else None


def _batch(raw: bytes) -> list[str]:
    try:
        calls = [_members(call) for call in _elements(raw)[:MAX_BATCH]]
    except _UNREADABLE:
        return []
    return [word for word in (_word(call, "tool_use_id") for call in calls) if word]
