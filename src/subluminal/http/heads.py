"""Heads of requests and responses: read strictly, written plainly.

`httptools` checks the grammar (bare LF, folded lines, white space before a colon, two lengths, a length beside chunks
are faults). What it leaves open is closed here: the exact form of the first line, whether the connection is kept, one
Host. How a body is framed is read in `bodies`, from the headers, by rules that leave one reading.
"""

from __future__ import annotations

import re
from typing import Any

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser, HttpResponseParser
from msgspec import Struct

from subluminal.http.limits import MAX_HEADERS

Headers = list[tuple[bytes, bytes]]

HEAD_END = b"\r\n\r\n"
REASONS = {
    100: b"Continue",
    200: b"OK",
    202: b"Accepted",
    204: b"No Content",
    400: b"Bad Request",
    401: b"Unauthorized",
    403: b"Forbidden",
    404: b"Not Found",
    405: b"Method Not Allowed",
    406: b"Not Acceptable",
    408: b"Request Timeout",
    413: b"Content Too Large",
    415: b"Unsupported Media Type",
    421: b"Misdirected Request",
    426: b"Upgrade Required",
    429: b"Too Many Requests",
    431: b"Request Header Fields Too Large",
    500: b"Internal Server Error",
    501: b"Not Implemented",
    502: b"Bad Gateway",
    503: b"Service Unavailable",
    504: b"Gateway Timeout",
}
# Of one connection, never passed on (RFC 9110, 7.6.1).
HOP_BY_HOP = frozenset(
    (
        b"connection",
        b"keep-alive",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
        b"proxy-authenticate",
        b"proxy-authorization",
    )
)
# httptools takes more for a first line: empty lines before it, several spaces, the protocols RTSP and ICE.
_REQUEST_LINE = re.compile(rb"([A-Z-]{1,32}) ([!-~]+) HTTP/1\.([01])\r\n")
_STATUS_LINE = re.compile(rb"HTTP/1\.([01]) ([1-9][0-9][0-9])(?: ([\t -~\x80-\xff]*))?\r\n")


class HttpFault(Exception):
    """What came is not HTTP as we take it. `status` is what a server answers; `why` has nothing of what was sent."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status
        self.why = why


class Kept:
    """`notes`: whatever its owner has found out about a head that may come again."""

    __slots__ = ("notes",)

    def __init__(self) -> None:
        self.notes: Any = None


class _Head(Struct, eq=False, gc=False):
    """`said` is asked several times for one head: its headers are looked through once."""

    headers: Headers
    keep_alive: bool
    index: dict[bytes, bytes] | None = None
    repeated: frozenset[bytes] = frozenset()
    kept: Kept | None = None  # of a head that may come again on its connection: see `recurring`

    def said(self, name: bytes) -> bytes | None:
        """The value of a header that may stand once; `name` in lower case. A second one is a fault (`single`)."""
        if self.index is None:
            self._look()
        if name in self.repeated:
            raise HttpFault(400, f"the header {name.decode('ascii', 'replace')} stands twice")
        return self.index.get(name)  # type: ignore[union-attr]  # it is made above

    def _look(self) -> None:
        index: dict[bytes, bytes] = {}
        for name, value in self.headers:
            key = name.lower()
            if key in index:
                self.repeated |= {key}
            index[key] = value
        self.index = index


class RequestHead(_Head, eq=False, gc=False, kw_only=True):
    method: bytes
    target: bytes  # exactly as it was sent
    http_1_0: bool = False
    expects_continue: bool = False


class ResponseHead(_Head, eq=False, gc=False, kw_only=True):
    status: int
    reason: bytes = b""
    http_1_0: bool = False


class _Parts:
    """What httptools calls back with."""

    __slots__ = ("complete", "headers")

    def __init__(self) -> None:
        self.headers: Headers = []
        self.complete = False

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name, value.rstrip(b" \t")))

    def on_headers_complete(self) -> None:
        self.complete = True


def read_request(head: bytes) -> RequestHead:
    """`head` ends with the empty line. Names stay as they were written; compare them in lower case."""
    line = _REQUEST_LINE.match(head)
    if line is None:
        raise HttpFault(400, "malformed HTTP")
    method, target, minor = line.groups()
    headers = _headers(HttpRequestParser, head)
    http_1_0 = minor == b"0"
    hosts = 0
    close = expects_continue = False
    for name, value in headers:  # the lengths are compared first: lower-casing every name costs more than the parser
        size = len(name)
        if size == 4:
            hosts += name.lower() == b"host"
        elif size == 6:
            expects_continue |= name.lower() == b"expect" and value.lower() == b"100-continue"
        elif size == 10 and name.lower() == b"connection":
            close |= b"close" in _words(value)
    if hosts > 1 or not (hosts or http_1_0):
        raise HttpFault(400, "not exactly one Host")
    # A client of HTTP/1.0 is told nothing that it may not know: its connection ends with the answer.
    keep_alive = not (close or http_1_0)
    return RequestHead(
        headers,
        keep_alive,
        method=method,
        target=target,
        http_1_0=http_1_0,
        expects_continue=expects_continue and not http_1_0,
    )


def read_response(head: bytes) -> ResponseHead:
    line = _STATUS_LINE.match(head)
    if line is None:
        raise HttpFault(502, "malformed HTTP")
    minor, status, reason = line.groups()
    headers = _headers(HttpResponseParser, head)
    http_1_0 = minor == b"0"
    said = values(headers, b"connection")
    words = _words(b",".join(said)) if said else ()
    keep_alive = b"close" not in words and (not http_1_0 or b"keep-alive" in words)
    return ResponseHead(headers, keep_alive, status=int(status), reason=reason or b"", http_1_0=http_1_0)


def _headers(parser_class: Any, head: bytes) -> Headers:
    parts = _Parts()
    try:
        parser_class(parts).feed_data(head)
    except HttpParserUpgrade:
        pass  # nobody is upgraded here: it is a request like any other
    except HttpParserError:
        raise HttpFault(400, "malformed HTTP") from None
    if not parts.complete:
        raise HttpFault(400, "malformed HTTP")
    if len(parts.headers) > MAX_HEADERS:
        raise HttpFault(431, f"more than {MAX_HEADERS} headers")
    return parts.headers


def _words(value: bytes) -> set[bytes]:
    return {word.strip(b" \t") for word in value.lower().split(b",")}


def has_bare_newline(head: bytes, looked_at: int) -> bool:
    """Whether a line of an unfinished head ends otherwise than with CRLF: such a head never ends as we read it."""
    start = max(0, looked_at - 1)
    return head.count(b"\n", looked_at) != head.count(b"\r\n", start)


def values(headers: Headers, name: bytes) -> list[bytes]:
    """All values of a header; `name` in lower case."""
    size = len(name)
    return [value for key, value in headers if len(key) == size and key.lower() == name]


def single(headers: Headers, name: bytes) -> bytes | None:
    """The value of a header that stands at most once. A second one is a fault: readers differ in which they take."""
    found = values(headers, name)
    if len(found) > 1:
        raise HttpFault(400, f"the header {name.decode('ascii', 'replace')} stands twice")
    return found[0] if found else None


def without(headers: Headers, names: frozenset[bytes]) -> Headers:
    """Headers that go on: none of `names`, none of one connection, none that `Connection` names."""
    dropped = names | HOP_BY_HOP
    for value in values(headers, b"connection"):
        dropped |= _words(value)
    return [(key, value) for key, value in headers if key.lower() not in dropped]


_UTF8 = (b"charset=utf-8", b"charset=utf8")


def media_type(value: bytes | None) -> bytes:
    """The type itself in lower case, without parameters."""
    return (value or b"").partition(b";")[0].strip(b" \t").lower()


def is_utf8(kind: bytes | None) -> bool:
    """Some clients decode by what is stated, and in UTF-7 or a charset of two bytes the same bytes are another text."""
    stated = (kind or b"").lower().replace(b" ", b"").replace(b"\t", b"").split(b";")[1:]
    return all(part.replace(b'"', b"") in _UTF8 for part in stated if b"charset" in part)


def request_lines(method: bytes, target: bytes, headers: Headers) -> bytes:
    """The first lines of a head; further headers and an empty line follow."""
    return _lines(method + b" " + target + b" HTTP/1.1\r\n", headers)


def response_lines(status: int, headers: Headers, reason: bytes = b"") -> bytes:
    return _lines(b"HTTP/1.1 %d " % status + (reason or REASONS.get(status, b"")) + b"\r\n", headers)


def _lines(first: bytes, headers: Headers) -> bytes:
    return first + b"".join([name + b": " + value + b"\r\n" for name, value in headers])


def request_bytes(method: bytes, target: bytes, headers: Headers) -> bytes:
    return request_lines(method, target, headers) + b"\r\n"


def response_bytes(status: int, headers: Headers, reason: bytes = b"") -> bytes:
    return response_lines(status, headers, reason) + b"\r\n"


def is_token(name: bytes) -> bool:
    """What may be the name of a header."""
    return bool(name) and not name.translate(None, _TOKEN)


def is_value(value: bytes) -> bool:
    """What may be the value of a header that we write: visible characters, spaces, tabs; no CR, LF or NUL."""
    return not value.translate(None, _VALUE)


_TOKEN = b"!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
_VALUE = bytes((9, *range(32, 127), *range(128, 256)))
