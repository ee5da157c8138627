"""The exact reading of a client's message, where a quick look proves nothing: every member in view.

Duplicate and variant keys, escapes, white space, batches, lenient JSON, and messages that were only scanned. What two
parsers could read differently is ambiguous.
"""

from __future__ import annotations

import msgspec
from msgspec import Raw, Struct

from subluminal.mcp.message.reading import (
    ABSENT,
    AMBIGUOUS,
    BATCH,
    CALL,
    CANCEL,
    PASS,
    REQUEST,
    RESPONSE,
    TOOLS_CALL,
    UNREADABLE,
    Reading,
    ambiguous,
    name_in,
    raw_elements,
    raw_message,
    raw_params,
    string,
    take_found,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from subluminal.mcp.message.scan import MessageScan

_TOOLS_CALL = b'"tools/call"'
_TOP_KEYS = ("jsonrpc", "id", "method", "params", "result", "error")
_PARAM_KEYS = ("name", "arguments")


class _Cancelled(Struct, gc=False):
    request_id: Raw = msgspec.field(default=ABSENT, name="requestId")


_cancelled = msgspec.json.Decoder(_Cancelled).decode


def read_object(text: bytes) -> Reading:
    try:
        message = raw_message(text)
    except UNREADABLE:
        return _read_exactly(text)
    id_raw = bytes(message.id)
    method = bytes(message.method)
    params = bytes(message.params)
    if _length((6, id_raw), (10, method), (10, params), (11, bytes(message.jsonrpc))) != len(text):
        return _read_exactly(text)
    if method == _TOOLS_CALL:
        return _read_call(text, id_raw, params)
    if b"\\" in method or not method.isascii() or b"call" in method.lower():
        return _read_exactly(text)  # it may be another spelling of tools/call
    return _read_other(text, id_raw, method, params)


def _length(*members: tuple[int, bytes]) -> int:
    """Of an object with these members and nothing else: each is its key with quotes, colon and comma, and its text."""
    return 1 + sum(key + len(raw) for key, raw in members if raw)


def _read_other(text: bytes, id_raw: bytes, method: bytes, params: bytes) -> Reading:
    if not method:
        return Reading(RESPONSE, text)
    reading = Reading(PASS, text)
    try:
        reading.method = string(method)
    except UNREADABLE:
        pass  # a method that is no string: nobody's request, but whoever answers it does so under its id
    if id_raw:
        reading.kind = REQUEST
        reading.id_raw = id_raw
    elif reading.method == "notifications/cancelled":
        reading.kind = CANCEL
        try:
            reading.id_raw = bytes(_cancelled(params).request_id) or None
        except UNREADABLE:
            pass
    return reading


def _read_call(text: bytes, id_raw: bytes, params: bytes) -> Reading:
    try:
        members = raw_params(params)
    except UNREADABLE:
        return _read_exactly(text)
    name = bytes(members.name)
    arguments = bytes(members.arguments)
    meta = bytes(members.meta)
    state = bytes(members.request_state)
    responses = bytes(members.input_responses)
    length = _length((8, name), (13, arguments), (9, meta), (8, bytes(members.task)), (16, state), (18, responses))
    if length != len(params) or name[:1] != b'"' or b"\\" in name:
        return _read_exactly(text)
    reading = Reading(CALL, text, id_raw or None, name[1:-1].decode())
    reading.method = TOOLS_CALL
    if arguments and arguments != b"null":
        reading.arguments = arguments
    if meta:
        reading.meta = meta
    if state:
        reading.request_state = state
    if responses:
        reading.input_responses = responses
    return reading


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
        return ambiguous(text, "invalid JSON")
    if isinstance(value, _Pairs):
        return _read_members(text, stripped, value)
    if isinstance(value, list):
        return _read_batch(text, stripped)
    return Reading(PASS, text)  # a bare scalar is no message to anyone


def _read_batch(text: bytes, stripped: bytes) -> Reading:
    try:
        raws = raw_elements(stripped)
    except UNREADABLE:
        # `json` takes lone surrogates, others do not.
        return ambiguous(text, "a batch that not every parser can read")
    elements = []
    for raw in raws:
        element = bytes(raw).strip(b" \t")
        inner = read_object(element)
        if inner.kind == BATCH:
            inner = ambiguous(element, "a batch inside a batch")
        elements.append(inner)
    return Reading(BATCH, text, elements=elements)


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
            return ambiguous(text, f"duplicate key {key}")
        if found[0][0] != key:
            return ambiguous(text, f"a variant of the key {key}")
    if methods[0][1] != "tools/call":
        return ambiguous(text, "a variant of the method tools/call")
    params = top.get("params")
    if params is None or not isinstance(params[0][1], _Pairs):
        return ambiguous(text, "tools/call without a params object")
    inner = _variants(params[0][1], _PARAM_KEYS)
    for key, found in inner.items():
        if len(found) > 1:
            return ambiguous(text, f"duplicate key {key}")
        if found[0][0] != key:
            return ambiguous(text, f"a variant of the key {key}")
    names = [key for key, _ in params[0][1]]
    if len(set(names)) != len(names):
        return ambiguous(text, "duplicate key in params")
    try:
        message = raw_message(stripped)
        members = raw_params(bytes(message.params))
        name = string(bytes(members.name))
    except UNREADABLE:
        # No name, a name that is no string, or a lone surrogate, which `json` takes and others do not.
        return ambiguous(text, "tools/call without a readable tool name")
    if "\0" in name:
        return ambiguous(text, "NUL in the tool name")
    reading = Reading(CALL, text, bytes(message.id) or None, name)
    reading.method = TOOLS_CALL
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
        message = raw_message(stripped)
    except UNREADABLE:
        return Reading(PASS, text)
    method = bytes(message.method)
    return _read_other(text, bytes(message.id), method, bytes(message.params))


def read_scan(scan: MessageScan, text: bytes = b"") -> Reading:
    """The reading of a message that was only scanned: no arguments, no batch, everything else."""
    method = scan.values.get("method", b"")
    fault = scan.ambiguous or _fault_of_keys(scan)
    if fault is None and method[:1] == b'"' and method != _TOOLS_CALL:
        try:
            spelled = string(method)
        except UNREADABLE:
            fault = "a method that is no valid string"
        else:
            if spelled == TOOLS_CALL:
                method = _TOOLS_CALL
            elif _folded(spelled) == TOOLS_CALL:
                fault = "a variant of the method tools/call"
    if fault is None and method != _TOOLS_CALL:
        return _read_other(text, scan.values.get("id", b""), method, b"")
    reading = Reading(AMBIGUOUS, text)
    reading.arguments = None
    take_found(reading, scan)
    if fault is None:
        if not name_in(scan):
            fault = "tools/call without a readable tool name"
        elif "\0" in reading.tool_name:
            fault = "NUL in the tool name"
        elif "id" in scan.nested:
            fault = "an id that is neither string nor number"
    if fault is None:
        reading.kind = CALL
        reading.method = TOOLS_CALL
        reading.args_raw_hash = scan.args_raw_hash
    reading.ambiguous = fault
    return reading


def _fault_of_keys(scan: MessageScan) -> str | None:
    """A key that some parser may take for another, or twice."""
    members = {"": _Pairs(), "params": _Pairs(), "result": _Pairs()}
    for container, raw_key in scan.keys:
        try:
            members[container].append((string(b'"' + raw_key + b'"'), raw_key))
        except UNREADABLE:
            return "a key that is no valid string"
    for container, keys in (("", _TOP_KEYS), ("params", _PARAM_KEYS)):
        for key, spelled in _variants(members[container], keys).items():
            if len(spelled) > 1 or spelled[0][1] != key.encode():
                return f"duplicate or variant key {key}"
    return None


def _read_scanned(text: bytes) -> Reading:
    """Too deep for a recursive parser: the same scan that serves messages too large to hold."""
    from subluminal.mcp.message.scan import MessageScan

    scan = MessageScan()
    scan.feed(text)
    scan.finish()
    return read_scan(scan, text)
