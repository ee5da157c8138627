"""The two pipes to the relay: lines of the client in, lines of the server out. Nothing here ever blocks the loop."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable

from subluminal.adapters.upstream.remote.held import ONE_LINE, Held, Message

READ_BYTES = 64 * 1024


class RelayGone(Exception):
    """Nobody reads what the server says any more."""


class LineReader:
    """The client's messages, one by one; a client is read only as fast as its messages are taken."""

    def __init__(self, fd: int, max_inspect: int, max_message: int) -> None:
        self._fd = fd
        self._max_inspect = max_inspect
        self._max_message = max_message
        self._loop = asyncio.get_running_loop()
        self._lines: deque[Message] = deque()
        self._part = b""
        self._held: Held | None = None
        self._ended = False
        os.set_blocking(fd, False)

    async def next_line(self) -> Message | None:
        """None: there are no more. A last line counts without its newline."""
        while not self._lines:
            if self._ended:
                return None
            data = await self._read()
            if data:
                self._feed(data)
            else:
                self._ended = True
                self._end_line(b"")
        return self._lines.popleft()

    async def _read(self) -> bytes:
        while True:
            try:
                return os.read(self._fd, READ_BYTES)
            except BlockingIOError:
                await ready(self._loop.add_reader, self._loop.remove_reader, self._fd)
            except OSError:
                return b""

    def _feed(self, data: bytes) -> None:
        *whole, rest = data.split(b"\n")
        for piece in whole:
            self._end_line(piece)
        if self._held is not None:
            self._held.feed(rest)
            return
        self._part += rest
        if len(self._part) > self._max_inspect:
            self._held = Held(self._max_message)
            self._held.feed(self._part)
            self._part = b""

    def _end_line(self, piece: bytes) -> None:
        held, self._held = self._held, None
        if held is not None:
            held.feed(piece)
            held.finish()
            self._lines.append(held)
            return
        line, self._part = self._part + piece, b""
        if line.strip():
            self._lines.append(line)


class LineWriter:
    """Whole lines, one after another, as fast as they are taken. Raises RelayGone once nobody takes them."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._loop = asyncio.get_running_loop()
        self._lock = asyncio.Lock()
        os.set_blocking(fd, False)

    async def write_line(self, message: Message) -> None:
        async with self._lock:
            if isinstance(message, Held):
                for piece in message.pieces():
                    await self._write(piece)
                await self._write(b"\n")
            else:
                await self._write(message.translate(ONE_LINE) + b"\n")

    async def _write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            try:
                view = view[os.write(self._fd, view) :]
            except BlockingIOError:
                await ready(self._loop.add_writer, self._loop.remove_writer, self._fd)
            except OSError:
                raise RelayGone from None


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


async def ready(add: Callable[..., object], remove: Callable[[int], object], fd: int) -> None:
    """Until the descriptor can be read, or written."""
    waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    add(fd, _wake, waiter)
    try:
        await waiter
    finally:
        remove(fd)
