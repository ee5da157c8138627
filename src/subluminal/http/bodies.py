"""Bodies: how they are framed, and their content as it comes.

    content, rest = body.feed(data)      `rest` is None while more belongs to the body, then what follows it

Chunk extensions and trailers are read and dropped: what goes on is framed anew.
"""

from __future__ import annotations

import re

from subluminal.http.heads import Headers, HttpFault, is_token, is_value
from subluminal.http.limits import MAX_CHUNK_LINE, MAX_TRAILER_BYTES

_HEX = frozenset(b"0123456789abcdefABCDEF")
NO_BODY_STATUS = (204, 304)
_FRAMING = (b"content-length", b"transfer-encoding")
MAX_LENGTH_DIGITS = 15


class Body:
    """`length` is known for some. `done` once its end was seen."""

    __slots__ = ("done", "length")

    def __init__(self, length: int | None) -> None:
        self.length = length
        self.done = length == 0

    def feed(self, data: bytes) -> tuple[bytes, bytes | None]:
        raise NotImplementedError

    def closed(self) -> bool:
        """The connection has ended. Whether this ends the body well."""
        return self.done


class Sized(Body):
    __slots__ = ("_left",)

    def __init__(self, length: int) -> None:
        self.length = self._left = length
        self.done = length == 0

    def feed(self, data: bytes) -> tuple[bytes, bytes | None]:
        left = self._left
        if len(data) < left:
            self._left = left - len(data)
            return data, None
        self._left = 0
        self.done = True
        return (data, b"") if len(data) == left else (data[:left], data[left:])


class UntilClose(Body):
    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(None)

    def feed(self, data: bytes) -> tuple[bytes, bytes | None]:
        return data, None

    def closed(self) -> bool:
        self.done = True
        return True


_SIZE, _DATA, _DATA_END, _TRAILER = range(4)
_plain_size = re.compile(rb"([0-9A-Fa-f]{1,8})\r\n").match


class Chunked(Body):
    __slots__ = ("_buffer", "_left", "_state", "_trailer_bytes")

    def __init__(self) -> None:
        super().__init__(None)
        self._buffer = b""
        self._left = 0
        self._state = _SIZE
        self._trailer_bytes = 0

    def feed(self, data: bytes) -> tuple[bytes, bytes | None]:
        if self._buffer:
            data, self._buffer = self._buffer + data, b""
        pieces: list[bytes] = []
        at = 0
        while True:
            if self._state == _DATA:
                piece = data[at : at + self._left]
                pieces.append(piece)
                at += len(piece)
                self._left -= len(piece)
                if self._left:
                    break
                self._state = _DATA_END
            elif self._state == _DATA_END:
                end = data[at : at + 2]
                if end != b"\r\n"[: len(end)]:
                    raise HttpFault(400, "malformed chunk")
                if len(end) < 2:
                    self._buffer = end
                    break
                at += 2
                self._state = _SIZE
            else:
                if self._state == _SIZE:
                    at = _whole_chunks(data, at, pieces)
                line_end = data.find(b"\r\n", at, at + MAX_CHUNK_LINE)
                if line_end < 0:
                    self._keep_line(data[at:])
                    break
                line = data[at:line_end]
                at = line_end + 2
                if self._state == _SIZE:
                    self._left = chunk_size(line)
                    self._state = _DATA if self._left else _TRAILER
                elif not line:
                    self.done = True
                    return b"".join(pieces), data[at:]
                else:
                    self._drop_trailer(line)
        return (pieces[0] if len(pieces) == 1 else b"".join(pieces)), None

    def _keep_line(self, part: bytes) -> None:
        if len(part) >= MAX_CHUNK_LINE or b"\n" in part:
            raise HttpFault(400, "malformed chunk")
        self._buffer = part

    def _drop_trailer(self, line: bytes) -> None:
        self._trailer_bytes += len(line)
        name, colon, value = line.partition(b":")
        good = colon and is_token(name) and is_value(value) and name.lower() not in _FRAMING
        if not good or self._trailer_bytes > MAX_TRAILER_BYTES:
            raise HttpFault(400, "malformed trailer")


def _whole_chunks(data: bytes, at: int, pieces: list[bytes]) -> int:
    """Those that are all there and plainly written, as most are. Up to where they reach."""
    while (size := _plain_size(data, at)) is not None:
        begin = size.end()
        end = begin + int(size[1], 16)
        if end == begin or data[end : end + 2] != b"\r\n":
            break
        pieces.append(data[begin:end])
        at = end + 2
    return at


def chunk_size(line: bytes) -> int:
    """Hexadecimal digits and nothing else but an extension: readers differ in what else they take for a number."""
    digits = line.partition(b";")[0]
    if not 0 < len(digits) <= 15 or not _HEX.issuperset(digits) or not is_value(line):
        raise HttpFault(400, "malformed chunk")
    return int(digits, 16)


def request_body(headers: Headers, http_1_0: bool = False) -> Body:
    return _framed(headers, http_1_0) or Sized(0)


def response_body(method: bytes, status: int, headers: Headers, http_1_0: bool = False) -> Body:
    if method == b"HEAD" or status in NO_BODY_STATUS or status < 200:
        return Sized(0)
    return _framed(headers, http_1_0) or UntilClose()


def _framed(headers: Headers, http_1_0: bool) -> Body | None:
    lengths: list[bytes] = []
    codings: list[bytes] = []
    for name, value in headers:
        if len(name) == 14 and name.lower() == b"content-length":
            lengths.append(value)
        elif len(name) == 17 and name.lower() == b"transfer-encoding":
            codings.append(value)
    if codings:
        if lengths:
            raise HttpFault(400, "both Content-Length and Transfer-Encoding")
        if http_1_0:  # it knows no codings: whoever passed this on may have taken the chunks for something else
            raise HttpFault(400, "Transfer-Encoding in HTTP/1.0")
        if len(codings) > 1 or codings[0].strip(b" \t").lower() != b"chunked":
            raise HttpFault(501, "a Transfer-Encoding other than chunked")
        return Chunked()
    if not lengths:
        return None
    if len(lengths) > 1 or not lengths[0].isdigit() or len(lengths[0]) > MAX_LENGTH_DIGITS:
        raise HttpFault(400, "malformed Content-Length")
    return Sized(int(lengths[0]))


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


LAST_CHUNK = b"0\r\n\r\n"
