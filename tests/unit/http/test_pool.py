"""Connections to a server: bounded, used again only while they can be trusted, and never for a request sent twice."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from harness.ports import nobody_listens
from harness.waiting import wait_for_async
from harness.web import LOOPS, Clock, Curious, house, pool_to, run_on, script, silent, turns
from subluminal.http import pool as pool_module
from subluminal.http.limits import HIGH_WATER, POOL_IDLE_SECONDS
from subluminal.http.outbound import Outbound
from subluminal.http.pool import LOOKED_AT, Origin, Pool

pytestmark = pytest.mark.parametrize("loop", LOOPS)
HEADERS = [(b"host", b"h")]
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def ask(pool: Pool, target: bytes = b"/", body: bytes = b"", asker: Curious | None = None) -> Curious:
    asker = asker or Curious()
    pool.ask(b"POST" if body else b"GET", target, HEADERS, body, asker)
    return asker


def replying(*replies: bytes) -> Callable[[bytes, asyncio.StreamWriter], Coroutine[Any, Any, None]]:
    """These answers in turn, and the last one again and again."""
    left = list(replies)

    async def answer(head: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(left.pop(0) if len(left) > 1 else left[0])

    return answer


# -- answers ----------------------------------------------------------------------------------------------------------


def test_a_connection_is_used_again(loop: str) -> None:
    async def main() -> None:
        async with house() as here, pool_to(here.address) as pool:
            for number in range(5):
                asked = await ask(pool, b"/%d" % number, b"x" * number).finished()
                assert (asked.status, asked.content) == (200, b"x" * number)
            assert len(pool) == len(here.serving) == 1
            assert [guest.target for guest in here.guests] == [b"/%d" % number for number in range(5)]

    run_on(loop, main())


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_answers_in_any_pieces_are_the_same(loop: str, size: int) -> None:
    replies = (
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nLink: x\r\n\r\n" + OK,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;a\r\no\r\n1\r\nk\r\n0\r\nT: 1\r\n\r\n",
        b"HTTP/1.1 204 No Content\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\nok",
    )

    async def main() -> None:
        left = list(replies)

        async def answer(head: bytes, writer: asyncio.StreamWriter) -> None:
            reply = left.pop(0)
            for at in range(0, len(reply), size):
                writer.write(reply[at : at + size])
                await asyncio.sleep(0)
            if not left:
                writer.close()

        async with script(answer) as server, pool_to(server.address) as pool:
            seen = [await ask(pool).finished() for _ in replies]
            assert [(asked.status, asked.content) for asked in seen] == [
                (200, b"ok"),
                (200, b"ok"),
                (204, b""),
                (200, b"ok"),
            ]
            assert server.connections == 1

    run_on(loop, main())


def test_the_answer_to_head_has_no_content(loop: str) -> None:
    async def main() -> None:
        async with (
            script(replying(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n")) as server,
            pool_to(server.address) as pool,
        ):
            for _ in range(2):
                asker = Curious()
                pool.ask(b"HEAD", b"/", HEADERS, b"", asker)
                await asker.finished()
                assert asker.told == ["head", "end"]
            assert server.connections == 1

    run_on(loop, main())


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        (b"", "without an answer"),
        (b"HTTP/1.1 200 OK\r\nConte", "without an answer"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel", "in the middle"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel", "in the middle"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", "in the middle"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "not understood: malformed chunk"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", "not understood"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", "not understood"),
        (b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "not understood"),
        (b"HTTP/1.1 200 OK\nContent-Length: 2\n\nok", "not understood"),
        (b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", "changed the protocol"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"x" * 100_000, "too large"),
        (b"SSH-2.0-OpenSSH\r\n\r\n", "not understood"),
    ],
)
def test_an_answer_that_is_none_is_a_clause(loop: str, reply: bytes, why: str) -> None:
    async def answer(head: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(reply)
        writer.close()

    async def main() -> None:
        async with script(answer) as server, pool_to(server.address) as pool:
            asked = await ask(pool, b"/secret").finished()
            assert why in asked.why and "secret" not in asked.why
            assert asked.told.count("failed") == 1 and "end" not in asked.told
            assert server.connections == 1, "nobody sends a request twice"
            await wait_for_async(lambda: len(pool) == 0)

    run_on(loop, main())


def test_an_answer_until_the_end_that_ends_with_a_reset_is_not_whole(loop: str) -> None:
    async def main() -> None:
        async def answer(head: bytes, writer: asyncio.StreamWriter) -> None:
            writer.write(b"HTTP/1.1 200 OK\r\n\r\nhalf")
            await wait_for_async(lambda: asked.content == b"half")
            sock = writer.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            writer.transport.abort()

        async with script(answer) as server, pool_to(server.address) as pool:
            asked = ask(pool)
            await asked.finished()
            assert "in the middle" in asked.why

    run_on(loop, main())


# -- re-entrancy ------------------------------------------------------------------------------------------------------


def test_whoever_asks_again_inside_its_end_gets_the_same_connection(loop: str) -> None:
    async def main() -> None:
        async with house() as here, pool_to(here.address, limit=1) as pool:
            second = Curious()
            first = Curious({"end": lambda _: ask(pool, b"/2", asker=second)})
            ask(pool, b"/1", asker=first)
            await second.finished()
            assert second.status == 200 and len(here.serving) == 1

    run_on(loop, main())


TOLD = {
    OK: ["head", "data", "end"],
    b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nok": ["head", "data"],
    b"HTTP/1.1 204 No\r\n\r\n": ["head", "end"],
    b"x\n": ["failed"],
}


@pytest.mark.parametrize("moment", ["head", "data", "end", "failed"])
@pytest.mark.parametrize("reply", TOLD)
def test_giving_up_inside_any_call_is_the_last_one(loop: str, moment: str, reply: bytes) -> None:
    async def main() -> None:
        async with script(replying(reply)) as server, pool_to(server.address) as pool:
            handles: list[Any] = []
            asker = Curious({moment: lambda _: pool.give_up(handles[0])})
            handles.append(pool.ask(b"GET", b"/", HEADERS, b"", asker))
            await wait_for_async(lambda: asker.told)
            await turns()
            told = TOLD[reply]
            assert asker.told == told[: told.index(moment) + 1] if moment in told else told
            asker = Curious()
            pool.ask(b"GET", b"/", HEADERS, b"", asker)
            await wait_for_async(lambda: asker.told == told)

    run_on(loop, main())


def test_giving_up_late_harms_nobody_else(loop: str) -> None:
    async def main() -> None:
        async with house(end=silent) as here, pool_to(here.address) as pool:
            first, second = Curious(), Curious()
            handle = pool.ask(b"GET", b"/1", HEADERS, b"", first)
            await wait_for_async(lambda: here.guests)
            here.guests[0].visit.answer(200, [])
            await first.finished()
            pool.ask(b"GET", b"/2", HEADERS, b"", second)
            await wait_for_async(lambda: len(here.guests) == 2)
            pool.give_up(handle)
            here.guests[1].visit.answer(200, [], b"fine")
            assert (await second.finished()).content == b"fine"
            assert len(here.serving) == 1

    run_on(loop, main())


# -- which connections are used ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "reply",
    [
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
        OK + b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison",
        OK + b"x",
    ],
)
def test_a_connection_that_cannot_be_trusted_is_not_used_again(loop: str, reply: bytes) -> None:
    async def main() -> None:
        async with script(replying(reply)) as server, pool_to(server.address) as pool:
            for count in (1, 2):
                asked = await ask(pool).finished()
                assert asked.content == b"ok" and server.connections == count

    run_on(loop, main())


def test_what_a_server_says_unasked_is_no_answer(loop: str) -> None:
    async def main() -> None:
        writers: list[asyncio.StreamWriter] = []

        async def answer(head: bytes, writer: asyncio.StreamWriter) -> None:
            writers.append(writer)
            writer.write(OK)

        async with script(answer) as server, pool_to(server.address) as pool:
            await ask(pool).finished()
            writers[0].write(OK.replace(b"ok", b"no"))
            assert (await ask(pool).finished()).content == b"ok"
            assert server.connections == 2

    run_on(loop, main())


def test_a_connection_that_its_server_has_closed_is_seen_before_it_is_used(loop: str) -> None:
    """In the same turn of the loop in which the end has arrived but was not read: only the kernel knows."""

    async def main() -> None:
        listening = socket.create_server(("127.0.0.1", 0))
        listening.setblocking(False)
        running = asyncio.get_running_loop()
        async with pool_to(listening.getsockname()) as pool:
            first = ask(pool)
            server, _ = await running.sock_accept(listening)
            await running.sock_recv(server, 1000)
            await running.sock_sendall(server, OK)
            await first.finished()
            server.close()  # and without a turn of the loop:
            second = ask(pool)
            server, _ = await running.sock_accept(listening)
            assert b"GET" in await running.sock_recv(server, 1000)
            await running.sock_sendall(server, OK)
            assert (await second.finished()).content == b"ok"
            server.close()
        listening.close()

    run_on(loop, main())


def test_of_many_connections_those_that_their_server_has_closed_are_seen_before_they_are_used(loop: str) -> None:
    """Many are looked at together, in the same turn of the loop in which the ends have arrived but were not read."""

    async def main() -> None:
        listening = socket.create_server(("127.0.0.1", 0))
        listening.setblocking(False)
        running = asyncio.get_running_loop()
        many = 3 * LOOKED_AT

        async def accepted() -> socket.socket:
            return (await running.sock_accept(listening))[0]

        async def answer(server: socket.socket) -> None:
            assert b"GET" in await running.sock_recv(server, 1000)
            await running.sock_sendall(server, OK)

        async def answered(servers: list[socket.socket], asked: list[Curious]) -> None:
            for server in servers:
                await answer(server)
            for asker in asked:
                assert (await asker.finished()).content == b"ok"

        async with pool_to(listening.getsockname()) as pool:
            asked = [ask(pool) for _ in range(many)]
            servers = [await accepted() for _ in range(many)]
            await answered(servers, asked)
            for server in servers[::3]:
                server.close()  # and without a turn of the loop:
            asked = [ask(pool) for _ in range(many)]
            servers = [server for server in servers if server.fileno() >= 0]
            servers += [await accepted() for _ in range(many - len(servers))]
            await answered(servers, asked)
            assert len(pool) == many
            for server in servers:
                server.close()
        listening.close()

    run_on(loop, main())


def test_idle_connections_are_given_up_before_servers_do(loop: str) -> None:
    async def main() -> None:
        clock = Clock()
        async with house() as here, pool_to(here.address, clock=clock) as pool:
            await asyncio.gather(*(ask(pool).finished() for _ in range(3)))
            assert len(pool) == 3
            clock.now += POOL_IDLE_SECONDS - 1
            await ask(pool).finished()
            pool.let_go_idle()
            assert len(pool) == 3
            clock.now += 2
            pool.let_go_idle()
            assert len(pool) == 1, "the one that was used lately"
            await wait_for_async(lambda: len(here.serving) == 1)

    run_on(loop, main())


def test_a_request_that_was_answered_before_it_was_sent_ends_its_connection(loop: str) -> None:
    """What is left of it would be read as the next request."""

    async def main() -> None:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(OK)

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        async with pool_to(server.sockets[0].getsockname()) as pool:
            large = await ask(pool, body=b"x" * 50_000_000).finished()
            assert large.content == b"ok"
            await wait_for_async(lambda: len(pool) == 0)

            started: list[Outbound] = []
            slow = Curious()
            pool.ask(b"POST", b"/", HEADERS, b"half", slow, started.append, 8)
            await slow.finished()
            started[0].send(b"late")
            await wait_for_async(lambda: len(pool) == 0)
        server.close()

    run_on(loop, main())


def test_content_may_follow_its_head(loop: str) -> None:
    async def main() -> None:
        async with house() as here, pool_to(here.address) as pool:
            for _ in range(2):
                started: list[Outbound] = []
                asker = Curious()
                pool.ask(b"POST", b"/", HEADERS, b"abc", asker, started.append, 9)
                await wait_for_async(lambda s=started: s)
                started[0].send(b"def")
                await turns()
                started[0].send(b"ghi")
                started[0].send(b"more than was announced")
                assert (await asker.finished()).content == b"abcdefghi"
            assert len(here.serving) == 1

    run_on(loop, main())


# -- bounds -----------------------------------------------------------------------------------------------------------


def test_requests_beyond_the_limit_wait_and_then_are_too_many(loop: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_module, "POOL_WAITING", 3)

    async def main() -> None:
        async with house(end=silent) as here, pool_to(here.address, limit=2) as pool:
            asked = [ask(pool, b"/%d" % number) for number in range(6)]
            assert asked[5].why == "too many requests wait for it"
            for number in range(5):
                await wait_for_async(lambda n=number: len(here.guests) > n)
                assert len(here.serving) <= 2
                here.guests[number].visit.answer(200, [], here.guests[number].target)
            for number in range(5):
                assert (await asked[number].finished()).content == b"/%d" % number

    run_on(loop, main())


def test_a_place_that_is_given_up_goes_to_whoever_waits(loop: str) -> None:
    async def main() -> None:
        async with house(end=silent) as here, pool_to(here.address, limit=1) as pool:
            dialled, queued, waiting, last = Curious(), Curious(), Curious(), Curious()
            first = pool.ask(b"GET", b"/dialled", HEADERS, b"", dialled)
            second = pool.ask(b"GET", b"/queued", HEADERS, b"", queued)
            third = pool.ask(b"GET", b"/waiting", HEADERS, b"", waiting)
            pool.ask(b"GET", b"/last", HEADERS, b"", last)
            pool.give_up(second)
            pool.give_up(first)  # while it is dialled
            await wait_for_async(lambda: here.guests)
            assert here.guests[0].target == b"/waiting"
            pool.give_up(third)  # while it is answered
            await wait_for_async(lambda: len(here.guests) == 2)
            here.guests[1].visit.answer(200, [])
            await last.finished()
            await wait_for_async(lambda: here.guests[0].told[-1] == "gone")
            assert dialled.told == queued.told == waiting.told == []
            assert [guest.target for guest in here.guests] == [b"/waiting", b"/last"]

    run_on(loop, main())


def test_only_so_many_are_dialled_at_once(loop: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_module, "POOL_DIALLING", 2)

    async def main() -> None:
        async with house() as here, pool_to(here.address) as pool:
            asked = [ask(pool) for _ in range(20)]
            for each in asked:
                assert (await each.finished()).status == 200

    run_on(loop, main())


def test_closing_tells_everybody(loop: str) -> None:
    async def main() -> None:
        async with house(end=silent) as here:
            pool = Pool(Origin("http", *here.address), limit=2)
            running, queued = ask(pool), ask(pool)
            await wait_for_async(lambda: len(here.guests) == 2)
            dialled_or_queued = ask(pool)
            await pool.close()
            for asked in (running, queued, dialled_or_queued, ask(pool)):
                assert asked.why == "its connections were closed here" and asked.told == ["failed"]
            await wait_for_async(lambda: not len(here.serving))

    run_on(loop, main())


# -- no connection ----------------------------------------------------------------------------------------------------


def test_a_server_that_is_not_there_is_a_clause_for_all_who_wait(loop: str) -> None:
    async def main() -> None:
        with nobody_listens() as port:
            async with pool_to(("127.0.0.1", port), limit=1) as pool:
                for asked in [ask(pool) for _ in range(3)]:
                    await asked.finished()
                    assert asked.why == f"no connection to http://127.0.0.1:{port}: connection refused"
            async with pool_to(("localhost", port)) as pool:
                asked = await ask(pool).finished()
                assert asked.why.startswith(f"no connection to http://localhost:{port}: ")

    run_on(loop, main())


@pytest.mark.parametrize("host", ["a..b", "x" * 64 + ".test", "nothing.invalid"])
def test_a_name_that_leads_nowhere_is_a_clause(loop: str, host: str) -> None:
    async def main() -> None:
        async with pool_to((host, 80)) as pool:
            asked = await ask(pool).finished()
            assert asked.why.startswith(f"no connection to http://{host}: ")

    run_on(loop, main())


def test_a_server_that_does_not_take_connections_is_given_up_in_time(loop: str) -> None:
    async def main() -> None:
        # With a queue for one that is taken already, the kernel leaves further connections unanswered.
        with socket.socket() as listening:
            listening.bind(("127.0.0.1", 0))
            listening.listen(0)
            taken = [socket.socket() for _ in range(4)]
            for each in taken:
                each.setblocking(False)
                each.connect_ex(listening.getsockname())
            async with pool_to(listening.getsockname(), connect_seconds=0.1) as pool:
                asked = await ask(pool).finished()
                assert asked.why.endswith("within 0.1 s")
            for each in taken:
                each.close()

    run_on(loop, main())


def test_a_server_that_closes_at_once_is_a_clause(loop: str) -> None:
    async def main() -> None:
        server = await asyncio.start_server(lambda _, writer: writer.transport.abort(), "127.0.0.1", 0)
        async with pool_to(server.sockets[0].getsockname()) as pool:
            for _ in range(20):
                asked = await ask(pool).finished()
                assert "closed the connection" in asked.why
            await wait_for_async(lambda: len(pool) == 0)
        server.close()

    run_on(loop, main())


@pytest.mark.skipif(not socket.has_ipv6, reason="no IPv6 here")
def test_ipv6(loop: str) -> None:
    async def main() -> None:
        try:
            server = await asyncio.start_server(serve_ok, "::1", 0)
        except OSError:
            pytest.skip("no IPv6 on loopback")
        async with pool_to(("::1", server.sockets[0].getsockname()[1])) as pool:
            assert pool.origin.authority.startswith(b"[::1]:")
            assert (await ask(pool).finished()).content == b"ok"
        server.close()

    run_on(loop, main())


async def serve_ok(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.write(OK)


# -- back-pressure ----------------------------------------------------------------------------------------------------


def test_an_answer_is_not_read_while_its_asker_pauses(loop: str) -> None:
    async def main() -> None:
        size = 8 * 2**20
        async with (
            house(end=lambda guest: guest.visit.answer(200, [], b"x" * size)) as here,
            pool_to(here.address) as pool,
        ):
            started: list[Outbound] = []
            asker = Curious({"data": lambda _: started[0].pause()})
            pool.ask(b"GET", b"/", HEADERS, b"", asker, started.append)
            await wait_for_async(lambda: asker.content)
            await turns()
            assert len(asker.content) < size / 2
            while not asker.done:
                started[0].resume()
                await asyncio.sleep(0)
            assert len(asker.content) == size
            assert (await ask(pool).finished()).status == 200 and len(here.serving) == 1

    run_on(loop, main())


def test_a_server_that_does_not_read_is_full(loop: str) -> None:
    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            async with pool_to(listening.getsockname()) as pool:
                started: list[Outbound] = []
                asker = Curious()
                pool.ask(b"POST", b"/", HEADERS, b"", asker, started.append, 10**9)
                await wait_for_async(lambda: started)
                while not started[0].is_full:
                    started[0].send(b"x" * HIGH_WATER)
                    await asyncio.sleep(0)
                assert asker.told == ["full"]
                server, _ = listening.accept()
                server.close()
                await asker.finished()
                assert asker.told[-1] == "failed"

    run_on(loop, main())


def test_a_request_byte_by_byte(loop: str) -> None:
    async def main() -> None:
        received: list[bytes] = []

        async def answer(head: bytes, writer: asyncio.StreamWriter) -> None:
            received.append(head)
            writer.write(OK)

        async with script(answer) as server, pool_to(server.address) as pool:
            await ask(pool, b"/a?b=%6d", b"hello").finished()
            await ask(pool, b"/c").finished()
            assert received == [
                b"POST /a?b=%6d HTTP/1.1\r\nhost: h\r\ncontent-length: 5\r\n\r\n",
                b"GET /c HTTP/1.1\r\nhost: h\r\n\r\n",
            ]

    run_on(loop, main())
