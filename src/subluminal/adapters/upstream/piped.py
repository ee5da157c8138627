"""A server process on a loop: lines in, lines out, ended surely. For doors that run one."""

from __future__ import annotations

import asyncio
import os
import select
import signal
from collections.abc import Callable, Mapping
from typing import Any, cast

from subluminal.adapters.upstream.process import EOF_GRACE_S, TERM_GRACE_S, Upstream, spawn
from subluminal.http.loop import PipeEnd

# What a server may leave unread before its clients are told to wait.
MAX_UNREAD_BYTES = 8 * 1024 * 1024
# How often it is asked whether it still runs.
DEATH_SECONDS = 0.5
_PIECE = 4096
_LINE_ENDS = bytes.maketrans(b"\r\n", b"  ")


class PipedServer:
    """`line(bytes)` and `piece(bytes, last)` are told what it says: whole lines, and those above `limit` in pieces.
    `ended(status)` is told once."""

    def __init__(
        self,
        limit: int,
        line: Callable[[bytes], None],
        piece: Callable[[bytes, bool], None],
        ended: Callable[[int | None], None],
    ) -> None:
        self._limit = limit
        self._line = line
        self._piece = piece
        self._ended = ended
        self._upstream: Upstream | None = None
        self._stdin: Any = None
        self._stdout: Any = None
        self._stderr: Any = None
        self._part = b""
        self._large = False
        self._over = False
        self._waiting: list[bytes] = []  # what is to be written once it runs
        self._waiting_bytes = 0
        self._pausing: set[object] = set()
        self._watching: asyncio.Task[None] | None = None

    async def start(self, command: list[str], environ: Mapping[str, str]) -> None:
        """Raises OSError when it cannot be started."""
        loop = asyncio.get_running_loop()
        upstream = await loop.run_in_executor(None, spawn, command, dict(environ))
        self._upstream = upstream
        os.set_inheritable(upstream.stdin, False)
        stdin: Any
        stdin, _ = await loop.connect_write_pipe(lambda: _Writing(), PipeEnd(upstream.stdin))
        self._stdout, _ = await loop.connect_read_pipe(
            lambda: _Reading(self._feed, self._eof), PipeEnd(upstream.stdout)
        )
        self._stderr, _ = await loop.connect_read_pipe(
            lambda: _Reading(_to_stderr, lambda: None), PipeEnd(upstream.stderr)
        )
        self._stdin = stdin  # only now: what waits is written before anything else
        if self._over:  # nobody wanted it any more while it was started
            await self._end(0.0)
            return
        for data in self._waiting:
            self._stdin.write(data)
        self._waiting = []
        self._waiting_bytes = 0
        self._watching = loop.create_task(self._watch(upstream))

    async def _watch(self, upstream: Upstream) -> None:
        """A server that dies while a child of its own holds its stdout makes no end of file."""
        while upstream.poll() is None:
            await asyncio.sleep(DEATH_SECONDS)
        await asyncio.sleep(DEATH_SECONDS)  # what it said last is read first
        await self.end(0.0)

    @property
    def is_full(self) -> bool:
        unread = self._waiting_bytes if self._stdin is None else self._stdin.get_write_buffer_size()
        return bool(unread > MAX_UNREAD_BYTES)

    def send(self, message: bytes) -> None:
        """One message as one line: white space between its parts may have been line ends."""
        self._write(message.translate(_LINE_ENDS) + b"\n")

    def send_piece(self, piece: bytes) -> None:
        self._write(piece.translate(_LINE_ENDS))

    def end_line(self) -> None:
        self._write(b"\n")

    def _write(self, data: bytes) -> None:
        if self._over:
            return
        if self._stdin is None:
            self._waiting.append(data)
            self._waiting_bytes += len(data)
        else:
            self._stdin.write(data)

    def pause(self, reader: object) -> None:
        """This reader takes no more for now. Nothing is read until none does."""
        self._pausing.add(reader)
        if self._stdout is not None and not self._over:
            self._stdout.pause_reading()

    def resume(self, reader: object) -> None:
        """Also for one that has left."""
        if reader in self._pausing:
            self._pausing.discard(reader)
            if not self._pausing and self._stdout is not None and not self._over:
                self._stdout.resume_reading()

    # -- what it says ---------------------------------------------------------------------------------------------

    def _feed(self, data: bytes) -> None:
        if self._large:
            end = data.find(b"\n")
            if end < 0:
                self._piece(data, False)
                return
            self._large = False
            self._piece(data[:end], True)
            data = data[end + 1 :]
        *lines, self._part = (self._part + data).split(b"\n")
        for line in lines:
            if len(line) > self._limit:
                self._piece(line, True)
            elif line.strip():
                self._line(line.removesuffix(b"\r"))
        if len(self._part) > self._limit:
            part, self._part = self._part, b""
            self._large = True
            self._piece(part, False)

    def _eof(self) -> None:
        if self._part.strip() and not self._large:
            part, self._part = self._part, b""
            self._line(part)
        asyncio.get_running_loop().create_task(self.end(0.05))

    # -- the end --------------------------------------------------------------------------------------------------

    async def end(self, grace_s: float = EOF_GRACE_S) -> None:
        """Its stdin is closed; then it is asked, and then made to end. Nothing of its group stays behind."""
        if self._over:
            return
        self._over = True
        self._waiting = []
        if self._stderr is not None:  # else it is being started, which ends it as soon as it runs
            await self._end(grace_s)

    async def _end(self, grace_s: float) -> None:
        upstream = self._upstream
        assert upstream is not None
        if self._stdin.get_write_buffer_size():  # it does not read: what is left would keep its stdin open
            self._stdin.abort()
        else:
            self._stdin.close()
        status = await _status(upstream, grace_s)
        for number in (signal.SIGTERM, signal.SIGKILL):
            if status is None or upstream.signal(0):
                upstream.signal(number)
                status = await _status(upstream, TERM_GRACE_S)
        for pipe in (self._stdin, self._stdout, self._stderr):
            pipe.close()
        upstream.release_watchdog()
        self._ended(upstream.status)


async def _status(upstream: Upstream, seconds: float) -> int | None:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while upstream.poll() is None and loop.time() < deadline:
        await asyncio.sleep(0.01)
    return upstream.status


class _Reading(asyncio.Protocol):
    def __init__(self, feed: Callable[[bytes], None], eof: Callable[[], None]) -> None:
        self._feed = feed
        self._eof = eof

    def data_received(self, data: bytes) -> None:
        self._feed(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._eof()


class _Writing(asyncio.BaseProtocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast(asyncio.WriteTransport, transport).set_write_buffer_limits(high=MAX_UNREAD_BYTES)

    def pause_writing(self) -> None:
        """Asked for by `is_full`."""

    def resume_writing(self) -> None: ...


def _to_stderr(data: bytes) -> None:
    """Whoever started us may not read it, and nobody here waits for that: what is not taken is lost. Small pieces after
    a poll never block."""
    poller = select.poll()
    poller.register(2, select.POLLOUT)
    for start in range(0, len(data), _PIECE):
        try:
            if not poller.poll(0):
                return
            os.write(2, data[start : start + _PIECE])
        except OSError:
            return
