"""One event of a streamed answer.

    text_events(data)       matches events of text at the beginning of `data`: nobody needs to look at them
    read_event(event)       what it says; None: it passes, for no client does anything by it
    rendered(kind, data)    an event of our own

Most events are a few characters of text. That such an event is nothing else is proven by one match of all of it, at a
tenth of the cost of looking at its members.
"""

from __future__ import annotations

import re

import msgspec
from msgspec import Raw, Struct

from subluminal.contracts.event_stream import Event
from subluminal.contracts.members import Span, members, text_of
from subluminal.model.words import ModelFault

ADDED = "response.output_item.added"
DONE = "response.output_item.done"
ARGUMENTS_DELTA = "response.function_call_arguments.delta"
ARGUMENTS_DONE = "response.function_call_arguments.done"
# The answer as a whole, with all that was in it.
FINAL = frozenset(
    ("response.completed", "response.incomplete", "response.failed", "response.cancelled", "response.done")
)
_OF_CALLS = ("response.function_call_arguments.", "response.custom_tool_call_input.")
_READ = frozenset(
    ("type", "item", "response", "output_index", "item_id", "call_id", "sequence_number", "delta", "arguments", "input")
)
_PIECES = (b"response.function_call_arguments.delta", b"response.custom_tool_call_input.delta")
_UNNAMED = b"message"
_END = b"[DONE]"  # how some servers end a stream

_STRING = rb'"[^"\\\x00-\x1f]*+(?:\\[^\x00-\x1f][^"\\\x00-\x1f]*+)*+"'
_NUMBER = rb"[0-9]++"
_KINDS = rb"response\.(?:output_text|refusal|reasoning_text|reasoning_summary_text)\.delta"
_MEMBERS = (
    rb'(?:, ?"(?:item_id|delta|obfuscation)": ?%b|, ?"logprobs": ?\[\]|'
    rb', ?"(?:sequence_number|output_index|content_index|summary_index)": ?%b)*+' % (_STRING, _NUMBER)
)
_is_text = re.compile(rb'\{"type": ?"(%b)"%b\}' % (_KINDS, _MEMBERS)).fullmatch
text_events = re.compile(rb'(?:event: (%b)\ndata: \{"type": ?"(?:\1)"%b\}\n\n)++' % (_KINDS, _MEMBERS)).match


class _Piece(Struct, gc=False):
    """Of a call's arguments. Members as they stand in the text."""

    type: Raw = Raw()
    sequence_number: Raw = Raw()
    item_id: Raw = Raw()
    output_index: Raw = Raw()
    delta: Raw = Raw()
    obfuscation: Raw = Raw()


_piece = msgspec.json.Decoder(_Piece).decode
_PIECE_KEYS = tuple((name, len(name) + 4) for name in _Piece.__struct_fields__)


class Told(Struct, eq=False):
    """What an event says: its members by their text."""

    data: bytes
    type: str
    values: dict[str, bytes]
    at: dict[str, Span] = {}

    def raw(self, key: str) -> bytes:
        raw = self.values.get(key, b"")
        return b"" if raw == b"null" else raw

    def said(self, key: str) -> str | None:
        return text_of(self.raw(key))

    @property
    def of_a_call(self) -> bool:
        """It tells arguments, whatever item they are of."""
        return self.type.startswith(_OF_CALLS)


def read_event(event: Event) -> Told | None:
    data = event.data
    if data is None or data == _END:
        return None
    text = _is_text(data)
    if text is not None:
        _check_name(event.name, text[1])
        return None
    told = (_read_piece(data) if event.name in _PIECES else None) or _read(data)
    _check_name(event.name, told.type.encode())
    return told


def _check_name(name: bytes, kind: bytes) -> None:
    if name not in (kind, _UNNAMED):
        raise ModelFault("an event has one type in its name and another in its data")


def _read_piece(data: bytes) -> Told | None:
    """None: it is to be read with all its members in view.

    If the values and the fixed text around them add up to the whole, there is nothing else in it: no key twice, no
    other key, no white space.
    """
    try:
        piece = _piece(data)
    except (ValueError, RecursionError):
        return None
    values = {}
    length = 1
    for name, framing in _PIECE_KEYS:
        value = bytes(getattr(piece, name))
        if value:
            values[name] = value
            length += framing + len(value)
    kind = text_of(values.get("type", b""))
    if length != len(data) or kind is None or not data.isascii():
        return None
    return Told(data, kind, values)


def _read(data: bytes) -> Told:
    at = members(data, _READ)
    kind = text_of(at["type"].of(data)) if "type" in at else None
    if kind is None:
        raise ModelFault("an event has no type")
    return Told(data, kind, {key: at[key].of(data) for key in _READ if key in at}, at)


def rendered(kind: str, data: bytes) -> bytes:
    line = data.replace(b"\r", b" ").replace(b"\n", b" ")  # white space of JSON: in strings they are escaped
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), line)
