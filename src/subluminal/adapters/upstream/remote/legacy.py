"""The transport of 2024-11-05: one stream that names where messages are posted, and on which all answers come."""

from __future__ import annotations

import asyncio

from subluminal.adapters.upstream.remote.answers import Answer
from subluminal.adapters.upstream.remote.asking import Asking
from subluminal.adapters.upstream.remote.faults import Fault
from subluminal.adapters.upstream.remote.limits import ENDPOINT_SECONDS
from subluminal.adapters.upstream.remote.replies import Replies
from subluminal.adapters.upstream.remote.session import Session
from subluminal.adapters.upstream.remote.streams import ACCEPT_STREAM, EVENT_STREAM, Place, StreamReader
from subluminal.contracts.event_stream import Event


class LegacyStream:
    """`stream` is the one that is open."""

    def __init__(self, asking: Asking, session: Session, replies: Replies, reader: StreamReader) -> None:
        self.stream: Answer | None = None
        self._asking = asking
        self._session = session
        self._replies = replies
        self._reader = reader
        self._endpoint = asyncio.Event()
        self._target: bytes | None = None
        self._why: Fault | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """A new stream. Raises Fault where there is none, or where it does not say where messages go."""
        self.stop()
        answer = await self._asking.ask(b"GET", [ACCEPT_STREAM])
        if answer.status != 200 or answer.media_type != EVENT_STREAM or answer.is_encoded:
            answer.close()
            raise Fault(f"it answered {answer.status}, and not with a stream of events.")
        self.stream = answer
        self._target = self._why = None
        self._endpoint.clear()
        task = asyncio.get_running_loop().create_task(self._read(answer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            async with asyncio.timeout(ENDPOINT_SECONDS):
                await self._endpoint.wait()
        except TimeoutError:
            pass
        if self._target is None:
            self.stop()
            raise self._why or Fault("its stream does not say where messages go.")
        self._session.endpoint = self._target

    def stop(self) -> None:
        stream, self.stream = self.stream, None
        if stream is not None:
            stream.close()

    async def _read(self, stream: Answer) -> None:
        why = Fault("the stream of its answers has ended.")
        try:
            await self._reader.read(stream, Place(), None, self._other)
        except Fault as fault:
            why = Fault(f"the stream of its answers has ended: {fault.sentence}")
        finally:
            stream.close()
        if self.stream is stream:
            self.stream = None
            self._why = self._why or why
            self._endpoint.set()
            self._session.lost = self._session.initialize is not None
        for post in self._replies.waiting():
            if post.stream is stream:
                await self._replies.fail(post, why)

    def _other(self, event: Event) -> None:
        """Only the first address counts, and only within the origin: messages may hold secrets."""
        if event.name != b"endpoint" or self._endpoint.is_set():
            return
        to = self._asking.resolve((event.data or b"").decode("utf-8", "replace"))
        if to is None or to.origin != self._asking.origin:
            self._why = Fault("its stream says that messages go to another origin, where nothing is sent to.")
        else:
            self._target = to.target.encode("ascii")
        self._endpoint.set()
