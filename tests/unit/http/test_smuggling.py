"""What could be read as two requests, or as another one, is refused at the door: nobody behind it hears of it."""

from __future__ import annotations

import asyncio

import pytest

from harness.framing import MALFORMED
from harness.web import House, house, run_on

SMUGGLED = b"GET /smuggled HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"
CHUNKED = b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"


async def refused(here: House, stream: bytes) -> int:
    """The one answer, after which the connection is closed."""
    received = await here.talk(stream)
    assert received.count(b"HTTP/1.1 ") == 1 and b"connection: close" in received
    return int(received[9:12])


def test_a_head_with_two_readings_is_refused_and_nothing_behind_it_is_read() -> None:
    async def main() -> None:
        async with house() as here:
            for name, head in MALFORMED.items():
                assert await refused(here, head + b"0\r\n\r\n" + SMUGGLED) in (400, 431, 501), name
            assert here.guests == []

    run_on("asyncio", main())


@pytest.mark.parametrize(
    "body",
    [
        b"-1\r\n",
        b"+5\r\nhello\r\n",
        b"0x5\r\nhello\r\n",
        b"5_0\r\n",
        b"5 \r\nhello\r\n",
        b" 5\r\nhello\r\n",
        b"5\nhello\n0\n\n",
        b"5\r\nhello0\r\n\r\n",
        b"ffffffffffffffff\r\n",
        b"10000000000000000\r\n",
        b"5;" + b"x" * 1000 + b"\r\nhello\r\n",
        b"5;a\nb\r\nhello\r\n0\r\n\r\n",
        b"0\r\nContent-Length: 50\r\n\r\n",
        b"0\r\nX : y\r\n\r\n",
        b"0\r\n" + b"X: y\r\n" * 10_000,
        b"\r\n5\r\nhello\r\n",
    ],
)
def test_chunks_with_two_readings_are_refused(body: bytes) -> None:
    async def main() -> None:
        async with house() as here:
            assert await refused(here, CHUNKED + body + SMUGGLED) == 400
            assert [guest.told[-1] for guest in here.guests] == ["gone"]

    run_on("asyncio", main())


def test_extensions_and_trailers_are_dropped() -> None:
    async def main() -> None:
        async with house() as here:
            received = await here.talk(CHUNKED + b'5;a="b"\r\nhello\r\n0;c\r\nContent-Type: evil\r\n\r\n' + SMUGGLED)
            assert received.count(b"200 OK") == 2, "what follows the last chunk is the next request, as it says"
            first = here.guests[0]
            assert first.content == b"hello"
            assert [name for name, _ in first.headers] == [b"Host", b"Transfer-Encoding"]

    run_on("asyncio", main())


def test_bytes_behind_a_body_are_the_next_request_or_nothing() -> None:
    async def main() -> None:
        async with house() as here:
            wire = await here.connect()
            wire.send(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello}}")
            assert await wire.answer() == (200, b"hello")
            assert (await wire.until_closed()).startswith(b"HTTP/1.1 400")
            assert len(here.guests) == 1

    run_on("asyncio", main())


@pytest.mark.parametrize("target", [b"http://other/mcp", b"/%6dcp", b"/MCP", b"/mcp/../mcp", b"//mcp", b"/mcp#x", b"*"])
def test_a_target_is_handed_on_exactly_as_it_was_sent(target: bytes) -> None:
    """Whoever compares it sees what came, not what somebody made of it."""

    async def main() -> None:
        async with house() as here:
            await here.talk(b"OPTIONS " + target + b" HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
            assert here.guests[0].target == target

    run_on("asyncio", main())


def test_what_is_refused_does_not_come_back() -> None:
    async def main() -> None:
        async with house() as here:
            received = await here.talk(b"GET /<secret> HTTP/1.1\r\nHost: h\r\nX-\0Secret: secret\r\n\r\n")
            assert b"400" in received and b"ecret" not in received

    run_on("asyncio", main())


def test_a_flood_of_headers_costs_no_more_than_their_bound() -> None:
    async def main() -> None:
        async with house() as here:
            flood = b"".join(b"X-%d: 1\r\n" % number for number in range(500))
            assert await refused(here, b"GET / HTTP/1.1\r\nHost: h\r\n" + flood + b"\r\n") == 431
            assert await refused(here, b"GET / HTTP/1.1\r\nHost: h\r\n" + b"X: y\r\n" * 100_000) == 431
            assert here.guests == []

    run_on("asyncio", main())


def test_many_who_send_nonsense_at_once_leave_nothing_behind() -> None:
    async def main() -> None:
        async with house() as here:
            await asyncio.gather(*(refused(here, b"\x16\x03\x01" + bytes(200)) for _ in range(100)))
            wire = await here.connect()
            wire.send(SMUGGLED)
            assert await wire.answer() == (200, b"")

    run_on("uvloop", main())
