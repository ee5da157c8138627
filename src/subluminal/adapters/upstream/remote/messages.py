"""What this side of the wire has to know of a message: who waits for an answer to it, whom it answers, and what its
headers repeat."""

from __future__ import annotations

import msgspec
from msgspec import Raw, Struct

from subluminal.adapters.upstream.remote.held import Held, Message
from subluminal.mcp.headers import NAMED_BY
from subluminal.mcp.message.reading import (
    ABSENT,
    PROTOCOL_VERSION_KEY,
    UNREADABLE,
    id_key,
    raw_elements,
    raw_message,
    read_value,
    string,
)
from subluminal.mcp.message.scan import MessageScan

INITIALIZE = "initialize"
INITIALIZED = "notifications/initialized"
CANCELLED = "notifications/cancelled"
DISCOVER = "server/discover"
MAX_CHECKED_BYTES = 256 * 1024


class _Params(Struct, gc=False):
    name: Raw = ABSENT
    uri: Raw = ABSENT
    arguments: Raw = ABSENT
    meta: Raw = msgspec.field(default=ABSENT, name="_meta")
    request_id: Raw = msgspec.field(default=ABSENT, name="requestId")


class _Meta(Struct, gc=False):
    version: str = msgspec.field(default="", name=PROTOCOL_VERSION_KEY)


class _Incoming(Struct, gc=False):
    id: Raw = ABSENT
    method: Raw = ABSENT
    result: Raw = ABSENT
    error: Raw = ABSENT


_params = msgspec.json.Decoder(_Params).decode
_meta = msgspec.json.Decoder(_Meta).decode
_incoming = msgspec.json.Decoder(_Incoming).decode


class Outgoing:
    """A message of the client. `ids` are those of the requests in it, raw, under their keys."""

    __slots__ = ("arguments", "body", "cancels", "ids", "is_answer", "method", "name", "version")

    def __init__(self, body: Message) -> None:
        self.body = body
        self.ids: dict[bytes, bytes] = {}
        self.method = ""
        self.name: str | None = None  # what `Mcp-Name` says
        self.arguments = b""
        self.version = ""  # of a request that names its revision itself (from 2026-07-28 on)
        self.cancels: bytes | None = None  # the key of the request that it cancels
        self.is_answer = False  # to a request of the server


def read_outgoing(body: Message) -> Outgoing:
    """What cannot be read goes on as it is; it was judged."""
    outgoing = Outgoing(body)
    if isinstance(body, Held):
        _look_at_scan(outgoing, body)
    elif body.lstrip(b" \t\r")[:1] == b"[":
        _look_at_batch(outgoing, body)
    else:
        try:
            _look_at(outgoing, body)
        except UNREADABLE:
            pass
    return outgoing


def _look_at(outgoing: Outgoing, body: bytes) -> None:
    message = raw_message(body)
    if message.method is ABSENT:
        outgoing.is_answer = message.id is not ABSENT
        return
    if message.id is not ABSENT:
        raw = bytes(message.id)
        outgoing.ids[id_key(raw)] = raw
    outgoing.method = string(bytes(message.method))
    if message.params is ABSENT:
        return
    params = _params(bytes(message.params))
    if params.meta is not ABSENT:
        outgoing.version = _meta(bytes(params.meta)).version
    if outgoing.method in NAMED_BY:
        named = params.name if NAMED_BY[outgoing.method] == "name" else params.uri
        outgoing.name = None if named is ABSENT else string(bytes(named))
    outgoing.arguments = bytes(params.arguments)
    if outgoing.method == CANCELLED and params.request_id is not ABSENT:
        outgoing.cancels = id_key(bytes(params.request_id))


def _look_at_batch(outgoing: Outgoing, body: bytes) -> None:
    try:
        for element in raw_elements(body):
            message = raw_message(bytes(element))
            if message.method is not ABSENT and message.id is not ABSENT:
                raw = bytes(message.id)
                outgoing.ids[id_key(raw)] = raw
    except UNREADABLE:
        pass


def _look_at_scan(outgoing: Outgoing, body: Held) -> None:
    """A large message: its small members are known. Its `_meta` is not, so that it is of the client's era."""
    scan = body.scan
    if scan.is_array:
        messages = scan.found.messages
    else:
        messages = [{name: value for name, value in scan.values.items() if name not in scan.nested}]
        outgoing.is_answer = "method" not in scan.values
        try:
            outgoing.method = string(messages[0].get("method", b""))
            outgoing.name = string(messages[0].get(f"params.{NAMED_BY.get(outgoing.method, '')}", b""))
        except UNREADABLE:
            pass
    for message in messages:
        if "method" in message and "id" in message:
            outgoing.ids[id_key(message["id"])] = message["id"]


class Incoming:
    """A message of the server. `replies` are keys of ids with the raw result, None for an error."""

    __slots__ = ("error", "has_more", "readable", "replies")

    def __init__(self) -> None:
        self.replies: dict[bytes, bytes | None] = {}
        self.has_more = False  # requests and notifications
        self.readable = True
        self.error: bytes | None = None  # of a single reply


def read_incoming(message: Message) -> Incoming:
    if isinstance(message, Held):
        return _from_scan(message.scan)
    if not is_json(message):
        incoming = Incoming()
        incoming.readable = False
        return incoming
    incoming = Incoming()
    try:
        elements = raw_elements(message) if message.lstrip()[:1] == b"[" else [Raw(message)]
        for element in elements:
            _read_element(incoming, bytes(element))
    except UNREADABLE:  # for us, but not for everybody
        scan = MessageScan(strict=False)
        scan.feed(message)
        scan.finish()
        return _from_scan(scan)
    return incoming


def _from_scan(scan: MessageScan) -> Incoming:
    incoming = Incoming()
    incoming.readable = scan.is_whole
    for values in scan.found.messages or [scan.values]:
        if "method" in values or "id" not in values:
            incoming.has_more = True
        else:
            incoming.replies[id_key(values["id"])] = None
    return incoming


def in_utf_8(message: bytes) -> bytes:
    """Over HTTP, clients read bytes that are no UTF-8 as U+FFFD; on a pipe, some of them end."""
    if message.isascii():
        return message
    try:
        message.decode()
    except UnicodeDecodeError:
        return message.decode("utf-8", "replace").encode()
    return message


def is_json(message: bytes) -> bool:
    """Whether clients can read it: who waits for a line that nobody can read waits for ever. What is large is not
    looked at, for it would take too long."""
    if len(message) > MAX_CHECKED_BYTES or read_value(message) is not None:
        return True
    import json  # takes what some clients take, lone surrogates for one; hardly ever needed

    try:
        json.loads(message)
    except RecursionError:
        return True
    except ValueError:
        return False
    return True


def _read_element(incoming: Incoming, raw: bytes) -> None:
    element = _incoming(raw)
    if element.method is not ABSENT:
        incoming.has_more = True
        return
    incoming.error = None if element.error is ABSENT else bytes(element.error)
    if element.id is not ABSENT or incoming.error is not None:
        key = b"null" if element.id is ABSENT else id_key(bytes(element.id))
        incoming.replies[key] = None if element.result is ABSENT else bytes(element.result)


def error_in(body: bytes) -> bytes | None:
    """The error of a body that is one JSON-RPC error."""
    try:
        element = _incoming(body)
    except UNREADABLE:
        return None
    error = bytes(element.error)
    return error if element.method is ABSENT and error[:1] == b"{" else None
