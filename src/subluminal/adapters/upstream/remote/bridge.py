"""Between the pipes and the server: each line of the client is posted, each message of the server becomes a line.

Requests are under way side by side, within a bound. What the client says without waiting for an answer goes in its
order, and before what it says next. Nothing is sent before the beginning of the session has been answered.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from subluminal.adapters.upstream.remote.asking import Asking
from subluminal.adapters.upstream.remote.faults import Fault
from subluminal.adapters.upstream.remote.held import Held, Message, close, weight
from subluminal.adapters.upstream.remote.legacy import LegacyStream
from subluminal.adapters.upstream.remote.limits import (
    ACCEPT_SECONDS,
    CANCEL_SECONDS,
    GOODBYE_SECONDS,
    HURRIED_GOODBYE_SECONDS,
    MAX_REQUEST_BYTES,
    MAX_REQUESTS,
    MAX_WAITING,
    MAX_WAITING_BYTES,
)
from subluminal.adapters.upstream.remote.listening import Listening
from subluminal.adapters.upstream.remote.messages import CANCELLED, INITIALIZE, INITIALIZED, Outgoing, read_outgoing
from subluminal.adapters.upstream.remote.pipes import LineReader, LineWriter, RelayGone
from subluminal.adapters.upstream.remote.posting import Posting
from subluminal.adapters.upstream.remote.replies import Post, Replies
from subluminal.adapters.upstream.remote.session import Session
from subluminal.adapters.upstream.remote.streams import StreamReader


class Bridge:
    """`say(sentence)` tells the user, beside the client; `unexpected` tells of faults of our own. `run` ends with the
    client, or with `stop`."""

    def __init__(
        self,
        name: str,
        asking: Asking,
        reader: LineReader,
        writer: LineWriter,
        say: Callable[[str], None],
        unexpected: Callable[[BaseException], None],
        *,
        transport: str,
        max_inspect: int,
        max_message: int,
    ) -> None:
        self._reader = reader
        self._asking = asking
        self._say = say
        self._unexpected = unexpected
        self._session = Session()
        self._replies = Replies(writer, f"{name} ({asking.origin})")
        streams = StreamReader(self._replies, max_inspect, max_message)
        self._listening = Listening(asking, self._session, streams)
        self._legacy = LegacyStream(asking, self._session, self._replies, streams)
        self._posting = Posting(
            name, asking, self._session, self._replies, streams, self._listening, self._legacy, transport
        )
        self._queue: deque[Post] = deque()
        self._queued_bytes = self._bytes_under_way = 0
        self._under_way: set[asyncio.Task[None]] = set()
        self._others: set[asyncio.Task[None]] = set()
        self._room = asyncio.Event()
        self._stopping = asyncio.Event()
        self._hurried = False

    def stop(self) -> None:
        """A signal: nobody waits for answers any more."""
        self._hurried = True
        self._stopping.set()

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        session = loop.create_task(self._session_of_the_client())
        stopping = loop.create_task(self._stopping.wait())
        await asyncio.wait({session, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if session.done():
            session.result()
        self._listening.stop()
        await self._goodbye()

    async def _session_of_the_client(self) -> None:
        while (message := await self._reader.next_line()) is not None:
            await self._handle(message)
        while self._under_way or self._others or self._queue:
            await asyncio.wait({*self._under_way, *self._others}, return_when=asyncio.FIRST_COMPLETED)

    # -- from the client ------------------------------------------------------------------------------------------

    async def _handle(self, message: Message) -> None:
        outgoing = read_outgoing(message)
        post = Post(outgoing)
        if isinstance(message, Held) and message.fault is not None:
            await self._replies.fail(post, Fault(f"the message {message.fault}."))
            return
        self._listening.wake()
        if outgoing.method == CANCELLED and await self._cancel(outgoing):
            return
        if not outgoing.ids:
            task = self._task(self._carry(post), self._others)
            await asyncio.wait({task}, timeout=ACCEPT_SECONDS)
            return
        self._replies.expect(post)
        if outgoing.method == INITIALIZE:
            await self._carry(post)
            return
        self._queue.append(post)
        self._queued_bytes += weight(outgoing.body)
        self._start_requests()
        while self._is_full:
            self._room.clear()
            await self._room.wait()

    @property
    def _is_full(self) -> bool:
        return len(self._queue) > MAX_WAITING or self._queued_bytes > MAX_WAITING_BYTES

    def _start_requests(self) -> None:
        while self._queue and len(self._under_way) < MAX_REQUESTS:
            size = weight(self._queue[0].outgoing.body)
            if self._under_way and self._bytes_under_way + size > MAX_REQUEST_BYTES:
                break
            self._queued_bytes -= size
            self._bytes_under_way += size
            task = self._task(self._carry(self._queue.popleft()), self._under_way)
            task.add_done_callback(partial(self._request_ended, size))
        if not self._is_full:
            self._room.set()

    def _request_ended(self, size: int, _task: object) -> None:
        self._bytes_under_way -= size
        self._start_requests()

    def _task(self, work: Coroutine[Any, Any, None], kept: set[asyncio.Task[None]]) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(work)
        kept.add(task)
        task.add_done_callback(kept.discard)
        return task

    async def _carry(self, post: Post) -> None:
        """Whatever comes of it: every request in it has its answer, or the client has cancelled it."""
        try:
            await self._posting.carry(post)
            if post.outgoing.method == INITIALIZED and post.answer is not None and post.answer.status < 300:
                self._session.initialized = post.outgoing
                self._listening.begin()
        except Fault as fault:
            if not post.cancelled:
                self._say(fault.sentence)
            await self._replies.fail(post, fault)
        except RelayGone:
            self.stop()
        except Exception as fault:
            self._unexpected(fault)
            await self._replies.fail(post, Fault("an internal error of Subluminal; please report it."))
        finally:
            self._replies.forget(post)
            if post.outgoing not in (self._session.initialize, self._session.initialized):
                close(post.outgoing.body)

    async def _cancel(self, outgoing: Outgoing) -> bool:
        """True: the server need not be told, or is told by the end of the request's connection (from 2026-07-28 on)."""
        post = None if outgoing.cancels is None else self._replies.find(outgoing.cancels)
        if post is None:
            return self._session.is_modern(outgoing)
        post.cancelled = True
        if post in self._queue:
            self._queue.remove(post)
            self._queued_bytes -= weight(post.outgoing.body)
            close(post.outgoing.body)
            self._replies.forget(post)
            return True
        if self._session.is_modern(post.outgoing):
            self._give_up(post)
            return True
        # What is cancelled must have been heard of first.
        try:
            async with asyncio.timeout(ACCEPT_SECONDS):
                await post.started.wait()
        except TimeoutError:
            pass
        asyncio.get_running_loop().call_later(CANCEL_SECONDS, self._give_up, post)
        return False

    def _give_up(self, post: Post) -> None:
        self._replies.forget(post)
        if post.answer is not None:
            post.answer.close()

    # -- the end --------------------------------------------------------------------------------------------------

    async def _goodbye(self) -> None:
        """Tell the server that the session is over. It may not care."""
        if self._session.id is None or self._session.lost:
            return
        try:
            async with asyncio.timeout(HURRIED_GOODBYE_SECONDS if self._hurried else GOODBYE_SECONDS):
                answer = await self._asking.ask(b"DELETE", self._session.headers())
                answer.close()
        except (TimeoutError, Fault):
            pass
