"""Connections of clients, with real sockets and on both loops: what is answered, what is cut, what is kept."""

from __future__ import annotations

import asyncio

import pytest

from harness.waiting import wait_for_async
from harness.web import LOOPS, Guest, echo, house, run_on, silent, turns
from subluminal.http.heads import response_lines
from subluminal.http.limits import (
    BODY_SECONDS,
    HEAD_SECONDS,
    HIGH_WATER,
    IDLE_SECONDS,
    LEAVE_SECONDS,
    MAX_DISCARDED_BYTES,
    MAX_HEAD_BYTES,
)
from subluminal.http.together import FEW

pytestmark = pytest.mark.parametrize("loop", LOOPS)
GET = b"GET /a HTTP/1.1\r\nHost: h\r\n\r\n"
POST = b"POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello"
LAST = b"GET /last HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"
BODY_TO_COME = b"POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nhello"


def statuses(received: bytes) -> list[int]:
    return [int(part[:3]) for part in received.split(b"HTTP/1.1 ")[1:]]


# -- requests, one after the other ------------------------------------------------------------------------------------


def test_requests_follow_each_other_on_one_connection(loop: str) -> None:
    async def main() -> None:
        async with house() as here:
            received = await here.talk(GET + POST + LAST)
            assert statuses(received) == [200, 200, 200]
            assert [guest.target for guest in here.guests] == [b"/a", b"/a", b"/last"]
            assert here.guests[1].content == b"hello"
            assert received.count(b"connection: close") == 1

    run_on(loop, main())


@pytest.mark.parametrize("size", [1, 2, 7, 50])
def test_the_same_requests_in_pieces_are_the_same_visits(loop: str, size: int) -> None:
    chunked = (
        b"POST /c HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n2;x\r\nab\r\n1\r\nc\r\n0\r\nT: 1\r\n\r\n"
    )
    stream = GET + chunked + POST + LAST

    async def main() -> None:
        async with house() as here:
            whole = await here.talk(stream)
            wire = await here.connect()
            for at in range(0, len(stream), size):
                wire.send(stream[at : at + size])
                await asyncio.sleep(0)
            assert await wire.until_closed() == whole
            seen = [(guest.target, guest.content, guest.told[-1]) for guest in here.guests]
            assert seen[:4] == seen[4:]
            assert seen[1] == (b"/c", b"abc", "end")

    run_on(loop, main())


def test_a_second_request_waits_until_the_first_is_answered(loop: str) -> None:
    async def main() -> None:
        async with house(end=silent) as here:
            wire = await here.connect()
            wire.send(GET + POST)
            await wait_for_async(lambda: here.guests and "end" in here.guests[0].told, what="the first request")
            wire.send(GET)
            await turns()
            assert len(here.guests) == 1
            for number in range(3):
                await wait_for_async(lambda n=number: len(here.guests) > n and "end" in here.guests[n].told)
                assert len(here.guests) == number + 1
                here.guests[number].visit.answer(200, [], b"%d" % number)
                assert await wire.answer() == (200, b"%d" % number)

    run_on(loop, main())


def test_answers_to_many_leave_whole_and_in_order_whichever_way_they_are_given(loop: str) -> None:
    def answer(guest: Guest) -> None:
        kind, text = guest.target[-1:], guest.target
        if kind == b"a":
            guest.visit.answer_as(response_lines(200, []), text)
        elif kind == b"b":
            guest.visit.answer(200, [], text)
        else:
            guest.visit.begin(200, [], len(text))
            guest.visit.send(text)
            guest.visit.end()

    waiting: list[Guest] = []

    def wait_for_all(guest: Guest) -> None:
        waiting.append(guest)
        if len(waiting) == 4 * FEW:
            while waiting:
                answer(waiting.pop())

    async def main() -> None:
        async with house(end=wait_for_all) as here:
            wires = [await here.connect() for _ in range(4 * FEW)]
            for number, wire in enumerate(wires):
                for word in _letters(b"abcaacba"):
                    wire.send(b"GET /%d%b HTTP/1.1\r\nHost: h\r\n\r\n" % (number, word))
                wire.send(LAST.replace(b"last", b"last-a"))
            for number, wire in enumerate(wires):
                received = await wire.until_closed()
                bodies = [part.partition(b"\r\n\r\n")[2] for part in received.split(b"HTTP/1.1 200 OK")[1:]]
                assert bodies == [*(b"/%d%b" % (number, word) for word in _letters(b"abcaacba")), b"/last-a"]
            assert here.serving.under_way == 0

    run_on(loop, main())


def _letters(word: bytes) -> list[bytes]:
    return [bytes((letter,)) for letter in word]


def test_answers_that_nobody_reads_stop_the_reading_of_requests(loop: str) -> None:
    """Else a client that only asks makes us keep all its answers."""

    def large(guest: Guest) -> None:
        guest.visit.answer(200, [], b"x" * HIGH_WATER)

    async def main() -> None:
        async with house(end=large) as here:
            wire = await here.connect()
            wire.reader._limit = 1  # type: ignore[attr-defined]  # it reads next to nothing
            wire.send(GET * 2000)
            await wait_for_async(lambda: len(here.guests) > 2)
            seen = 0
            while seen != len(here.guests):
                seen = len(here.guests)
                await turns()
            assert seen < 200
            wire.cut()

    run_on(loop, main())


def test_they_are_read_on_when_the_answers_are_read(loop: str) -> None:
    def large(guest: Guest) -> None:
        guest.visit.answer(200, [], b"x" * 2 * HIGH_WATER)

    async def main() -> None:
        async with house(end=large) as here:
            received = await here.talk(GET * 8 + LAST)
            assert statuses(received) == [200] * 9

    run_on(loop, main())


# -- answers ----------------------------------------------------------------------------------------------------------


def test_http_1_0_is_answered_and_closed(loop: str) -> None:
    def stream(guest: Guest) -> None:
        guest.visit.begin(200, [])
        guest.visit.send(b"abc")
        guest.visit.send(b"def")
        guest.visit.end()

    async def main() -> None:
        async with house() as here:
            received = await here.talk(b"GET /a HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
            assert statuses(received) == [200] and b"connection: close" in received
        async with house(end=stream) as here:
            received = await here.talk(b"GET /a HTTP/1.0\r\n\r\n")
            assert received.endswith(b"\r\n\r\nabcdef") and b"chunked" not in received

    run_on(loop, main())


def test_a_stream_is_chunked_and_each_piece_goes_out_at_once(loop: str) -> None:
    async def main() -> None:
        async with house(end=silent) as here:
            wire = await here.connect()
            wire.send(GET)
            await wait_for_async(lambda: here.guests)
            visit = here.guests[0].visit
            visit.begin(200, [(b"content-type", b"text/event-stream")])
            assert b"transfer-encoding: chunked" in await wire.until(b"\r\n\r\n")
            for piece in (b"data: 1\n\n", b"data: 22\n\n"):
                visit.send(piece)
                assert await wire.until(b"\n\n\r\n") == b"%x\r\n%b\r\n" % (len(piece), piece)
            visit.end()
            assert await wire.read(5) == b"0\r\n\r\n"
            wire.send(LAST)
            await wait_for_async(lambda: len(here.guests) == 2)
            here.guests[1].visit.answer(202, [])
            assert statuses(await wire.until_closed()) == [202]

    run_on(loop, main())


@pytest.mark.parametrize(("method", "status"), [(b"HEAD", 200), (b"GET", 204), (b"GET", 304)])
@pytest.mark.parametrize("length", [None, 3])
@pytest.mark.parametrize("at_once", [True, False])
def test_an_answer_without_content_has_none(
    loop: str, method: bytes, status: int, length: int | None, at_once: bool
) -> None:
    def answer(guest: Guest) -> None:
        if at_once or guest.target == b"/last":
            guest.visit.answer(status, [], b"abc")
        else:
            guest.visit.begin(status, [], length)
            guest.visit.send(b"abc")
            guest.visit.end()

    async def main() -> None:
        async with house(end=answer) as here:
            received = await here.talk(GET.replace(b"GET", method) + LAST.replace(b"GET", method))
            assert statuses(received) == [status, status], "the connection was kept"
            assert b"abc" not in received and b"chunked" not in received
            if status == 204:
                assert b"content-length" not in received

    run_on(loop, main())


@pytest.mark.parametrize("content", [b"ab", b"abcd"])
def test_content_of_another_length_than_announced_cuts_the_connection(loop: str, content: bytes) -> None:
    def answer(guest: Guest) -> None:
        guest.visit.begin(200, [], 3)
        guest.visit.send(content)
        guest.visit.end()

    async def main() -> None:
        async with house(end=answer) as here:
            assert statuses(await here.talk(GET + GET)) in ([], [200])
            assert len(here.guests) == 1

    run_on(loop, main())


def test_only_the_first_answer_counts(loop: str) -> None:
    def twice(guest: Guest) -> None:
        visit = guest.visit
        visit.send(b"too early")
        visit.end()
        visit.answer(200, [], b"first")
        visit.answer(500, [], b"second")
        visit.begin(500, [])
        visit.send(b"third")
        visit.end()
        assert visit.over and visit.inbound is None

    async def main() -> None:
        async with house(end=twice) as here:
            received = await here.talk(LAST)
            assert statuses(received) == [200] and received.endswith(b"first")

    run_on(loop, main())


@pytest.mark.parametrize("moment", ["arrived", "data", "end"])
def test_an_answer_may_be_given_at_any_moment(loop: str, moment: str) -> None:
    async def main() -> None:
        on = {"end": silent, moment: echo}
        async with house(**on) as here:
            wire = await here.connect()
            wire.send(POST + BODY_TO_COME)
            first = b"" if moment == "arrived" else b"hello"
            assert await wire.answer() == (200, first)
            if moment != "end":
                assert await wire.answer() == (200, first), "before the rest of its content"
            wire.send(b"world" + POST)
            if moment == "end":
                assert await wire.answer() == (200, b"helloworld")
            assert await wire.answer() == (200, first), "the connection is in step"
            told = {"arrived": [], "data": ["data"], "end": ["data", "end"]}[moment]
            assert here.guests[0].told == here.guests[2].told == told, "nothing after its answer"

    run_on(loop, main())


# -- content that is not wanted ---------------------------------------------------------------------------------------


def test_a_request_that_is_refused_while_its_content_comes_can_be_followed_by_another(loop: str) -> None:
    async def main() -> None:
        async with house(arrived=lambda guest: guest.visit.answer(413, [])) as here:
            wire = await here.connect()
            wire.send(BODY_TO_COME)
            assert await wire.answer() == (413, b"")
            wire.send(b"world" + POST)
            assert await wire.answer() == (413, b"")

    run_on(loop, main())


def test_content_without_end_is_dropped_only_so_long(loop: str) -> None:
    async def main() -> None:
        async with house(arrived=lambda guest: guest.visit.answer(413, [])) as here:
            wire = await here.connect()
            wire.send(b"POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 999999999\r\n\r\n")
            assert await wire.answer() == (413, b"")
            sent = 0
            try:
                while sent < MAX_DISCARDED_BYTES * 16:
                    wire.send(b"x" * 2**16)
                    sent += 2**16
                    await wire.writer.drain()
            except ConnectionError:
                pass
            await wait_for_async(lambda: not len(here.serving))
            assert sent > MAX_DISCARDED_BYTES / 2
            wire.cut()

    run_on(loop, main())


def test_one_who_still_sends_can_read_why_it_was_refused(loop: str) -> None:
    """A close with unread data in the kernel would reset the connection, and the answer with it."""

    async def main() -> None:
        async with house() as here:
            wire = await here.connect()
            wire.send(b"GET /" + b"x" * 1_000_000)
            received = await wire.until_closed()
            assert statuses(received) == [431]
            close = LAST.replace(b"GET", b"POST").replace(b"Host", b"Content-Length: 1000000\r\nHost")
        async with house(arrived=lambda guest: guest.visit.answer(403, [], b"no")) as here:
            wire = await here.connect()
            wire.send(close + b"x" * 1_000_000)
            assert (await wire.until_closed()).endswith(b"no")

    run_on(loop, main())


@pytest.mark.parametrize("late", [b"zz\r\n", b"5\r\nhelloXX"])
def test_a_fault_in_content_that_is_dropped_is_no_second_answer(loop: str, late: bytes) -> None:
    async def main() -> None:
        async with house(arrived=lambda guest: guest.visit.answer(403, [])) as here:
            wire = await here.connect()
            wire.send(b"POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n")
            assert await wire.answer() == (403, b"")
            wire.send(late)
            assert await wire.until_closed() == b""

    run_on(loop, main())


def test_a_fault_in_content_is_answered_and_its_listener_told(loop: str) -> None:
    async def main() -> None:
        async with house() as here:
            received = await here.talk(
                b"POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n-1\r\n"
            )
            assert statuses(received) == [400]
            assert here.guests[0].told == ["gone"]

    run_on(loop, main())


def test_a_fault_after_the_answer_has_begun_cuts_it(loop: str) -> None:
    async def main() -> None:
        async with house(data=lambda guest: guest.visit.begin(200, [])) as here:
            wire = await here.connect()
            wire.send(b"POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n")
            await wire.until(b"\r\n\r\n")
            wire.send(b"-1\r\n")
            assert await wire.until_closed() == b"", "no second answer, and no end of the first"
            assert here.guests[0].told == ["data", "gone"]

    run_on(loop, main())


# -- 100-continue -----------------------------------------------------------------------------------------------------

EXPECTING = b"POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nExpect: 100-Continue\r\n\r\n"


def test_a_client_that_waits_for_leave_to_send_gets_it_from_whoever_listens(loop: str) -> None:
    async def main() -> None:
        async with house() as here:
            wire = await here.connect()
            wire.send(EXPECTING)
            assert await wire.until(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
            wire.send(b"hello")
            assert await wire.answer() == (200, b"hello")
            wire.send(EXPECTING.replace(b": 5", b": 0"))
            assert await wire.answer() == (200, b""), "nothing was to come"

    run_on(loop, main())


def test_one_that_is_refused_gets_no_leave_and_its_connection_ends(loop: str) -> None:
    """Whether its content follows all the same, nobody can tell: what comes next may be either."""

    async def main() -> None:
        async with house(arrived=lambda guest: guest.visit.answer(413, [])) as here:
            received = await here.talk(EXPECTING + b"GET /smuggled HTTP/1.1\r\nHost: h\r\n\r\n")
            assert statuses(received) == [413] and b"connection: close" in received
            assert len(here.guests) == 1

    run_on(loop, main())


# -- leaving ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["shut", "close", "cut"])
@pytest.mark.parametrize("sent", [GET, BODY_TO_COME, GET + GET])
def test_a_client_that_leaves_is_gone_at_once(loop: str, how: str, sent: bytes) -> None:
    async def main() -> None:
        async with house(end=silent) as here:
            wire = await here.connect()
            wire.send(sent)
            await wait_for_async(lambda: here.guests and here.guests[0].told, what="the request")
            {"shut": wire.writer.write_eof, "close": wire.writer.close, "cut": wire.cut}[how]()
            await wait_for_async(lambda: here.guests[0].told[-1] == "gone", what="the listener to be told")
            visit = here.guests[0].visit
            assert visit.over
            visit.answer(200, [], b"to nobody")
            visit.break_off()
            await wait_for_async(lambda: not len(here.serving))

    run_on(loop, main())


def test_a_silent_stream_ends_with_its_client(loop: str) -> None:
    async def main() -> None:
        async with house(end=lambda guest: guest.visit.begin(200, [])) as here:
            wire = await here.connect()
            wire.send(GET)
            await wire.until(b"\r\n\r\n")
            wire.writer.close()
            await wait_for_async(lambda: here.guests[0].told == ["end", "gone"])

    run_on(loop, main())


def test_an_answer_that_is_broken_off_is_seen_to_be(loop: str) -> None:
    async def main() -> None:
        async with house(end=silent) as here:
            wire = await here.connect()
            wire.send(GET)
            await wait_for_async(lambda: here.guests)
            visit = here.guests[0].visit
            visit.begin(200, [])
            visit.send(b"half")
            await wire.until(b"half")
            visit.break_off()
            assert b"0\r\n" not in await wire.until_closed()
            assert here.guests[0].told == ["end"], "whoever breaks off need not be told"

    run_on(loop, main())


# -- back-pressure ----------------------------------------------------------------------------------------------------


def test_a_client_that_does_not_read_is_full_until_it_reads(loop: str) -> None:
    async def main() -> None:
        async with house(end=silent) as here:
            wire = await here.connect()
            wire.reader._limit = 1  # type: ignore[attr-defined]
            wire.send(GET)
            await wait_for_async(lambda: here.guests)
            guest = here.guests[0]
            guest.visit.begin(200, [])
            sent = 0
            while "full" not in guest.told:
                guest.visit.send(b"x" * 2**16)
                sent += 2**16
                await asyncio.sleep(0)
            while "room" not in guest.told:
                await wire.reader.read(2**20)
            guest.visit.end()
            assert guest.told == ["end", "full", "room"]
            wire.cut()

    run_on(loop, main())


def test_content_is_not_read_while_its_listener_pauses(loop: str) -> None:
    def pause(guest: Guest) -> None:
        guest.visit.pause()
        guest.visit.pause()

    async def main() -> None:
        async with house(data=pause) as here:
            wire = await here.connect()
            size = 16 * 2**20
            wire.send(b"POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n" % size + b"x" * size)
            await wait_for_async(lambda: here.guests and here.guests[0].content)
            await turns()
            guest = here.guests[0]
            assert len(guest.content) < size / 2
            await here.pass_time(BODY_SECONDS * 3)
            assert guest.told == ["data"], "that nothing comes is not the client's doing"
            while "end" not in guest.told:
                guest.visit.resume()
                await asyncio.sleep(0)
            head = await wire.until(b"\r\n\r\n")
            assert b"content-length: %d" % size in head

    run_on(loop, main())


# -- time -------------------------------------------------------------------------------------------------------------


def test_a_slow_head_is_let_go_however_steadily_it_comes(loop: str) -> None:
    async def main() -> None:
        async with house() as here:
            wire = await here.connect()
            for seconds in (0, HEAD_SECONDS / 2, HEAD_SECONDS / 2):
                wire.send(b"GET / HTTP/1.1\r\n"[:5])
                await turns()
                await here.pass_time(seconds)
            wire.send(b"/")
            await turns()
            assert len(here.serving) == 1
            await here.pass_time(1)
            assert statuses(await wire.until_closed()) == [408]

    run_on(loop, main())


def test_a_body_that_stops_is_let_go(loop: str) -> None:
    async def main() -> None:
        async with house() as here:
            wire = await here.connect()
            wire.send(BODY_TO_COME)
            await wait_for_async(lambda: here.guests and here.guests[0].told)
            await here.pass_time(BODY_SECONDS - 1)
            wire.send(b"w")
            await wait_for_async(lambda: here.guests[0].told == ["data", "data"])
            await here.pass_time(BODY_SECONDS - 1)
            assert here.guests[0].told == ["data", "data"]
            await here.pass_time(2)
            assert statuses(await wire.until_closed()) == [408]
            assert here.guests[0].told[-1] == "gone"

    run_on(loop, main())


def test_whoever_was_answered_gets_no_more_time_by_sending_on(loop: str) -> None:
    async def main() -> None:
        async with house(arrived=lambda guest: guest.visit.answer(413, [])) as here:
            wire = await here.connect()
            wire.send(BODY_TO_COME)
            assert await wire.answer() == (413, b"")
            await here.pass_time(BODY_SECONDS - 1)
            wire.send(b"w")
            await turns()
            await here.pass_time(2)
            assert await wire.until_closed() == b"", "and no second answer"

    run_on(loop, main())


def test_one_who_was_refused_and_does_not_leave_is_cut(loop: str) -> None:
    async def main() -> None:
        async with house() as here:
            wire = await here.connect()
            wire.send(b"nonsense")
            assert statuses(await wire.reader.read()) == [400]
            assert len(here.serving) == 1
            await here.pass_time(LEAVE_SECONDS + 1)
            await wait_for_async(lambda: not len(here.serving))
            wire.cut()

    run_on(loop, main())


def test_an_idle_connection_is_closed_and_a_waiting_one_is_not(loop: str) -> None:
    async def main() -> None:
        async with house(end=silent) as here:
            idle, busy = await here.connect(), await here.connect()
            busy.send(GET)
            await wait_for_async(lambda: here.guests)
            await here.pass_time(IDLE_SECONDS - 1)
            assert len(here.serving) == 2
            await here.pass_time(2)
            assert await idle.until_closed() == b""
            await here.pass_time(IDLE_SECONDS * 100)
            here.guests[0].visit.answer(200, [], b"late")
            assert await busy.answer() == (200, b"late")

    run_on(loop, main())


# -- bounds -----------------------------------------------------------------------------------------------------------


def test_a_head_may_have_so_many_bytes_and_no_more(loop: str) -> None:
    async def main() -> None:
        async with house() as here:
            room = MAX_HEAD_BYTES - len(LAST) + 4 - len(b"X: \r\n")
            for extra, status in ((0, 200), (1, 431)):
                head = LAST.replace(b"\r\n\r\n", b"\r\nX: " + b"x" * (room + extra) + b"\r\n\r\n")
                assert statuses(await here.talk(head)) == [status]
            assert statuses(await here.talk(b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 2_000_000)) == [431]

    run_on(loop, main())


def test_only_so_many_connections_are_taken(loop: str) -> None:
    async def main() -> None:
        async with house(limit=3) as here:
            wires = [await here.connect() for _ in range(3)]
            for wire in wires:
                wire.send(GET)
                assert await wire.answer() == (200, b"")
            assert statuses(await here.talk(b"")) == [503]
            wires.pop().cut()
            await wait_for_async(lambda: len(here.serving) == 2)
            assert statuses(await here.talk(LAST)) == [200]

    run_on(loop, main())


# -- the end ----------------------------------------------------------------------------------------------------------


def test_at_the_end_requests_under_way_are_answered_and_idle_connections_closed(loop: str) -> None:
    async def main() -> None:
        async with house(end=silent) as here:
            idle, busy, stuck = [await here.connect() for _ in range(3)]
            busy.send(GET)
            stuck.send(GET)
            await wait_for_async(lambda: len(here.guests) == 2)
            stopping = asyncio.ensure_future(here.serving.stop(0.3))
            assert await idle.until_closed() == b""
            here.guests[0].visit.answer(200, [], b"still")
            assert (await busy.until_closed()).endswith(b"still")
            await stopping
            assert not len(here.serving)
            assert await stuck.until_closed() == b""
            assert here.guests[1].told == ["end", "gone"]
            with pytest.raises(ConnectionError):
                await here.connect()

    run_on(loop, main())
