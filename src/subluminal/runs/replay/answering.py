"""A server out of the record: what it said of itself, and its answers to the calls that were picked. No I/O.

Results go out byte for byte as they were kept. What cannot be answered is an error that says so, never an empty result.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import Raw, Struct

from subluminal.contracts.jsontext import to_json
from subluminal.mcp.message.reading import id_key
from subluminal.mcp.message.wire import read_message
from subluminal.runs.replay.picking import Picked
from subluminal.runs.replay.tape import KEPT, LOST, Tape, Taped, inflated

# Of JSON-RPC: a method that nobody answers; and ours, for a call that the record has no answer to.
METHOD_NOT_FOUND = -32601
NOT_ON_RECORD = -32004
LISTS = {"tools/list": "tools", "prompts/list": "prompts", "resources/templates/list": "resourceTemplates"}
LISTS["resources/list"] = "resources"
_EMPTY = b"{}"
_ONE_LINE = bytes.maketrans(b"\r\n", b"  ")
WHY = {
    "too_large": "its result was too large to be kept",
    "no_room": "there was no more room for results when it ended",
    LOST: "its result is missing from what was kept",
    "none": "no result of it is on record",
}
REFUSED_THEN = "it was refused when the run was recorded, so that nobody knows what it would have answered"


class Message(Struct):
    method: str = ""
    id: Raw = Raw()
    params: Raw = Raw()


class RecordedServer:
    """`tape`: of this server alone. `picks`: what calls on their way are of the record, by their id; see `calls`."""

    def __init__(self, tape: Tape, server_name: str, picks: dict[bytes, Picked]) -> None:
        self._name = server_name
        self._picks = picks
        self._calls = tape.calls
        self._said: dict[str, list[bytes]] = {}  # deflated: of a bundle from anywhere, all of it may be more than fits
        for said in tape.said:
            self._said.setdefault(said.method, []).append(said.result)

    def heard(self, line: bytes) -> bytes | None:
        """The answer to a line; None where nothing is to be answered."""
        try:
            if line.lstrip()[:1] == b"[":
                answers = [self._answer(element) for element in msgspec.json.decode(line, type=list[Message])]
                told = [answer for answer in answers if answer is not None]
                return b"[" + b",".join(told) + b"]" if told else None
            return self._answer(msgspec.json.decode(line, type=Message))
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            id_raw = read_message(line).id_raw  # whoever asks waits for an answer, however odd the question
            return None if id_raw is None else self._called(id_raw)

    def missed(self, line: bytes) -> bytes | None:
        """The id of a call that is not on record, if the line is one."""
        try:
            message = msgspec.json.decode(line, type=Message)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None
        picked = self._picks.get(id_key(bytes(message.id))) if message.method == "tools/call" else None
        return bytes(message.id) if picked is not None and picked.call is None else None

    def _answer(self, message: Message) -> bytes | None:
        id_raw = bytes(message.id)
        if not message.method or not id_raw:
            return None
        if message.method == "tools/call":
            return self._called(id_raw)
        result = self._other(message.method, bytes(message.params) or _EMPTY)
        if result is None:
            return _error(id_raw, METHOD_NOT_FOUND, f"{message.method} is not on record: this is a replay")
        return _result(id_raw, result)

    # -- calls ----------------------------------------------------------------------------------------------------

    def _called(self, id_raw: bytes) -> bytes:
        picked = self._picks.pop(id_key(id_raw), None)
        if picked is None or picked.call is None:
            return _error(id_raw, NOT_ON_RECORD, _missed(picked))
        call = picked.call
        raw = inflated(call.result) if call.result is not None and call.state in KEPT else None
        if raw is not None and (member := _member(call, raw)) is not None:
            return b'{"jsonrpc":"2.0","id":%b,"%b":%b}' % (id_raw, member, raw.translate(_ONE_LINE))
        return _error(id_raw, NOT_ON_RECORD, unanswerable(call))

    # -- everything else ------------------------------------------------------------------------------------------

    def _other(self, method: str, params: bytes) -> bytes | None:
        if method == "initialize":
            return self._initialize(params)
        if method == "server/discover":
            return next(self._results(method), None)
        if method in LISTS:
            return self._list(method, params)
        return _EMPTY if method in ("ping", "logging/setLevel") else None

    def _results(self, method: str) -> Iterator[bytes]:
        """What the server said, in its order."""
        return (result for said in self._said.get(method, ()) if (result := inflated(said)) is not None)

    def _initialize(self, params: bytes) -> bytes:
        """As it was, without what a replay cannot do: no client shall ask for what nobody answers."""
        asked = _object(params).get("protocolVersion")
        result = _object(next(self._results("initialize"), _EMPTY))
        named = result.get("serverInfo") or {"name": self._name, "version": "recorded"}
        capabilities: dict[str, Any] = {"tools": {}, **({"prompts": {}} if "prompts/list" in self._said else {})}
        result |= {"protocolVersion": result.get("protocolVersion") or asked or "2025-06-18"}
        return msgspec.json.encode({**result, "serverInfo": named, "capabilities": capabilities})

    def _list(self, method: str, params: bytes) -> bytes:
        """A list has pages: what comes after a cursor is what came after it then."""
        cursor = _object(params).get("cursor")
        before: Any = None
        for page in self._results(method):
            if before == cursor:
                return page
            before = _object(page).get("nextCursor")
        tools: list[dict[str, Any]] = []
        if method == "tools/list" and cursor is None:
            names = sorted({call.tool_name for call in self._calls if not call.tool_name.startswith("(")})
            tools = [{"name": name, "inputSchema": {"type": "object"}} for name in names]
        return msgspec.json.encode({LISTS[method]: tools})


def unanswerable(call: Taped) -> str:
    """Why a call that is on record has no answer there."""
    if call.action != "ALLOW":
        return f"Not answered in this replay: {REFUSED_THEN}."
    if call.state == "none" and call.status not in (None, "OK"):
        return f"Recorded as {call.status}: {call.error_message or 'nobody answered'}"
    return f"Not answered in this replay: {WHY.get(call.state, WHY['none'])}."


def can_answer(call: Taped) -> bool:
    """Whether a client gets the result that it got then, be it an error."""
    return call.action == "ALLOW" and (call.state in KEPT or (call.state == "none" and call.status not in (None, "OK")))


def _missed(picked: Picked | None) -> str:
    miss = None if picked is None else picked.miss
    text = "This call is not on record, and nothing is executed in a replay."
    if miss is not None and miss.nearest is not None:
        differs = f"; it differs in {', '.join(miss.keys)}" if miss.keys else ""
        text += f" Nearest to it is call {miss.nearest}{differs}."
    return text


def _member(call: Taped, raw: bytes) -> bytes | None:
    """Whether it was a result or an error of JSON-RPC; None: it is no JSON, such as the body of a plain HTTP answer."""
    try:
        value = msgspec.json.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    failed = call.status != "OK" and value.get("isError") is not True and "code" in value
    return b"error" if failed else b"result"


def _object(raw: bytes) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _result(id_raw: bytes, result: bytes) -> bytes:
    return b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (id_raw, result.translate(_ONE_LINE))


def _error(id_raw: bytes, code: int, message: str) -> bytes:
    error = to_json({"code": code, "message": message}).encode("utf-8", "replace")
    return b'{"jsonrpc":"2.0","id":%b,"error":%b}' % (id_raw, error)
