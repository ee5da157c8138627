"""JSON text byte for byte: where the members of an object and the elements of an array stand, and how text is spliced.

    members(text)                       {"type": Span, ...} in order; Misread: no object, or a key stands twice
    members(text, READ)                 the same, and no key that a sloppy parser takes for one of READ
    elements(text, most)                [Span, ...]; Misread: no array, or more than `most` elements
    members_at(text, span, READ)        of a value inside `text`, with spans of the whole `text`; so `elements_at`
    span.of(text)                       the value, as it was written
    text_of(raw)                        a JSON string as str; None: it is none
    splice(text, edits)                 `text` with spans replaced; the same object without edits
    taken_out(spans, taken)             edits that take elements of an array out, with a comma each

Nothing here recurses on the depth of what it reads but msgspec, which gives up in order; all work is linear. A key that
stands twice in one object is read as the first by some and as the last by others: nobody can say what it means.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import NamedTuple

import msgspec
from msgspec import Raw

# Agents have some dozen tools, and histories some thousand parts.
MAX_TOOLS = 4_096
MAX_PARTS = 100_000

_object = msgspec.json.Decoder(dict[str, Raw]).decode
_array = msgspec.json.Decoder(list[Raw]).decode
_string = msgspec.json.Decoder(str).decode
# Bad JSON, bytes that are no UTF-8, lone surrogates; and a depth that nobody needs.
UNREADABLE = (ValueError, RecursionError)

_KEY = re.compile(rb'[ \t\r\n]*("[^"\\]*(?:\\.[^"\\]*)*")[ \t\r\n]*:[ \t\r\n]*')
_BLANK = re.compile(rb"[ \t\r\n]*")
_TWICE = "a key stands twice in one object"


class Misread(Exception):
    """Two readers could take it differently, or it is more than is held. `why` is a clause, without what was sent."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


class Span(NamedTuple):
    """A value stands at text[start:end]; of a member, its key begins at `key`, else that is `start`."""

    start: int
    end: int
    key: int

    def of(self, text: bytes) -> bytes:
        return text[self.start : self.end]


class Edit(NamedTuple):
    """Replace text[start:end] by `text`."""

    start: int
    end: int
    text: bytes


def members(text: bytes, read: Collection[str] = ()) -> dict[str, Span]:
    """Of an object that is all of `text`. `read`: keys of which no other spelling may be there."""
    try:
        values = _object(text)
        _check_utf8(text)
    except UNREADABLE:
        raise Misread("it is not one JSON object") from None
    at = text.index(b"{") + 1
    found: dict[str, Span] = {}
    for key, raw in values.items():
        value = bytes(raw)
        place = _KEY.match(text, at)
        # Of two values under one key the last was read. Where the first stands, it either is not to be found, or it is
        # the same, and then there are more members in the text than were read.
        if place is None or _spelled(place[1]) != key or not text.startswith(value, place.end()):
            raise Misread(_TWICE)
        end = place.end() + len(value)
        found[key] = Span(place.end(), end, place.start(1))
        at = _end_of_blank(text, end) + 1
        if text[at - 1 : at] != (b"," if len(found) < len(values) else b"}"):
            raise Misread(_TWICE)
    if read:
        _check_variants(found, read)
    return found


def elements(text: bytes, most: int | None = None) -> list[Span]:
    """Of an array that is all of `text`. `most`: each is looked at while others wait, so that more are not read."""
    try:
        values = _array(text)
        _check_utf8(text)
    except UNREADABLE:
        raise Misread("it is not one JSON array") from None
    if most is not None and len(values) > most:
        raise Misread(f"an array has more than {most:,} elements")
    at = text.index(b"[") + 1
    found: list[Span] = []
    for raw in values:
        start = _end_of_blank(text, at)
        end = start + len(bytes(raw))
        found.append(Span(start, end, start))
        at = _end_of_blank(text, end) + 1
    return found


def members_at(text: bytes, span: Span, read: Collection[str] = ()) -> dict[str, Span]:
    inner = members(span.of(text), read)
    return {key: _shifted(found, span.start) for key, found in inner.items()}


def elements_at(text: bytes, span: Span, most: int | None = None) -> list[Span]:
    return [_shifted(found, span.start) for found in elements(span.of(text), most)]


def text_of(raw: bytes) -> str | None:
    try:
        return _string(raw)
    except UNREADABLE:
        return None


def splice(text: bytes, edits: Iterable[Edit]) -> bytes:
    """Edits do not overlap; several at one place are made in the order given."""
    parts: list[bytes] = []
    at = 0
    for edit in sorted(edits, key=lambda edit: edit.start):
        parts += (text[at : edit.start], edit.text)
        at = edit.end
    if not parts:
        return text
    parts.append(text[at:])
    return b"".join(parts)


def taken_out(spans: list[Span], taken: Collection[int]) -> list[Edit]:
    """Edits that take these of all `spans` of an array out. The elements that stay keep the text around them."""
    edits: list[Edit] = []
    kept = -1  # the last element before this one that stays
    for i, span in enumerate(spans):
        if i not in taken:
            kept = i
        elif kept >= 0:  # with what stands before it
            edits.append(Edit(spans[i - 1].end, span.end, b""))
        else:  # with what stands behind it
            edits.append(Edit(span.start, spans[i + 1].start if i + 1 < len(spans) else span.end, b""))
    return edits


def _check_utf8(text: bytes) -> None:
    """Values are skipped, and there any bytes pass for a string."""
    if not text.isascii():
        text.decode()


def _check_variants(found: Collection[str], read: Collection[str]) -> None:
    for key in found:
        if key in read or (key.isascii() and key.islower() and key.isidentifier()):
            continue  # what has nothing to fold is itself
        if folded(key) in read:
            raise Misread("a key is spelled in a way that only some parsers take for the key that it resembles")


def folded(key: str) -> str:
    """What a sloppy parser may take a key for: C strings end at NUL, Go compares without case."""
    return key.partition("\0")[0].strip().casefold()


def _spelled(raw: bytes) -> str | None:
    return text_of(raw) if b"\\" in raw else raw[1:-1].decode()


def _end_of_blank(text: bytes, at: int) -> int:
    blank = _BLANK.match(text, at)
    return blank.end() if blank else at


def _shifted(span: Span, by: int) -> Span:
    return Span(span.start + by, span.end + by, span.key + by)
