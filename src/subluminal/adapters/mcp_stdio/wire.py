"""JSON-RPC lines, read without I/O: what a line is, and whether every sane parser would read it the same way.

A tool server may parse differently from us, so a line is *ambiguous* when two parsers could disagree about the tool
call in it: duplicate or case-variant protocol keys, a raw CR (some servers end a line there), trailing bytes, invalid
UTF-8, JSON that only a lenient parser takes. Who decides what happens to an ambiguous line is the gate, not this.

Speed: msgspec finds the members as raw spans. The lengths of the spans then prove that nothing else is in the line: no
further key, no duplicate, no white space, no needless escape, whatever the order (each of these only ever makes a line
longer than the sum of its parts). Anything that does not add up is read again, exactly.
"""

from __future__ import annotations

import msgspec
from msgspec import Raw, Struct

from subluminal.adapters.mcp_stdio.scan import MessageScan
from subluminal.contracts.canonical import canonical_bytes
from subluminal.contracts.errors import CanonicalError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# What a line from the client is.
PASS = "pass"  # forwarded as it is: a notification, something we need not know
REQUEST = "request"  # a request that is not a tool call: its id is remembered until the answer
CALL = "call"  # tools/call, with or without id
CANCEL = "cancel"  # notifications/cancelled
BATCH = "batch"
AMBIGUOUS = "ambiguous"
RESPONSE = "response"

TOOLS_CALL = b'"tools/call"'
_CANCELLED = b'"notifications/cancelled"'
_ABSENT = Raw(b"")
_TOP_KEYS = ("jsonrpc", "id", "method", "params", "result", "error")
_PARAM_KEYS = ("name", "arguments")
_ERA_2026 = b'"io.modelcontextprotocol/protocolVersion"'
_CONTEXT_KEYS = ("claudecode/toolUseId", "callId", "itemId", "threadId", "traceparent")
_MAX_CONTEXT_CHARS = 256


class _Message(Struct, gc=False):
    jsonrpc: Raw = _ABSENT
    id: Raw = _ABSENT
    method: Raw = _ABSENT
    params: Raw = _ABSENT


class _Params(Struct, gc=False):
    name: Raw = _ABSENT
    arguments: Raw = _ABSENT
    meta: Raw = msgspec.field(default=_ABSENT, name="_meta")
    task: Raw = _ABSENT
    request_state: Raw = msgspec.field(default=_ABSENT, name="requestState")
    input_responses: Raw = msgspec.field(default=_ABSENT, name="inputResponses")


class _PlainParams(Struct, gc=False):
    name: str
    arguments: Raw = _ABSENT
    meta: Raw = msgspec.field(default=_ABSENT, name="_meta")


class _PlainCall(Struct, gc=False):
    """A tool call as clients write it, read in one pass."""

    id: Raw
    method: str
    params: _PlainParams
    jsonrpc: str = ""


class _Reply(Struct, gc=False):
    id: Raw = _ABSENT
    method: Raw = _ABSENT
    result: Raw = _ABSENT
    error: Raw = _ABSENT


class _Result(Struct, gc=False):
    """The members that change how a call ended."""

    is_error: Raw = msgspec.field(default=_ABSENT, name="isError")
    result_type: Raw = msgspec.field(default=_ABSENT, name="resultType")
    task: Raw = _ABSENT


class _Cancelled(Struct, gc=False):
    request_id: Raw = msgspec.field(default=_ABSENT, name="requestId")


_plain_call = msgspec.json.Decoder(_PlainCall).decode
_message = msgspec.json.Decoder(_Message).decode
_params = msgspec.json.Decoder(_Params).decode
_reply = msgspec.json.Decoder(_Reply).decode
_result = msgspec.json.Decoder(_Result).decode
_cancelled = msgspec.json.Decoder(_Cancelled).decode
_string = msgspec.json.Decoder(str).decode
_raws = msgspec.json.Decoder(list[Raw]).decode
_any = msgspec.json.Decoder().decode


class Reading(Struct, eq=False, gc=False):
    """One line, read. Raw members are the exact bytes of the line; None where absent."""

    kind: str
    raw: bytes = b""
    id_raw: bytes | None = None
    tool_name: str = ""
    arguments: bytes | None = b"{}"
    meta: bytes | None = None
    request_state: bytes | None = None
    input_responses: bytes | None = None
    ambiguous: str | None = None
    elements: list[Reading] = []

    @property
    def era_2026(self) -> bool:
        """A request of revision 2026-07-28 says so itself; the era is never a property of the process."""
        return self.meta is not None and _ERA_2026 in self.meta


class Reply(Struct, eq=False, gc=False):
    """A line from the server that answers a request."""

    id_raw: bytes
    result: bytes | None
    error: bytes | None


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


# -- from the client ----------------------------------------------------------------------------------------------


def read_client_line(line: bytes) -> Reading:
    """`line` comes without its newline; one trailing CR (CRLF) is white space to every parser."""
    text = line
    if b"\r" in line:
        text = line.removesuffix(b"\r")
        if b"\r" in text:
            # The Python SDK ends a line at a bare CR and would run a call that stands behind it.
            return _ambiguous(text, "raw CR inside the line")
    if not text.isascii():
        try:
            text.decode()
        except UnicodeDecodeError:
            return _ambiguous(text, "invalid UTF-8")
    try:
        call = _plain_call(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return _read_object(text)
    params = call.params
    name = params.name
    if call.method != "tools/call" or not name.isascii():
        return _read_object(text)
    id_raw = bytes(call.id)
    # {"id":,"method":"tools/call","params":{"name":""}} is 50 bytes.
    length = 50 + len(id_raw) + len(name)
    arguments = b"{}"
    if params.arguments is not _ABSENT:
        arguments = bytes(params.arguments)
        length += 13 + len(arguments)
        if arguments == b"null":
            arguments = b"{}"
    if call.jsonrpc:
        length += 13 + len(call.jsonrpc)
    meta = None
    if params.meta is not _ABSENT:
        meta = bytes(params.meta)
        length += 9 + len(meta)
    if length != len(text):
        return _read_object(text)
    return Reading(CALL, text, id_raw, name, arguments, meta)


def _read_object(text: bytes) -> Reading:
    try:
        message = _message(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return _read_exactly(text)
    id_raw = bytes(message.id)
    method = bytes(message.method)
    params = bytes(message.params)
    length = 1
    if id_raw:
        length += 6 + len(id_raw)
    if method:
        length += 10 + len(method)
    if params:
        length += 10 + len(params)
    version = bytes(message.jsonrpc)
    if version:
        length += 11 + len(version)
    if length != len(text):
        return _read_exactly(text)
    if method == TOOLS_CALL:
        return _read_call(text, id_raw, params)
    if b"\\" in method or not method.isascii() or b"call" in method.lower():
        return _read_exactly(text)  # it may be another spelling of tools/call
    return _read_other(text, id_raw, method, params)


def _read_other(text: bytes, id_raw: bytes, method: bytes, params: bytes) -> Reading:
    if not method:
        return Reading(RESPONSE, text)
    if id_raw:
        reading = Reading(REQUEST, text)
        reading.id_raw = id_raw
        return reading
    if method == _CANCELLED:
        reading = Reading(CANCEL, text)
        try:
            reading.id_raw = bytes(_cancelled(params).request_id) or None
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            pass
        return reading
    return Reading(PASS, text)


def _read_call(text: bytes, id_raw: bytes, params: bytes) -> Reading:
    try:
        members = _params(params)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return _read_exactly(text)
    name = bytes(members.name)
    arguments = bytes(members.arguments)
    meta = bytes(members.meta)
    length = 1
    if name:
        length += 8 + len(name)
    if arguments:
        length += 13 + len(arguments)
    if meta:
        length += 9 + len(meta)
    task = bytes(members.task)
    if task:
        length += 8 + len(task)
    state = bytes(members.request_state)
    if state:
        length += 16 + len(state)
    responses = bytes(members.input_responses)
    if responses:
        length += 18 + len(responses)
    if length != len(params) or name[:1] != b'"' or b"\\" in name:
        return _read_exactly(text)
    reading = Reading(CALL, text)
    reading.id_raw = id_raw or None
    reading.tool_name = name[1:-1].decode()
    if arguments and arguments != b"null":
        reading.arguments = arguments
    if meta:
        reading.meta = meta
    if state:
        reading.request_state = state
    if responses:
        reading.input_responses = responses
    return reading


# -- the exact reading --------------------------------------------------------------------------------------------


class _Pairs(list):  # type: ignore[type-arg]  # a JSON object as its members in order, duplicates included
    pass


def _no_constant(name: str) -> Any:
    raise ValueError(name)


def _read_exactly(text: bytes) -> Reading:
    """White space, further keys, escapes, batches, faults: read with every member in view."""
    import json

    stripped = text.strip(b" \t")
    if not stripped:
        return Reading(PASS, text)
    try:
        value = json.loads(
            stripped.decode(), object_pairs_hook=_Pairs, parse_constant=_no_constant, parse_float=str, parse_int=str
        )
    except RecursionError:
        return _read_scanned(text)
    except ValueError:
        # Invalid for us; a lenient server may still find a call in it.
        return _ambiguous(text, "invalid JSON")
    if isinstance(value, _Pairs):
        return _read_members(text, stripped, value)
    if isinstance(value, list):
        return _read_batch(text, stripped)
    return Reading(PASS, text)  # a bare scalar is no message to anyone


def _read_batch(text: bytes, stripped: bytes) -> Reading:
    reading = Reading(BATCH, text)
    try:
        raws = _raws(stripped)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        # `json` takes lone surrogates, others do not.
        return _ambiguous(text, "a batch that not every parser can read")
    for raw in raws:
        element = bytes(raw).strip(b" \t")
        inner = _read_object(element)
        if inner.kind == BATCH:
            inner = _ambiguous(element, "a batch inside a batch")
        reading.elements.append(inner)
    return reading


def _variants(pairs: _Pairs, keys: tuple[str, ...]) -> dict[str, list[Any]]:
    """For each protocol key, the values under it or under a spelling some parsers take for it."""
    found: dict[str, list[Any]] = {}
    for key, value in pairs:
        plain = key if key in keys else _folded(key)
        if plain in keys:
            found.setdefault(plain, []).append((key, value))
    return found


def _folded(key: str) -> str:
    """What a sloppy parser might make of a key or a method: case, compatibility forms and stray spaces folded."""
    if "\0" in key:
        key = key.partition("\0")[0]  # where a string ends in C
    if key.isascii():
        return key.strip().lower()
    import unicodedata

    return unicodedata.normalize("NFKC", key).strip().casefold()


def _read_members(text: bytes, stripped: bytes, pairs: _Pairs) -> Reading:
    top = _variants(pairs, _TOP_KEYS)
    methods = top.get("method", [])
    if not any(isinstance(value, str) and _folded(value) == "tools/call" for _, value in methods):
        return _plain(text, stripped)
    for key, found in top.items():
        if len(found) > 1:
            return _ambiguous(text, f"duplicate key {key}")
        if found[0][0] != key:
            return _ambiguous(text, f"a variant of the key {key}")
    if methods[0][1] != "tools/call":
        return _ambiguous(text, "a variant of the method tools/call")
    params = top.get("params")
    if params is None or not isinstance(params[0][1], _Pairs):
        return _ambiguous(text, "tools/call without a params object")
    inner = _variants(params[0][1], _PARAM_KEYS)
    for key, found in inner.items():
        if len(found) > 1:
            return _ambiguous(text, f"duplicate key {key}")
        if found[0][0] != key:
            return _ambiguous(text, f"a variant of the key {key}")
    names = [key for key, _ in params[0][1]]
    if len(set(names)) != len(names):
        return _ambiguous(text, "duplicate key in params")
    try:
        message = _message(stripped)
        members = _params(bytes(message.params))
        name = _string(bytes(members.name))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        # No name, a name that is no string, or a lone surrogate, which `json` takes and others do not.
        return _ambiguous(text, "tools/call without a readable tool name")
    if "\0" in name:
        return _ambiguous(text, "NUL in the tool name")
    reading = Reading(CALL, text)
    reading.id_raw = bytes(message.id) or None
    reading.tool_name = name
    arguments = bytes(members.arguments)
    if arguments and arguments != b"null":
        reading.arguments = arguments
    reading.meta = bytes(members.meta) or None
    reading.request_state = bytes(members.request_state) or None
    reading.input_responses = bytes(members.input_responses) or None
    return reading


def _plain(text: bytes, stripped: bytes) -> Reading:
    """Certainly no tool call. Its id, if it is a request, is remembered."""
    try:
        message = _message(stripped)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return Reading(PASS, text)
    method = bytes(message.method)
    return _read_other(text, bytes(message.id), method, bytes(message.params))


def read_scan(scan: MessageScan, text: bytes = b"") -> Reading:
    """The reading of a message that was only scanned: no arguments, no batch, everything else."""
    if scan.ambiguous is not None:
        reading = _ambiguous(text, scan.ambiguous)
        reading.id_raw = _scanned_id(scan)
        reading.tool_name = _scanned_name(scan)
        return reading
    by_container: dict[str, _Pairs] = {"": _Pairs(), "params": _Pairs(), "result": _Pairs()}
    for container, raw_key in scan.keys:
        try:
            key = _string(b'"' + raw_key + b'"')
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return _ambiguous(text, "a key that is no valid string")
        by_container[container].append((key, raw_key))
    top = _variants(by_container[""], _TOP_KEYS)
    method = scan.values.get("method", b"")
    fault = next((key for key, found in top.items() if len(found) > 1 or found[0][1] != key.encode()), None)
    inner = _variants(by_container["params"], _PARAM_KEYS)
    fault = fault or next((key for key, found in inner.items() if len(found) > 1 or found[0][1] != key.encode()), None)
    if fault is not None:
        reading = _ambiguous(text, f"duplicate or variant key {fault}")
        reading.id_raw = _scanned_id(scan)
        reading.tool_name = _scanned_name(scan)
        return reading
    if method[:1] == b'"' and method != TOOLS_CALL:
        try:
            spelled = _string(method)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return _ambiguous(text, "a method that is no valid string")
        if spelled == "tools/call":
            method = TOOLS_CALL
        elif _folded(spelled) == "tools/call":
            return _ambiguous(text, "a variant of the method tools/call")
    if method != TOOLS_CALL:
        return _read_other(text, scan.values.get("id", b""), method, b"")
    reading = Reading(CALL, text)
    reading.tool_name = _scanned_name(scan)
    if not reading.tool_name or "\0" in reading.tool_name:
        return _ambiguous(text, "tools/call without a readable tool name")
    if "id" in scan.nested:
        return _ambiguous(text, "an id that is neither string nor number")
    reading.id_raw = scan.values.get("id")
    reading.arguments = None
    return reading


def _scanned_id(scan: MessageScan) -> bytes | None:
    return None if "id" in scan.nested else scan.values.get("id")


def _scanned_name(scan: MessageScan) -> str:
    try:
        return _string(scan.values.get("params.name", b'""'))
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return ""


def _read_scanned(text: bytes) -> Reading:
    """Too deep for a recursive parser: the same scan that serves messages too large to hold."""
    scan = MessageScan()
    scan.feed(text)
    scan.finish()
    return read_scan(scan, text)


def _ambiguous(text: bytes, reason: str) -> Reading:
    """Best effort for the record and the answer: the last name and id that stand in the text."""
    reading = Reading(AMBIGUOUS, text)
    reading.ambiguous = reason
    reading.arguments = None
    try:
        message = _message(text)
        reading.id_raw = bytes(message.id) or None
        members = _params(bytes(message.params))
        reading.tool_name = _string(bytes(members.name))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        pass
    return reading


# -- from the server ----------------------------------------------------------------------------------------------


def read_reply(line: bytes) -> Reply | None:
    """A response, or None for anything else (a request, a notification, something unreadable)."""
    try:
        message = _reply(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    if message.id is _ABSENT or message.method is not _ABSENT:
        return None
    result, error = message.result, message.error
    return Reply(
        bytes(message.id),
        None if result is _ABSENT else bytes(result),
        None if error is _ABSENT else bytes(error),
    )


def is_plain_result(raw: bytes) -> bool:
    """Whether a result ends its call, and ends it well: no error, no request for input, no task."""
    try:
        result = _result(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return True
    return result.is_error is _ABSENT and result.result_type is _ABSENT and result.task is _ABSENT


def read_reply_batch(line: bytes) -> list[Reply | None]:
    """The elements of a batch of responses; an empty list when the line is no array."""
    try:
        return [read_reply(bytes(raw)) for raw in _raws(line)]
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return []


def read_value(raw: bytes) -> Any:
    """A small JSON value as Python; None when it cannot be read."""
    try:
        return _any(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def call_context(meta: bytes | None) -> dict[str, Any] | None:
    """The client's own ids for this call (§7.1), so that its narrative can be matched with the record."""
    if meta is None or not any(key.encode() in meta for key in _CONTEXT_KEYS):
        return None
    value = read_value(meta)
    if not isinstance(value, dict):
        return None
    return {
        key: value[key]
        for key in _CONTEXT_KEYS
        if isinstance(value.get(key), str) and len(value[key]) <= _MAX_CONTEXT_CHARS
    } or None
