"""Heads of requests and responses: one reading, or none. What we take, h11 takes as the same request."""

from __future__ import annotations

import h11
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from harness.framing import HOST, MALFORMED, request
from subluminal.http.bodies import request_body
from subluminal.http.heads import (
    HttpFault,
    RequestHead,
    has_bare_newline,
    is_token,
    is_value,
    media_type,
    read_request,
    read_response,
    request_bytes,
    single,
    values,
    without,
)


@pytest.mark.parametrize("head", MALFORMED.values(), ids=MALFORMED)
def test_a_request_with_two_readings_has_none(head: bytes) -> None:
    with pytest.raises(HttpFault) as caught:
        taken = read_request(head)
        request_body(taken.headers, taken.http_1_0)
    assert caught.value.status in (400, 431, 501)


GOOD = {
    "an absolute URI": request(b"GET http://there/x HTTP/1.1"),
    "an asterisk": request(b"OPTIONS * HTTP/1.1"),
    "white space around a value": request(headers=b"Content-Length: \t 5\t \r\n"),
    "zeros before a length": request(headers=b"Content-Length: 0005\r\n"),
    "chunks": request(headers=b"Transfer-Encoding: Chunked\r\n"),
    "an upgrade": request(headers=b"Connection: Upgrade\r\nUpgrade: websocket\r\n"),
    "bytes beyond ASCII in a value": request(headers=b"X: \xc3\xa9\r\n"),
    "HTTP/1.0 without Host": b"GET / HTTP/1.0\r\n\r\n",
    "128 headers": request(headers=b"".join(b"X%d: 1\r\n" % n for n in range(127))),
}


def compared(stream: bytes) -> tuple[RequestHead, bytes] | None:
    """What we read in a request with its content, after h11 was made to read the same; None: we do not take it."""
    end = stream.find(b"\r\n\r\n") + 4
    try:
        head = read_request(stream[:end])
        body = request_body(head.headers, head.http_1_0)
        content, rest = (b"", stream[end:]) if body.done else body.feed(stream[end:])
    except HttpFault:
        return None
    peer = h11.Connection(h11.SERVER, max_incomplete_event_size=2**20)
    peer.receive_data(stream)
    read = peer.next_event()
    assert isinstance(read, h11.Request)
    assert read.method == head.method and read.target == head.target
    expected = [(name.lower(), value) for name, value in head.headers]
    assert list(read.headers) == [
        (name, value.lower() if name == b"transfer-encoding" else value) for name, value in expected
    ]
    seen = b""
    while isinstance(event := peer.next_event(), h11.Data):
        seen += event.data
    assert seen == content, "the same content"
    assert isinstance(event, h11.EndOfMessage) == (rest is not None), "and the same end"
    if rest is not None:
        assert peer.trailing_data[0] == rest, "with the same bytes behind it"
    return head, content


@pytest.mark.parametrize("head", GOOD.values(), ids=GOOD)
def test_what_is_unusual_but_clear_is_taken(head: bytes) -> None:
    assert compared(head) is not None


line_parts = st.sampled_from(
    [b"GET", b"POST", b" ", b"  ", b"\t", b"/", b"/mcp?x=%6d", b"http://h/x", b"*", b"HTTP/1.1"]
)
names = st.sampled_from(
    [
        b"Host",
        b"Content-Length",
        b"content-length",
        b"Transfer-Encoding",
        b"Connection",
        b"Expect",
        b"X",
        b"X ",
        b"",
        b" X",
    ]
) | st.binary(max_size=4)
some_values = st.sampled_from(
    [
        b"h",
        b"5",
        b"0",
        b"+5",
        b"5 ",
        b"5,5",
        b"chunked",
        b"Chunked",
        b"chunked, identity",
        b"close",
        b"",
        b"\x0b",
        b"a\tb",
    ]
) | st.binary(max_size=6)
colons = st.sampled_from([b":", b": ", b":\t ", b" :", b" : ", b""])
ends = st.sampled_from([b"\r\n"] * 8 + [b"\n", b"\r", b"\r\r\n", b"\r\n ", b"\0\r\n"])
lines = st.sampled_from(
    [b"GET / HTTP/1.1", b"POST /mcp HTTP/1.1", b"POST /mcp HTTP/1.0", b"PUT * HTTP/1.1", b"DELETE /a?b HTTP/1.1"]
) | st.lists(line_parts, max_size=6).map(b"".join)
bodies = st.sampled_from(
    [
        b"",
        b"hello",
        b"5\r\nhello\r\n0\r\n\r\n",
        b"5;x=y\r\nhello\r\n0\r\nT: 1\r\n\r\nGET",
        b"05\r\nhello\r\n0;a\r\n\r\n",
    ]
) | st.binary(max_size=12)
fields = st.tuples(names, colons, some_values, ends).map(b"".join)
wild = st.tuples(
    st.sampled_from([b""] * 8 + [b"\r\n", b"\n", b" "]), lines, ends, st.lists(fields, max_size=5), bodies
).map(lambda parts: parts[0] + parts[1] + parts[2] + HOST + b"".join(parts[3]) + b"\r\n" + parts[4])

SOUND = [
    request(headers=b"Accept: */*\r\nConnection: close\r\n"),
    request(b"POST /mcp HTTP/1.1", b"Content-Length: 5\r\nX: 1\r\n") + b"hello",
    request(b"POST /mcp HTTP/1.1", b"Transfer-Encoding: chunked\r\n") + b"5\r\nhello\r\n0\r\n\r\n",
    request(b"POST /mcp HTTP/1.1", b"Transfer-Encoding: chunked\r\n") + b"5;a=b\r\nhello\r\n0\r\nT: 1\r\n\r\n",
]
snippets = st.sampled_from(
    [
        b"\r\n",
        b"\n",
        b"\r",
        b" ",
        b"\t",
        b"\0",
        b":",
        b",",
        b";",
        b"0",
        b"1",
        b"a",
        b"+",
        b"\x0b",
        b"\x85",
        b"\xff",
        b"X: 2\r\n",
    ]
)
edits = st.lists(st.tuples(st.integers(0), st.integers(0, 2), snippets | st.just(b"")), max_size=2)


def edited(stream: bytes, changes: list[tuple[int, int, bytes]]) -> bytes:
    for at, removed, added in changes:
        at %= len(stream)
        stream = stream[:at] + added + stream[at + removed :]
    return stream


streams = wild | st.builds(edited, st.sampled_from(SOUND), edits)


@given(streams)
@example(request(b"POST / HTTP/1.1", b"Content-Length: 5\r\n") + b"hello!")
@example(request(b"POST / HTTP/1.1", b"Transfer-Encoding: chunked\r\n") + b"5\r\nhello\r\n0\r\n\r\nrest")
@example(request(b"POST / HTTP/1.1", b"Transfer-Encoding: chunked\r\n") + b"5 \r\nhello\r\n0\r\n\r\n")
@example(request(b"POST / HTTP/1.1", b"Transfer-Encoding: chunked\r\n") + b"0\r\nContent-Length: x\r\n\r\n")
def test_what_we_take_h11_takes_as_the_same(stream: bytes) -> None:
    compared(stream)


token = st.text("abcXYZ-_0", min_size=1, max_size=12).map(str.encode)
value = st.lists(st.text("abc ;=é,", max_size=12).map(lambda text: text.strip().encode()), max_size=1).map(b"".join)


@given(st.sampled_from([b"GET", b"POST", b"DELETE"]), st.lists(st.tuples(token, value), max_size=12), st.booleans())
def test_what_we_write_we_read(method: bytes, headers: list[tuple[bytes, bytes]], close: bool) -> None:
    special = (b"host", b"connection", b"expect", b"content-length", b"transfer-encoding")
    headers = [(b"Host", b"h"), *(pair for pair in headers if pair[0].lower() not in special)]
    if close:
        headers.append((b"Connection", b"x, Close"))
    read = read_request(request_bytes(method, b"/a?b", headers))
    assert (read.method, read.target, read.headers, read.keep_alive) == (method, b"/a?b", headers, not close)


@pytest.mark.parametrize(
    ("headers", "kept"),
    [
        (b"", True),
        (b"Connection: close\r\n", False),
        (b"Connection: Keep-Alive, CLOSE\r\n", False),
        (b"Connection: close\r\nConnection: keep-alive\r\n", False),
        (b"Connection: disclose\r\n", True),
    ],
)
def test_whether_a_connection_is_kept_is_told_whatever_the_request_is(headers: bytes, kept: bool) -> None:
    assert read_request(request(headers=headers)).keep_alive is kept
    assert read_request(request(b"POST / HTTP/1.1", headers + b"Content-Length: 5\r\n")).keep_alive is kept
    assert not read_request(request(b"GET / HTTP/1.0", headers)).keep_alive
    assert read_response(b"HTTP/1.1 200 OK\r\n" + headers + b"\r\n").keep_alive is kept


def test_a_server_of_http_1_0_keeps_a_connection_only_if_it_says_so() -> None:
    assert not read_response(b"HTTP/1.0 200 OK\r\n\r\n").keep_alive
    assert read_response(b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\n\r\n").keep_alive


def test_a_response() -> None:
    head = read_response(b"HTTP/1.1 401 No such luck\r\nWWW-Authenticate: a\r\nwww-authenticate: b \r\n\r\n")
    assert (head.status, head.reason) == (401, b"No such luck")
    assert values(head.headers, b"www-authenticate") == [b"a", b"b"]
    assert read_response(b"HTTP/1.1 200\r\n\r\n").reason == b""


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.1 200 OK\nX: 1\r\n\r\n",
        b"HTTP/2 200 OK\r\n\r\n",
        b"HTTP/1.1 2000 OK\r\n\r\n",
        b"HTTP/1.1 20 OK\r\n\r\n",
        b"HTTP/1.1 099 OK\r\n\r\n",
        b"ICY 200 OK\r\n\r\n",
        b"\r\nHTTP/1.1 200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX : 1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: 1\r\n 2\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
    ],
)
def test_a_malformed_response_is_a_fault(head: bytes) -> None:
    with pytest.raises(HttpFault):
        read_response(head)


def test_a_header_that_stands_twice_has_no_single_value() -> None:
    headers = [(b"Mcp-Session-Id", b"a"), (b"mcp-session-id", b"a"), (b"X", b"1")]
    assert single(headers, b"x") == b"1"
    assert single(headers, b"y") is None
    with pytest.raises(HttpFault, match="stands twice"):
        single(headers, b"mcp-session-id")


def test_what_belongs_to_a_connection_does_not_go_on() -> None:
    headers = [
        (b"Connection", b"x-mine, Keep-Alive"),
        (b"X-Mine", b"1"),
        (b"Keep-Alive", b"5"),
        (b"TE", b"trailers"),
        (b"X-Run", b"1"),
        (b"Accept", b"*/*"),
    ]
    assert without(headers, frozenset((b"x-run",))) == [(b"Accept", b"*/*")]


def test_a_media_type_has_no_parameters() -> None:
    assert media_type(b"Text/Event-Stream ; charset=utf-8") == b"text/event-stream"
    assert media_type(None) == b""


@given(st.binary(max_size=8))
def test_what_may_be_written_in_a_header_can_be_read_back(text: bytes) -> None:
    if is_token(text) and text.lower() not in (b"host", b"expect"):
        assert read_request(request(headers=text + b": 1\r\n")).headers[1] == (text, b"1")
    if is_value(text):
        assert read_request(request(headers=b"X:" + text + b"\r\n")).headers[1] == (b"X", text.strip(b" \t"))


@given(st.lists(st.sampled_from([b"a", b"\r", b"\n", b"\r\n"]), max_size=12).map(b"".join), st.integers(0, 12))
def test_a_bare_newline_is_seen_in_whichever_piece_it_comes(text: bytes, at: int) -> None:
    at = min(at, len(text))
    whole = b"\n" in text.replace(b"\r\n", b"")
    assert (has_bare_newline(text[:at], 0) or has_bare_newline(text, at)) == whole
