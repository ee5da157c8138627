"""One event of a stream: its type, where name and data agree about it, and its members.

kind, found = read_event(name, data)        AT_ONCE, OTHER, or one of the six types that make up a message
index_of(data, found), value_of(data, found, "delta")
"""

from __future__ import annotations

from subluminal.contracts.members import Span, folded, members, text_of
from subluminal.model.words import ModelFault

MAX_INDEX_DIGITS = 6
AT_ONCE = "at once"  # it passes whatever is held
OTHER = "other"

# The types that make up a message, and where blocks and messages stand in them. Anywhere else some client could still
# take them for what they are.
_PLACES = {
    "message_start": "message",
    "content_block_start": "content_block",
    "content_block_delta": "delta",
    "content_block_stop": "",
    "message_delta": "delta",
    "message_stop": "",
}
_READ = frozenset(("type", "index", "message", "content_block", "delta", "content"))
_CARRIERS = _READ - {"type", "index"}
_ANYWHERE = ("ping", "error")


def read_event(name_raw: bytes, data: bytes) -> tuple[str, dict[str, Span]]:
    name = name_raw.decode("utf-8", "replace")
    if folded(name) not in _PLACES and b"{" not in data:
        return AT_ONCE, {}  # `[DONE]`, say: no parser finds a block in it
    try:
        found = members(data, _READ)
    except ModelFault as fault:
        if name in _ANYWHERE and b"content_block" not in data:
            return AT_ONCE, {}
        raise ModelFault(f"the data of an event: {fault.why}") from None
    kind = (text_of(found["type"].of(data)) if "type" in found else None) or ""
    if name != kind and (folded(name) in _PLACES or folded(kind) in _PLACES):
        raise ModelFault("the name of an event and the type of its data disagree")
    if kind not in _PLACES:
        return AT_ONCE if kind in _ANYWHERE else OTHER, found
    if not found.keys() & _CARRIERS <= {_PLACES[kind]}:
        raise ModelFault("a member that does not belong into its event")
    return kind, found


def index_of(data: bytes, found: dict[str, Span]) -> int:
    raw = found["index"].of(data) if "index" in found else b""
    if not raw.isdigit() or len(raw) > MAX_INDEX_DIGITS:
        raise ModelFault("a content block has no index")
    return int(raw)


def value_of(data: bytes, found: dict[str, Span], key: str) -> bytes:
    if key not in found:
        raise ModelFault(f"an event without its {key}")
    return found[key].of(data)
