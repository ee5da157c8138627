"""Event streams (`text/event-stream`) as they pass: raw bytes to pass on, and what each event says.

    for event in stream.feed(data): ...

An event that is larger than `limit` is not kept: it comes in parts, each with the bytes to pass on and the piece of its
data that they hold.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec import Struct

_LINE_END = re.compile(rb"\r\n|\n|\r")
_NO_LINE, _DATA_LINE, _OTHER_LINE = range(3)
_BOM = b"\xef\xbb\xbf"
_CR = 13
# Where only some readers see a line begin: those that split text and not bytes end lines at more characters, and those
# that decode each line by itself drop a byte order mark before it.
_SEEN_BY_SOME = re.compile(
    rb"[\r\n]\xef\xbb\xbf|(?:[\v\f\x1c-\x1e]|\xc2\x85|\xe2\x80[\xa8\xa9])(?:\xef\xbb\xbf)*(?:data|event) *:"
)


class Event(Struct, eq=False, gc=False):
    """One event: `raw` is all of it, with its empty line. `data` is None if it has none, so that nobody is told."""

    raw: bytes
    name: bytes = b"message"
    data: bytes | None = None
    id: bytes | None = None
    retry: bytes | None = None
    is_first: bool = False  # of its stream: a byte order mark may stand before it

    @property
    def is_read_by_some(self) -> bool:
        """Some readers would see a line in it that others do not, and with that other data or another name."""
        if not self.is_first and self.raw.startswith(_BOM):
            return True
        return _SEEN_BY_SOME.search(self.raw) is not None


class Part(Struct, eq=False, gc=False):
    """A piece of an event too large to keep. `last`: its end has come."""

    raw: bytes
    data: bytes
    last: bool = False


class EventStream:
    """Sans-IO reader of one stream. Every byte is looked at once, however it comes in pieces."""

    __slots__ = ("_after_cr", "_data_lines", "_first", "_large", "_limit", "_line", "_line_kind", "_part", "_scanned")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._part = bytearray()  # of the event under way
        self._line = 0  # where in it the line under way begins
        self._scanned = 0  # and up to where no line ends
        self._first = True  # nothing of the stream was given on yet: a byte order mark may stand here
        self._after_cr = False  # an event ended with CR: an LF that follows belongs to it
        self._large = False
        self._line_kind = _NO_LINE  # within a large event: of the line under way
        self._data_lines = 0

    def feed(self, data: bytes) -> list[Event | Part]:
        found: list[Event | Part] = []
        if self._after_cr and data:
            self._after_cr = False
            if data[:1] == b"\n":
                found.append(Event(b"\n"))
                data = data[1:]
        buffer: bytes | bytearray = data
        if self._part:
            buffer = self._part
            buffer += data
        at = 0
        go_on = True
        while go_on and at < len(buffer):
            at, go_on = (self._parts if self._large else self._events)(buffer, at, found)
        if buffer is not self._part:
            self._part += buffer[at:]
        else:
            del self._part[:at]
        self._line -= at
        self._scanned -= at
        return found

    @property
    def between_events(self) -> bool:
        """Nothing of an event has passed without its end."""
        return not self._part and not self._large

    @property
    def kept(self) -> int:
        """How many bytes wait for the end of their event."""
        return len(self._part)

    def rest(self) -> bytes:
        """What is left of an event that has no end yet."""
        part = bytes(self._part)
        self._part.clear()
        self._line = self._scanned = 0
        return part

    def _ended(self, buffer: bytes | bytearray, end: int) -> None:
        """An event ends here. It is not kept waiting for the LF that may belong to its CR."""
        self._first = False
        self._line = self._scanned = end
        self._after_cr = end == len(buffer) and buffer[-1] == _CR

    # -- events that are kept until they are whole ----------------------------------------------------------------

    def _events(self, buffer: bytes | bytearray, at: int, found: list[Event | Part]) -> tuple[int, bool]:
        """Up to where the buffer is used, and whether there is more to find."""
        for start, end in _line_ends(buffer, self._scanned):
            if start == self._line:
                found.append(_read(bytes(buffer[at:end]), self._first))
                self._ended(buffer, end)
                at = end
            elif end == len(buffer) and buffer[end - 1] == _CR:  # it may be half of a CRLF
                self._scanned = start
                break
            else:
                self._line = self._scanned = end
        else:
            self._scanned = len(buffer)
        if len(buffer) - at <= self._limit:
            return at, False
        self._large = True
        self._line_kind = _NO_LINE
        self._data_lines = 0
        return at, True

    # -- large events ---------------------------------------------------------------------------------------------

    def _parts(self, buffer: bytes | bytearray, at: int, found: list[Event | Part]) -> tuple[int, bool]:
        """Line by line, and a data line in pieces: its content is given on, its framing only passes."""
        content: list[bytes] = []
        line = at
        if self._first and buffer.startswith(_BOM):
            line += len(_BOM)
        for start, end in _line_ends(buffer, line):
            if start == line and self._line_kind == _NO_LINE:
                found.append(Part(bytes(buffer[at:end]), b"".join(content), True))
                self._large = False
                self._ended(buffer, end)
                return end, True
            if end == len(buffer) and buffer[end - 1] == _CR:
                break
            self._line_piece(bytes(buffer[line:start]), content)
            self._line_kind = _NO_LINE
            line = end
        used = self._unfinished(buffer, line, content)
        if used > at:
            found.append(Part(bytes(buffer[at:used]), b"".join(content)))
            self._first = False
        self._line = self._scanned = used
        return used, False

    def _unfinished(self, buffer: bytes | bytearray, at: int, content: list[bytes]) -> int:
        """A line whose end has not come. Up to where it was used."""
        piece = bytes(buffer[at:]).removesuffix(b"\r")
        if self._line_kind == _NO_LINE and len(piece) <= len(b"data: "):
            return at
        self._line_piece(piece, content)
        return at + len(piece)

    def _line_piece(self, piece: bytes, content: list[bytes]) -> None:
        if self._line_kind == _NO_LINE:
            name, _, value = piece.partition(b":")
            if name != b"data":
                self._line_kind = _OTHER_LINE
                return
            self._line_kind = _DATA_LINE
            piece = (b"\n" if self._data_lines else b"") + value.removeprefix(b" ")
            self._data_lines += 1
        if self._line_kind == _DATA_LINE:
            content.append(piece)


def _line_ends(data: bytes | bytearray, at: int) -> Iterator[tuple[int, int]]:
    """Where lines end, and where the next ones begin. Each kind of end is looked for once: the work is linear."""
    lf = data.find(b"\n", at)
    cr = data.find(b"\r", at)
    while lf >= 0 or cr >= 0:
        if cr < 0 or 0 <= lf < cr:
            yield lf, lf + 1
            lf = data.find(b"\n", lf + 1)
        elif lf == cr + 1:
            yield cr, cr + 2
            cr = data.find(b"\r", lf + 1)
            lf = data.find(b"\n", lf + 1)
        else:
            yield cr, cr + 1
            cr = data.find(b"\r", cr + 1)


def _read(raw: bytes, first: bool) -> Event:
    event = Event(raw, is_first=first)
    text = raw.removeprefix(_BOM) if first else raw
    data: list[bytes] = []
    for line in text.split(b"\n") if b"\r" not in text else _LINE_END.split(text):
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            data.append(value)
        elif name == b"event":
            event.name = value or b"message"
        elif name == b"id":
            if b"\0" not in value:
                event.id = value
        elif name == b"retry" and value.isdigit():
            event.retry = value
    if data:
        event.data = data[0] if len(data) == 1 else b"\n".join(data)
    return event


def event_bytes(message: bytes) -> bytes:
    """A message of our own as an event."""
    return b"event: message\ndata: " + message.replace(b"\r", b" ").replace(b"\n", b" ") + b"\n\n"
