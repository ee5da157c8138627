"""One request's answer as it comes: its head, then its content in pieces, taken only as fast as the client takes it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

from subluminal.adapters.upstream.remote.faults import Fault, NoAnswer
from subluminal.adapters.upstream.remote.held import Held, Message
from subluminal.adapters.upstream.remote.limits import ANSWER_HIGH_WATER, STREAM_END_SECONDS
from subluminal.http.heads import Headers, HttpFault, ResponseHead, media_type, single
from subluminal.http.outbound import Outbound
from subluminal.http.pool import Pool


class Answer:
    """An `Asker` of the pool. `close` at any time: nobody wants the rest. `started` is told once it is being sent."""

    def __init__(self, pool: Pool, started: Callable[[], None] | None = None) -> None:
        self._pool = pool
        self._loop = asyncio.get_running_loop()
        self._asked: Any = None
        self._outbound: Outbound | None = None
        self._pieces: deque[bytes] = deque()
        self._size = 0
        self._head: ResponseHead | None = None
        self._ended = False
        self._fault: str | None = None
        self._full = False
        self._closed = False
        self._waiter: asyncio.Future[None] | None = None
        self._started = started

    async def ask(self, method: bytes, target: bytes, headers: Headers, body: Message) -> Answer:
        """Send the request and wait for the head of its answer."""
        if isinstance(body, Held):
            await self._upload(method, target, headers, body)
        else:
            self._asked = self._pool.ask(method, target, headers, body, self, self._begun)
        while self._head is None:
            self._raise_fault()
            await self._change()
        return self

    @property
    def status(self) -> int:
        assert self._head is not None
        return self._head.status

    @property
    def headers(self) -> Headers:
        assert self._head is not None
        return self._head.headers

    def header(self, name: bytes) -> bytes | None:
        try:
            return single(self.headers, name)
        except HttpFault as fault:
            raise Fault(f"its answer is not understood: {fault.why}") from None

    @property
    def media_type(self) -> bytes:
        return media_type(self.header(b"content-type"))

    @property
    def is_encoded(self) -> bool:
        """Compressed, though we had asked for it plain: nobody could look into it."""
        return (self.header(b"content-encoding") or b"identity").strip(b" \t").lower() != b"identity"

    async def next_piece(self) -> bytes:
        """Empty at the end."""
        while not self._pieces:
            if self._ended:
                return b""
            self._raise_fault()
            await self._change()
        piece = self._pieces.popleft()
        self._size -= len(piece)
        if self._size <= ANSWER_HIGH_WATER and self._outbound is not None and not self._ended:
            self._outbound.resume()
        return piece

    async def first_bytes(self, limit: int) -> bytes:
        """All of a small body; of a larger one nothing, for it is not what is looked for."""
        found = b""
        while piece := await self.next_piece():
            found += piece
            if len(found) > limit:
                self.close()
                return b""
        return found

    def close(self) -> None:
        self._closed = True
        self._pieces.clear()
        if self._ended or self._fault is not None:
            return
        self._pool.give_up(self._asked)
        self._fault = "nobody waits for it any more"
        self._tell()

    def close_soon(self) -> None:
        """Nothing more is wanted; if the end comes at once, the connection can be used again."""
        self._closed = True
        self._pieces.clear()
        if self._outbound is not None and not self._ended:
            self._outbound.resume()
            self._loop.call_later(STREAM_END_SECONDS, self.close)

    # -- sending --------------------------------------------------------------------------------------------------

    def _begun(self, outbound: Outbound) -> None:
        self._outbound = outbound
        if self._started is not None:
            self._started()
        self._tell()

    async def _upload(self, method: bytes, target: bytes, headers: Headers, body: Held) -> None:
        """Until all is sent, or the server has answered without having read all of it."""
        self._asked = self._pool.ask(method, target, headers, b"", self, self._begun, body.size)
        while self._outbound is None:
            self._raise_fault()
            await self._change()
        for piece in body.pieces():
            while self._full and self._head is None and self._fault is None:
                await self._change()
            if self._head is not None or self._fault is not None:
                return
            self._outbound.send(piece)

    # -- told by the connection -----------------------------------------------------------------------------------

    def head(self, head: ResponseHead) -> None:
        self._head = head
        self._tell()

    def data(self, data: bytes) -> None:
        if self._closed:
            return
        self._pieces.append(data)
        self._size += len(data)
        if self._size > ANSWER_HIGH_WATER and self._outbound is not None:
            self._outbound.pause()
        self._tell()

    def end(self) -> None:
        self._ended = True
        self._tell()

    def failed(self, why: str) -> None:
        if self._fault is None:
            self._fault = why
        self._tell()

    def full(self) -> None:
        self._full = True

    def room(self) -> None:
        self._full = False
        self._tell()

    def _raise_fault(self) -> None:
        if self._fault is not None:
            raise NoAnswer(self._fault)

    async def _change(self) -> None:
        """Until something has happened."""
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        except asyncio.CancelledError:
            self.close()
            raise
        finally:
            self._waiter = None

    def _tell(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
