"""Bodies: what they hold does not depend on how they come, and nothing is taken for a size that is none."""

from __future__ import annotations

from itertools import pairwise

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.effort import growth
from subluminal.http.bodies import (
    LAST_CHUNK,
    Body,
    Chunked,
    Sized,
    UntilClose,
    chunk,
    chunk_size,
    request_body,
    response_body,
)
from subluminal.http.heads import HttpFault

contents = st.lists(st.binary(min_size=1, max_size=40), max_size=6)


def pieces_of(data: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({cut % (len(data) + 1) for cut in cuts} | {0, len(data)})
    return [data[at:to] for at, to in pairwise(places)]


def fed(body: Body, pieces: list[bytes]) -> tuple[bytes, bytes | None]:
    """All content, and what follows it; None: there is no end."""
    content = b""
    for number, piece in enumerate(pieces):
        part, rest = body.feed(piece)
        content += part
        if rest is not None:
            return content, rest + b"".join(pieces[number + 1 :])
    return content, None


def fault_or(body: Body, pieces: list[bytes]) -> object:
    try:
        return fed(body, pieces)
    except HttpFault:
        return HttpFault


@given(contents, st.lists(st.integers(0)), st.binary(max_size=8))
def test_chunks_hold_what_was_put_in_them(parts: list[bytes], cuts: list[int], behind: bytes) -> None:
    encoded = b"".join(chunk(part) for part in parts) + LAST_CHUNK + behind
    body = Chunked()
    assert fed(body, pieces_of(encoded, cuts)) == (b"".join(parts), behind)
    assert body.done and body.closed()


@given(st.binary(max_size=60), st.integers(0, 60), st.lists(st.integers(0)))
def test_a_length_is_where_a_body_ends(data: bytes, length: int, cuts: list[int]) -> None:
    body = Sized(length)
    if body.done:
        assert length == 0
        return
    enough = len(data) >= length
    assert fed(body, pieces_of(data, cuts)) == (data[:length], data[length:] if enough else None)
    assert body.closed() is enough


chunky = st.lists(
    st.sampled_from(
        [b"0", b"3", b"a", b"\r", b"\n", b"\r\n", b";", b"x", b"abc", b":", b" ", b"\t", b"0\r\n\r\n", b"3\r\nabc\r\n"]
    ),
    max_size=14,
).map(b"".join)


@given(chunky, st.lists(st.integers(0)))
def test_chunks_are_read_the_same_in_any_pieces(data: bytes, cuts: list[int]) -> None:
    whole, cut = fault_or(Chunked(), [data] if data else []), fault_or(Chunked(), pieces_of(data, cuts))
    assert whole == cut


@given(chunky)
def test_chunks_that_we_read_h11_reads_as_the_same(data: bytes) -> None:
    ours = fault_or(Chunked(), [data] if data else [])
    if ours is HttpFault:
        return
    peer = h11.Connection(h11.SERVER)
    peer.receive_data(b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n" + data)
    assert isinstance(peer.next_event(), h11.Request)
    seen = b""
    while isinstance(event := peer.next_event(), h11.Data):
        seen += event.data
    rest = peer.trailing_data[0] if isinstance(event, h11.EndOfMessage) else None
    assert (seen, rest) == ours


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b" ",
        b"-1",
        b"+1",
        b"0x1",
        b"1_0",
        b" 1",
        b"1 ",
        b"1 ;x",
        b"g",
        b"1\n",
        b"1\r",
        b"\xd9\xa5",
        b"1\0",
        b"f" * 16,
        b";x",
    ],
)
def test_nothing_else_is_taken_for_the_size_of_a_chunk(line: bytes) -> None:
    with pytest.raises(HttpFault):
        chunk_size(line)


def test_sizes_and_extensions() -> None:
    assert chunk_size(b"00fF") == 255
    assert chunk_size(b'5;name="value";other') == 5
    body = Chunked()
    assert body.feed(b"5;x=1\r\nhello\r\n0;y\r\nTrailer: dropped\r\n\r\nnext") == (b"hello", b"next")


@pytest.mark.parametrize(
    "data",
    [
        b"5\r\nhello0\r\n\r\n",
        b"5\r\nhelloXX",
        b"5\nhello\r\n",
        b"5\r\nhello\n0\r\n\r\n",
        b"5\r\nhello\r\n0\r\n\n",
        b"0\r\nno colon\r\n\r\n",
        b"0\r\n folded: 1\r\n\r\n",
        b"0\r\nx : 1\r\n\r\n",
        b"0\r\n: 1\r\n\r\n",
        b"0\r\nx: a\0\r\n\r\n",
        b"0\r\nContent-Length: 5\r\n\r\n",
        b"0\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"5;" + b"x" * 300,
        b"0\r\n" + b"x: " + b"y" * 300,
        b"0\r\n" + b"".join(b"x%d: %b\r\n" % (n, b"y" * 200) for n in range(50)),
    ],
)
def test_malformed_chunks_and_trailers_are_faults(data: bytes) -> None:
    with pytest.raises(HttpFault):
        Chunked().feed(data)
    with pytest.raises(HttpFault):
        fed(Chunked(), [data[at : at + 1] for at in range(len(data))])


def test_a_length_stays_within_reason() -> None:
    assert request_body([(b"content-length", b"9" * 15)]).length == 10**15 - 1
    with pytest.raises(HttpFault):
        request_body([(b"content-length", b"9" * 16)])


@pytest.mark.parametrize(
    ("method", "status", "headers", "kind"),
    [
        (b"GET", 200, [], UntilClose),
        (b"GET", 200, [(b"Content-Length", b"5")], Sized),
        (b"GET", 200, [(b"Transfer-Encoding", b"chunked")], Chunked),
        (b"HEAD", 200, [(b"Content-Length", b"5")], Sized),
        (b"HEAD", 200, [(b"Transfer-Encoding", b"chunked")], Sized),
        (b"GET", 204, [], Sized),
        (b"GET", 304, [(b"Content-Length", b"5")], Sized),
        (b"GET", 100, [], Sized),
    ],
)
def test_how_an_answer_is_framed(
    method: bytes, status: int, headers: list[tuple[bytes, bytes]], kind: type[Body]
) -> None:
    body = response_body(method, status, headers)
    assert type(body) is kind
    assert body.done == (method == b"HEAD" or status in (100, 204, 304))


def test_a_body_that_ends_with_its_connection_ends_well() -> None:
    body = UntilClose()
    assert body.feed(b"abc") == (b"abc", None)
    assert not body.done and body.closed()


def test_reading_chunks_is_linear_however_small_they_are() -> None:
    def read(count: int) -> None:
        Chunked().feed(b"1\r\nx\r\n" * count)

    assert growth(read, 2_000, 20_000, 3) < 3
