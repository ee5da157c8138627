"""Many connections at once: they cost little, they do not hinder others, and they all end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource

import pytest

from harness.waiting import wait_for_async
from harness.web import LOOPS, Curious, Guest, Wire, house, pool_to, run_on
from subluminal.http.limits import HEAD_SECONDS, IDLE_SECONDS

pytestmark = pytest.mark.parametrize("loop", LOOPS)
# Both ends of each connection are in this process: each takes two descriptors, some are needed for other things.
DESCRIPTORS = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
MANY = min(int(os.environ.get("SUB_HTTP_CROWD", "1000")), (DESCRIPTORS - 200) // 2)
LAST = b"GET /last HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"


async def connected(address: tuple[str, int], count: int) -> list[Wire]:
    """In groups, so that the queue of the listening socket holds them."""
    wires: list[Wire] = []
    while len(wires) < count:
        group = min(200, count - len(wires))
        wires += await asyncio.gather(*(Wire.to(address) for _ in range(group)))
    return wires


@pytest.mark.parametrize(("sent", "seconds"), [(b"", IDLE_SECONDS), (b"GET / HT", HEAD_SECONDS)])
def test_a_crowd_that_says_nothing_hinders_nobody_and_is_let_go(loop: str, sent: bytes, seconds: float) -> None:
    async def main() -> None:
        async with house() as here:
            wires = await connected(here.address, MANY)
            for wire in wires:
                wire.send(sent)
            await wait_for_async(lambda: len(here.serving) == MANY)
            assert b"200 OK" in await here.talk(LAST)
            await wait_for_async(lambda: len(here.serving) == MANY)
            await here.pass_time(seconds + 1)
            for wire in wires:
                received = await wire.until_closed()
                assert received.startswith(b"HTTP/1.1 408") if sent else received == b""
            await wait_for_async(lambda: len(here.serving) == 0)

    run_on(loop, main())


def test_a_crowd_of_streams_goes_through_a_pool_and_ends_with_its_clients(loop: str) -> None:
    """Each a connection of a client and one to the server behind: all dialled at once, none refused."""

    class Relay(Curious):
        def __init__(self, guest: Guest) -> None:
            super().__init__()
            self._visit = guest.visit

        def head(self, head: object) -> None:
            self._visit.begin(200, [])

        def data(self, data: bytes) -> None:
            self._visit.send(data)

    def stream(guest: Guest) -> None:
        guest.visit.begin(200, [])
        guest.visit.send(b"data: 1\n\n")

    async def main() -> None:
        count = MANY // 2
        async with contextlib.AsyncExitStack() as stack:
            server = await stack.enter_async_context(house(end=stream))
            pool = await stack.enter_async_context(pool_to(server.address))
            asked: dict[Guest, object] = {}

            def pass_on(guest: Guest) -> None:
                asked[guest] = pool.ask(b"GET", b"/", [(b"host", b"h")], b"", Relay(guest))

            front = await stack.enter_async_context(
                house(end=pass_on, gone=lambda guest: pool.give_up(asked.pop(guest)))  # type: ignore[arg-type]
            )
            wires = await connected(front.address, count)
            for wire in wires:
                wire.send(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
            for wire in wires:
                assert (await wire.until(b"1\n\n\r\n")).startswith(b"HTTP/1.1 200")
            assert len(pool) == count
            for wire in wires:
                wire.writer.close()
            await wait_for_async(lambda: len(pool) == 0 and len(server.serving) == 0 and not asked)

    run_on(loop, main())
