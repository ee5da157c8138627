"""What the specification asks of an HTTP server, where this door is one: before a command that knows no HTTP.

From 2026-07-28 on the headers of a request repeat what its message says, and an error has a status. Before that, a
session begins with `initialize`. A server behind a URL sees to all of this itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from subluminal.adapters.http.era import decoded, mismatch
from subluminal.contracts.jsontext import quote
from subluminal.http.heads import values
from subluminal.mcp.headers import METHOD, NAME, NAMED_BY, PROTOCOL_VERSION, SESSION_ID
from subluminal.mcp.message.reading import AMBIGUOUS, CALL, PROTOCOL_VERSION_KEY, REQUEST, UNREADABLE, read_value

if TYPE_CHECKING:
    from subluminal.http.heads import RequestHead
    from subluminal.mcp.headers import ParameterHeaders
    from subluminal.mcp.message.reading import Reading

INVALID_REQUEST = -32600
INVALID_PARAMS = -32602
HEADER_MISMATCH = -32020
CAPABILITIES_KEY = "io.modelcontextprotocol/clientCapabilities"
INITIALIZE = "initialize"
_BAD_REQUEST = frozenset((-32700, INVALID_REQUEST, INVALID_PARAMS, HEADER_MISMATCH, -32021, -32022))
_METHOD_NOT_FOUND = -32601


class Unfit:
    """A request that goes no further: the JSON-RPC error of the answer, whose status is 400."""

    __slots__ = ("code", "message")

    def __init__(self, code: int, message: str) -> None:
        self.code = code
        self.message = message

    def reply(self, id_raw: bytes) -> bytes:
        error = f'"error":{{"code":{self.code},"message":{quote(self.message)}}}'
        return b'{"jsonrpc":"2.0","id":' + id_raw + b"," + error.encode("utf-8", "replace") + b"}"


def unfit_beginning(head: RequestHead, reading: Reading | None) -> Unfit | None:
    """The first message of a session."""
    if reading is None or reading.method == INITIALIZE:
        return None
    if reading.era_2026:
        return Unfit(HEADER_MISMATCH, "Bad Request: the header MCP-Protocol-Version is missing")
    return Unfit(INVALID_REQUEST, f"Bad Request: the header {SESSION_ID.decode()} is missing")


def unfit_stateless(head: RequestHead, reading: Reading, parameters: ParameterHeaders) -> Unfit | None:
    """A request of revision 2026-07-28: every header that is required, and the same as the message."""
    if reading.kind not in (AMBIGUOUS, CALL, REQUEST) or reading.id_raw is None:
        return None
    meta = _meta(reading)
    for key in (PROTOCOL_VERSION_KEY, CAPABILITIES_KEY):
        if key not in meta:
            return Unfit(INVALID_PARAMS, f"Invalid params: params._meta has no {key}")
    version = head.said(PROTOCOL_VERSION) or b""
    if decoded(version) != meta[PROTOCOL_VERSION_KEY]:
        return Unfit(HEADER_MISMATCH, "the header MCP-Protocol-Version does not match the message")
    missing = _missing(head, reading)
    why = f"the header {missing} is missing" if missing else mismatch(head, reading)
    if why is None and reading.kind == CALL:
        why = _wrong_parameter(head, reading, parameters)
    return None if why is None else Unfit(HEADER_MISMATCH, why)


def status_of(error: bytes | None) -> int:
    """Of an answer with this error, in revision 2026-07-28."""
    value = read_value(error) if error is not None else None
    code = value.get("code") if isinstance(value, dict) else None
    if code == _METHOD_NOT_FOUND:
        return 404
    return 400 if isinstance(code, int) and code in _BAD_REQUEST else 200


def _meta(reading: Reading) -> dict[str, Any]:
    if reading.meta is not None:
        meta = read_value(reading.meta)
    else:
        try:
            value = read_value(reading.raw)
        except UNREADABLE:
            return {}
        params = value.get("params") if isinstance(value, dict) else None
        meta = params.get("_meta") if isinstance(params, dict) else None
    return meta if isinstance(meta, dict) else {}


def _missing(head: RequestHead, reading: Reading) -> str | None:
    if head.said(METHOD) is None:
        return "Mcp-Method"
    return "Mcp-Name" if reading.method in NAMED_BY and head.said(NAME) is None else None


def _wrong_parameter(head: RequestHead, reading: Reading, parameters: ParameterHeaders) -> str | None:
    """As far as the tools have been listed, which is how a client knows of these headers itself."""
    for name, value in parameters.of_call(reading.tool_name, reading.arguments or b"{}"):
        if [decoded(given) for given in values(head.headers, name.lower())] != [decoded(value)]:
            return f"the header {name.decode()} does not match the argument"
    return None
