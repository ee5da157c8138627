"""What a JSON-RPC message was read as: the types that reading gives, and the raw members they are made of."""

from __future__ import annotations

import msgspec
from msgspec import Raw, Struct

from subluminal.contracts.canonical import canonical_bytes
from subluminal.contracts.errors import CanonicalError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from subluminal.mcp.message.scan import MessageScan

# What a message from the client is.
PASS = "pass"  # forwarded as it is: a notification, something we need not know
REQUEST = "request"  # a request that is not a tool call: its id is remembered until the answer
CALL = "call"  # tools/call, with or without id
CANCEL = "cancel"  # notifications/cancelled
BATCH = "batch"
AMBIGUOUS = "ambiguous"
RESPONSE = "response"
TOOLS_CALL = "tools/call"
TOOLS_LIST = "tools/list"
_NO_METHOD = {BATCH: "batch", RESPONSE: "response"}

UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
ABSENT = Raw(b"")
PROTOCOL_VERSION_KEY = "io.modelcontextprotocol/protocolVersion"  # in `_meta`, from 2026-07-28 on
_ERA_2026 = b'"%s"' % PROTOCOL_VERSION_KEY.encode()
_CONTEXT_KEYS = ("claudecode/toolUseId", "callId", "itemId", "threadId", "traceparent")
_CONTEXT_KEYS_RAW = tuple(key.encode() for key in _CONTEXT_KEYS)
_MAX_CONTEXT_CHARS = 256


class _Message(Struct, gc=False):
    jsonrpc: Raw = ABSENT
    id: Raw = ABSENT
    method: Raw = ABSENT
    params: Raw = ABSENT


class _Params(Struct, gc=False):
    name: Raw = ABSENT
    arguments: Raw = ABSENT
    meta: Raw = msgspec.field(default=ABSENT, name="_meta")
    task: Raw = ABSENT
    request_state: Raw = msgspec.field(default=ABSENT, name="requestState")
    input_responses: Raw = msgspec.field(default=ABSENT, name="inputResponses")


raw_message = msgspec.json.Decoder(_Message).decode
raw_params = msgspec.json.Decoder(_Params).decode
raw_elements = msgspec.json.Decoder(list[Raw]).decode
string = msgspec.json.Decoder(str).decode
_any = msgspec.json.Decoder().decode


class Reading(Struct, eq=False, gc=False):
    """One message, read. Raw members are its exact bytes; None where absent."""

    kind: str
    raw: bytes = b""
    id_raw: bytes | None = None
    tool_name: str = ""
    arguments: bytes | None = b"{}"
    meta: bytes | None = None
    method: str = ""  # decoded: `tools\/list` is tools/list
    request_state: bytes | None = None
    input_responses: bytes | None = None
    ambiguous: str | None = None
    elements: Sequence[Reading] = ()
    args_raw_hash: str | None = None  # of arguments that were only scanned: SHA-256 of their bytes
    # Of a line that holds several messages and cannot be taken apart: whoever may wait for an answer.
    ids: list[bytes] | None = None
    ids_in_array: bool = False

    @property
    def era_2026(self) -> bool:
        """A request of revision 2026-07-28 says so itself; the era is never a property of the process."""
        return self.meta is not None and _ERA_2026 in self.meta


class Reply(Struct, eq=False, gc=False):
    """A message from the server that answers a request."""

    id_raw: bytes
    result: bytes | None
    error: bytes | None
    ends_well: bool = False  # known of the result without a further look: see `is_plain_result`


def id_key(id_raw: bytes) -> bytes:
    """An id as a dictionary key: by JSON type and value, not by spelling. Ids are echoed raw, never rewritten."""
    if id_raw.isdigit():
        return id_raw
    if b"\\" not in id_raw and id_raw.isascii() and id_raw[:1] == b'"':
        return id_raw
    try:
        return canonical_bytes(id_raw)
    except CanonicalError:
        return id_raw


def no_tool(reading: Reading) -> str:
    """What the record calls a message that names no tool: a name that no tool has."""
    return f"({reading.method or _NO_METHOD.get(reading.kind, 'unreadable')})"


def ambiguous(text: bytes, reason: str) -> Reading:
    """Best effort for the record and the answer: the last name and id that stand in the text."""
    reading = Reading(AMBIGUOUS, text)
    reading.ambiguous = reason
    reading.arguments = None
    try:
        message = raw_message(text)
        reading.id_raw = bytes(message.id) or None
        members = raw_params(bytes(message.params))
        reading.tool_name = string(bytes(members.name)) or no_tool(reading)
    except UNREADABLE:
        from subluminal.mcp.message.scan import MessageScan

        scan = MessageScan(strict=False)
        scan.feed(text)
        scan.finish()
        take_found(reading, scan)
    return reading


def take_found(reading: Reading, scan: MessageScan) -> None:
    """What a scan knows of a message that cannot be read: its name, and who waits for an answer."""
    ids = [message["id"] for message in scan.found.messages if _is_id(message.get("id", b""))]
    if scan.is_array:
        # §5.1 of JSON-RPC: where no id can be found it is null.
        reading.ids, reading.ids_in_array = ids or [b"null"], bool(ids)
        reading.tool_name = no_tool(Reading(BATCH))
        return
    if scan.found.messages:
        reading.ids = ids
    id_raw = scan.values.get("id", b"")
    reading.id_raw = id_raw if "id" not in scan.nested and _is_id(id_raw) else None
    reading.tool_name = name_in(scan) or no_tool(reading)


def name_in(scan: MessageScan) -> str:
    """Empty where none can be read."""
    try:
        return "" if "params.name" in scan.nested else string(scan.values.get("params.name", b""))
    except UNREADABLE:
        return ""


def _is_id(raw: bytes) -> bool:
    """Whether it can stand in an answer: a lenient look takes much for a value that no client could read again."""
    try:
        _any(raw)
    except UNREADABLE:
        return False
    return True


def read_value(raw: bytes) -> Any:
    """A small JSON value as Python; None when it cannot be read."""
    try:
        return _any(raw)
    except UNREADABLE:
        return None


def call_context(meta: bytes) -> dict[str, Any] | None:
    """The client's own ids for this call (§7.1), so that its narrative can be matched with the record."""
    for key in _CONTEXT_KEYS_RAW:
        if key in meta:
            return context_of(read_value(meta))
    return None


def context_of(meta: Any) -> dict[str, Any] | None:
    if not isinstance(meta, dict):
        return None
    return {
        key: meta[key]
        for key in _CONTEXT_KEYS
        if isinstance(meta.get(key), str) and len(meta[key]) <= _MAX_CONTEXT_CHARS
    } or None
