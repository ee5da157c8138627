"""HTTP in tests: both event loops, servers that do what a test says, clients that send what a test wrote."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import uvloop

from harness.waiting import GENEROUS_S, wait_for_async
from subluminal.http.heads import Headers, ResponseHead
from subluminal.http.inbound import Visit
from subluminal.http.limits import MAX_CONNECTIONS
from subluminal.http.pool import Pool
from subluminal.http.serving import Serving
from subluminal.http.urls import Origin

LOOPS = {"asyncio": asyncio.run, "uvloop": uvloop.run}


def run_on(loop: str, main: Coroutine[Any, Any, Any]) -> Any:
    return LOOPS[loop](asyncio.wait_for(main, GENEROUS_S * 3))


async def turns(count: int = 100) -> None:
    """Turns of the loop: what was sent on loopback before is read by then, for a test that nothing came of it."""
    for _ in range(count):
        await asyncio.sleep(0)


class Clock:
    """Time that passes when a test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Guest:
    """A listener that keeps what it is told, and answers when the request is whole (or as `on` says)."""

    def __init__(self, visit: Visit, on: dict[str, Callable[[Guest], None]]) -> None:
        self.visit = visit
        self.method = visit.head.method
        self.target = visit.head.target
        self.headers = visit.head.headers
        self.told: list[str] = []
        self.content = b""
        self._on = on

    def data(self, data: bytes) -> None:
        self.content += data
        self._tell("data")

    def end(self) -> None:
        self._tell("end")

    def gone(self) -> None:
        self._tell("gone")

    def full(self) -> None:
        self._tell("full")

    def room(self) -> None:
        self._tell("room")

    def _tell(self, what: str) -> None:
        self.told.append(what)
        if what in self._on:
            self._on[what](self)


def echo(guest: Guest) -> None:
    guest.visit.answer(200, [(b"x-target", guest.target)], guest.content)


def silent(guest: Guest) -> None:
    pass


class House:
    """A `Serving` whose guests are kept. `arrived` may answer a guest before it listens."""

    def __init__(self, serving: Serving, guests: list[Guest], address: tuple[str, int], clock: Clock) -> None:
        self.serving = serving
        self.guests = guests
        self.address = address
        self.clock = clock

    async def connect(self) -> Wire:
        return await Wire.to(self.address)

    async def talk(self, sent: bytes, *, shut: bool = False) -> bytes:
        """Everything that comes back for these bytes until the connection ends."""
        wire = await self.connect()
        wire.send(sent)
        if shut:
            wire.writer.write_eof()
        return await wire.until_closed()

    async def pass_time(self, seconds: float) -> None:
        self.clock.now += seconds
        self.serving.let_go_overdue()


@contextlib.asynccontextmanager
async def house(
    limit: int = MAX_CONNECTIONS, arrived: Callable[[Guest], None] | None = None, **on: Callable[[Guest], None]
) -> AsyncIterator[House]:
    """Told by name what to do when a guest is told something; by default its content is echoed at its end."""
    guests: list[Guest] = []
    on.setdefault("end", echo)

    def arrive(visit: Visit) -> None:
        guest = Guest(visit, on)
        guests.append(guest)
        if arrived is not None:
            arrived(guest)
        if not visit.over:
            visit.listen(guest)

    clock = Clock()
    serving = Serving(arrive, limit, clock)
    address = await serving.listen("127.0.0.1", 0)
    try:
        yield House(serving, guests, address, clock)
    finally:
        await serving.stop(0)


class Wire:
    """A client's connection, byte by byte."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def to(cls, address: tuple[str, int]) -> Wire:
        return cls(*await asyncio.open_connection(*address, limit=2**24))

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def read(self, size: int) -> bytes:
        return await asyncio.wait_for(self.reader.readexactly(size), GENEROUS_S)

    async def until(self, end: bytes) -> bytes:
        return await asyncio.wait_for(self.reader.readuntil(end), GENEROUS_S)

    async def answer(self) -> tuple[int, bytes]:
        """One answer that states its length: status and content."""
        head = (await self.until(b"\r\n\r\n")).lower()
        length = head.partition(b"content-length: ")[2].partition(b"\r\n")[0]
        return int(head.split()[1]), await self.read(int(length or b"0"))

    async def until_closed(self) -> bytes:
        """A reset counts as an end: what came before it is what was received."""
        received = b""
        with contextlib.suppress(ConnectionError):
            while piece := await asyncio.wait_for(self.reader.read(65536), GENEROUS_S):
                received += piece
        self.writer.close()
        return received

    def cut(self) -> None:
        self.writer.transport.abort()


class Curious:
    """An asker that keeps what it is told."""

    def __init__(self, on: dict[str, Callable[[Curious], None]] | None = None) -> None:
        self.told: list[str] = []
        self.status = 0
        self.headers: Headers = []
        self.content = b""
        self.why = ""
        self._on = on or {}

    @property
    def done(self) -> bool:
        return bool(self.why) or "end" in self.told

    async def finished(self) -> Curious:
        await wait_for_async(lambda: self.done, what="the end of an answer")
        return self

    def head(self, head: ResponseHead) -> None:
        self.status = head.status
        self.headers = head.headers
        self._tell("head")

    def data(self, data: bytes) -> None:
        self.content += data
        self._tell("data")

    def end(self) -> None:
        self._tell("end")

    def failed(self, why: str) -> None:
        self.why = why
        self._tell("failed")

    def full(self) -> None:
        self._tell("full")

    def room(self) -> None:
        self._tell("room")

    def _tell(self, what: str) -> None:
        self.told.append(what)
        if what in self._on:
            self._on[what](self)


@contextlib.asynccontextmanager
async def pool_to(address: tuple[str, int], scheme: str = "http", **options: Any) -> AsyncIterator[Pool]:
    pool = Pool(Origin(scheme, *address), **options)
    try:
        yield pool
    finally:
        await pool.close()


class Script:
    """A server that reads request after request and answers as a test says; the answer may close the connection."""

    def __init__(self, answer: Callable[[bytes, asyncio.StreamWriter], Coroutine[Any, Any, None]]) -> None:
        self._answer = answer
        self.heads: list[bytes] = []
        self.connections = 0
        self.closed = 0
        self.address = ("", 0)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                self.heads.append(head)
                length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
                await reader.readexactly(int(length or b"0"))
                await self._answer(head, writer)
                if writer.is_closing():
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            self.closed += 1
        finally:
            writer.close()


@contextlib.asynccontextmanager
async def script(
    answer: Callable[[bytes, asyncio.StreamWriter], Coroutine[Any, Any, None]], **options: Any
) -> AsyncIterator[Script]:
    scripted = Script(answer)
    server = await asyncio.start_server(scripted._serve, "127.0.0.1", 0, **options)
    scripted.address = server.sockets[0].getsockname()[:2]
    try:
        yield scripted
    finally:
        server.close()
