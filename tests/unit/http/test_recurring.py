"""A head that is known again reads as it would if it were read anew; whatever differs is read anew."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from harness.framing import MALFORMED, request
from subluminal.http.bodies import Sized, request_body, response_body
from subluminal.http.heads import RequestHead, read_request, read_response
from subluminal.http.recurring import MAX_KEPT_BYTES, Recurring, recurring

POST = b"POST /mcp HTTP/1.1"
PLAIN = request(POST, b"Accept: a\r\nContent-Length: 17\r\nX: 17\r\n")
OTHERS = {
    "the length last": request(POST, b"X: 1\r\nContent-Length: 5\r\n"),
    "white space around the length": request(POST, b"content-length: \t 5\t \r\nX: 1\r\n"),
    "no white space": request(POST, b"CONTENT-LENGTH:5\r\n"),
    "a name that ends like it": request(POST, b"X-Content-Length: 5\r\nContent-Length: 5\r\n"),
    "its digits elsewhere": request(POST, b"X5: 5\r\nContent-Length: 5\r\nY: 5\r\n"),
}


def kept(raw: bytes) -> Recurring | None:
    head = read_request(raw)
    return recurring(head, raw, request_body(head.headers, head.http_1_0))


def shown(head: RequestHead) -> tuple[object, ...]:
    return head.method, head.target, head.headers, head.keep_alive, head.http_1_0, head.said(b"content-length")


def check(first: bytes, second: bytes, follows: bytes = b"") -> bool:
    """Whether `second` is known again after `first`: if so, exactly as it is read."""
    known = kept(first)
    assert known is not None
    known.head.said(b"host")
    length = known.again(second + follows, len(second))
    if length < 0:
        return False
    anew = read_request(second)
    framed = request_body(anew.headers, anew.http_1_0)
    assert (type(framed), framed.length) == (Sized, length)
    for _ in range(2):  # a length that has not changed is not even read
        assert shown(known.head) == shown(anew)
        assert known.again(second, len(second)) == length
    known.again(first, len(first))
    assert shown(known.head) == shown(read_request(first))
    return True


@pytest.mark.parametrize("raw", [PLAIN, *OTHERS.values()], ids=["plain", *OTHERS])
def test_a_head_with_another_length_is_known_again(raw: bytes) -> None:
    digits = b"17" if raw is PLAIN else b"5"
    at = raw.lower().find(b"\r\ncontent-length:")
    for other in (b"0", b"5", b"18", b"0007", b"123456789012345"):
        assert check(raw, raw[:at] + raw[at:].replace(digits, other, 1), b'{"a":1}\r\n\r\n')


DIFFERENT = {
    "a sign": (b": 17", b": +17"),
    "a minus": (b": 17", b": -17"),
    "two numbers": (b": 17", b": 17, 17"),
    "hexadecimal": (b": 17", b": 0x11"),
    "no digits": (b"Length: 17", b"Length: "),
    "white space more": (b"Length: 17", b"Length:  17"),
    "digits of another alphabet": (b"Length: 17", b"Length: \xd9\xa1"),
    "more digits than a length has": (b"Length: 17", b"Length: 1234567890123456"),
    "a second length": (b"Length: 17", b"Length: 17\r\nContent-Length: 18"),
    "a coding beside it": (b"Length: 17", b"Length: 17\r\nTransfer-Encoding: chunked"),
    "another host": (b"Host: here", b"Host: elsewhere"),
    "another value": (b"X: 17", b"X: 18"),
    "a header more": (b"X: 17", b"X: 17\r\nOrigin: http://evil"),
    "a header less": (b"Accept: a\r\n", b""),
    "another target": (b"/mcp", b"/mcp2"),
    "another method": (b"POST", b"PUT"),
    "bare LF": (b"17\r\nX", b"17\nX"),
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_a_head_that_differs_otherwise_is_not(name: str) -> None:
    second = PLAIN.replace(*DIFFERENT[name], 1)
    assert second != PLAIN
    known = kept(PLAIN)
    assert known is not None
    assert known.again(second, len(second)) == -1


@pytest.mark.parametrize("head", MALFORMED.values(), ids=MALFORMED)
def test_nothing_malformed_is_known_again(head: bytes) -> None:
    known = kept(PLAIN)
    assert known is not None
    assert known.again(head, len(head)) == -1


@given(
    st.sampled_from([PLAIN, *OTHERS.values()]),
    st.integers(0, 90),
    st.integers(0, 12),
    st.one_of(
        st.binary(max_size=8), st.sampled_from([b"\r\n", b"0", b"99", b" ", b"\r\n\r\n", b"Content-Length: 1\r\n"])
    ),
)
@example(PLAIN, 0, 0, b"")
def test_however_a_head_is_changed_it_reads_the_same_or_is_read_anew(
    raw: bytes, at: int, gone: int, put: bytes
) -> None:
    second = raw[:at] + put + raw[at + gone :]
    end = second.find(b"\r\n\r\n")
    if end >= 0:
        check(raw, second[: end + 4], second[end + 4 :])


NOT_KEPT = {
    "no length": request(POST),
    "chunks": request(POST, b"Transfer-Encoding: chunked\r\n"),
    "the last of its connection": request(POST, b"Connection: close\r\nContent-Length: 5\r\n"),
    "HTTP/1.0": request(b"POST / HTTP/1.0", b"Content-Length: 5\r\n"),
    "a large one": request(POST, b"X: " + b"x" * MAX_KEPT_BYTES + b"\r\nContent-Length: 5\r\n"),
}


@pytest.mark.parametrize("name", NOT_KEPT)
def test_a_head_that_does_not_recur_is_not_kept(name: str) -> None:
    assert kept(NOT_KEPT[name]) is None


def test_what_its_owner_has_found_out_holds_for_every_one_and_no_other() -> None:
    known = kept(PLAIN)
    assert known is not None and known.head.kept is not None
    known.head.kept.notes = "admitted"
    assert known.again(PLAIN.replace(b": 17", b": 8", 1), len(PLAIN) - 1) == 8
    assert known.head.kept.notes == "admitted"
    assert read_request(PLAIN).kept is None


def test_an_answer_is_known_again_with_its_reason_and_length() -> None:
    raw = b"HTTP/1.1 200 Fine\r\nContent-Type: a\r\nContent-Length: 5\r\n\r\n"
    head = read_response(raw)
    known = recurring(head, raw, response_body(b"POST", head.status, head.headers))
    assert known is not None
    again = raw.replace(b": 5", b": 66")
    assert known.again(again + b"rest", len(again)) == 66
    assert known.head.headers == read_response(again).headers and known.head.reason == b"Fine"
    other = raw.replace(b"200", b"204")
    assert known.again(other, len(other)) == -1
