"""JSON-RPC messages, read: what a message is, and whether every sane parser would read it the same way.

A tool server may parse differently from us, so a message is *ambiguous* when two parsers could disagree about the tool
call in it: duplicate or case-variant protocol keys, trailing bytes, invalid UTF-8, JSON that only a lenient parser
takes. Who decides what happens to an ambiguous message is the gate, not this.

Speed: msgspec finds the members as raw spans. The lengths of the spans then prove that nothing else is in the message:
no further key, no duplicate, no white space, no needless escape, whatever the order (each of these only ever makes a
message longer than the sum of its parts). Anything that does not add up is read again, exactly. Where the C part is
built, it reads what is written as most clients and servers write it; what it leaves is read here.
"""

from __future__ import annotations

import msgspec
from msgspec import Raw, Struct

from subluminal.mcp.message.exact import read_object
from subluminal.mcp.message.reading import ABSENT, CALL, TOOLS_CALL, UNREADABLE, Reading, Reply, ambiguous, raw_elements
from subluminal.native.chosen import core

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


class _PlainParams(Struct, gc=False):
    name: str
    arguments: Raw = ABSENT
    meta: Raw = msgspec.field(default=ABSENT, name="_meta")


class _PlainCall(Struct, gc=False):
    """A tool call as clients write it, read in one pass."""

    id: Raw
    method: str
    params: _PlainParams
    jsonrpc: str = ""


class _Reply(Struct, gc=False):
    id: Raw = ABSENT
    method: Raw = ABSENT
    result: Raw = ABSENT
    error: Raw = ABSENT


class _Result(Struct, gc=False):
    """The members that change how a call ended."""

    is_error: Raw = msgspec.field(default=ABSENT, name="isError")
    result_type: Raw = msgspec.field(default=ABSENT, name="resultType")
    task: Raw = ABSENT


_plain_call = msgspec.json.Decoder(_PlainCall).decode
_reply = msgspec.json.Decoder(_Reply).decode
_result = msgspec.json.Decoder(_Result).decode


def _read_message(text: bytes) -> Reading:
    if not text.isascii():
        try:
            text.decode()
        except UnicodeDecodeError:
            return ambiguous(text, "invalid UTF-8")
    try:
        call = _plain_call(text)
    except UNREADABLE:
        return read_object(text)
    params = call.params
    name = params.name
    if call.method != TOOLS_CALL or not name.isascii():
        return read_object(text)
    id_raw = bytes(call.id)
    # {"id":,"method":"tools/call","params":{"name":""}} is 50 bytes.
    length = 50 + len(id_raw) + len(name)
    arguments = b"{}"
    if params.arguments is not ABSENT:
        arguments = bytes(params.arguments)
        length += 13 + len(arguments)
        if arguments == b"null":
            arguments = b"{}"
    if call.jsonrpc:
        length += 13 + len(call.jsonrpc)
    meta = None
    if params.meta is not ABSENT:
        meta = bytes(params.meta)
        length += 9 + len(meta)
    if length != len(text):
        return read_object(text)
    return Reading(CALL, text, id_raw, name, arguments, meta, TOOLS_CALL)


def _read_reply(text: bytes) -> Reply | None:
    """A response, or None for anything else (a request, a notification, something unreadable)."""
    try:
        message = _reply(text)
    except UNREADABLE:
        return None
    if message.id is ABSENT or message.method is not ABSENT:
        return None
    result, error = message.result, message.error
    return Reply(
        bytes(message.id),
        None if result is ABSENT else bytes(result),
        None if error is ABSENT else bytes(error),
    )


read_message: Callable[[bytes], Reading] = _read_message
read_reply: Callable[[bytes], Reply | None] = _read_reply
if core is not None:
    read_message = core.bound("read_call", _read_message, Reading, CALL, TOOLS_CALL)
    read_reply = core.bound("read_reply", _read_reply, Reply)


def is_plain_result(raw: bytes) -> bool:
    """Whether a result ends its call, and ends it well: no error, no request for input, no task."""
    try:
        result = _result(raw)
    except UNREADABLE:
        return True
    return result.is_error is ABSENT and result.result_type is ABSENT and result.task is ABSENT


def read_reply_batch(text: bytes) -> list[Reply | None]:
    """The elements of a batch of responses; an empty list when the message is no array."""
    try:
        return [read_reply(bytes(raw)) for raw in raw_elements(text)]
    except UNREADABLE:
        return []
