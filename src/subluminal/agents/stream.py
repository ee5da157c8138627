"""The events of a run on their way from the agent to whoever reads them: bounded, and never able to hang the run.

While someone reads, a full buffer holds the agent back. A reader that went away, or that waits for the completion
instead of reading, holds nobody back: events that no longer fit are dropped and counted. A wait for the completion in
the reading task is known at once; in another task (`asyncio.wait_for` makes one) it may be an innocent second waiter,
so the reader is given `PATIENCE_S` to come back.
"""

from __future__ import annotations

import asyncio
from collections import deque

from subluminal.contracts.agent_event import AgentEvent

# At most 16 MiB of text; enough that a reader which only prints is never the slower one.
MAX_HELD_EVENTS = 256
PATIENCE_S = 5.0


class EventStream:
    """`async for event in run.events`. One reader at a time."""

    def __init__(self) -> None:
        self.dropped = 0
        self._held: deque[AgentEvent] = deque()
        self._closed = False
        self._reader_gone = False
        self._reader_waits = False
        self._completion_awaited = False
        self._last_take = 0.0
        self._reading_task: asyncio.Task[object] | None = None
        self._arrived = asyncio.Event()
        self._room = asyncio.Event()

    def __aiter__(self) -> EventReader:
        self._reader_gone = False
        return EventReader(self)

    @property
    def blocked(self) -> bool:
        """The buffer is full and its reader is expected to come."""
        return len(self._held) >= MAX_HELD_EVENTS and not self._may_drop()

    async def put(self, event: AgentEvent) -> None:
        while self.blocked and not self._closed:
            self._room.clear()
            await self._wait_for_room()
        if self._closed or len(self._held) >= MAX_HELD_EVENTS:
            self.dropped += 1
            return
        self._held.append(event)
        self._arrived.set()

    async def _wait_for_room(self) -> None:
        try:
            await asyncio.wait_for(self._room.wait(), PATIENCE_S if self._completion_awaited else None)
        except TimeoutError:
            pass

    async def take(self) -> AgentEvent | None:
        """The next event, or None at the end."""
        self._reading_task = asyncio.current_task()
        self._last_take = asyncio.get_running_loop().time()
        self._reader_waits = False
        while not self._held:
            if self._closed:
                return None
            self._arrived.clear()
            await self._arrived.wait()
        event = self._held.popleft()
        self._room.set()
        return event

    def close(self) -> None:
        """No more events will come; those held can still be read."""
        self._closed = True
        self._arrived.set()
        self._room.set()

    def cut_off(self) -> None:
        """End at once: what was not read yet is dropped."""
        self.dropped += len(self._held)
        self._held.clear()
        self.close()

    def reader_gone(self) -> None:
        self._reader_gone = True
        self._room.set()

    def completion_awaited(self) -> None:
        """Whoever waits for the completion in the task that reads, or with no reader at all, is not reading now."""
        self._completion_awaited = True
        self._reader_waits = self._reading_task in (None, asyncio.current_task())
        self._room.set()

    def _may_drop(self) -> bool:
        if self._reader_gone or self._reader_waits:
            return True
        return self._completion_awaited and asyncio.get_running_loop().time() - self._last_take > PATIENCE_S


class EventReader:
    """One pass over a stream. When it is given up (`break`, an exception), the stream learns of it."""

    def __init__(self, stream: EventStream) -> None:
        self._stream = stream

    def __aiter__(self) -> EventReader:
        return self

    async def __anext__(self) -> AgentEvent:
        event = await self._stream.take()
        if event is None:
            raise StopAsyncIteration
        return event

    def __del__(self) -> None:
        try:
            self._stream.reader_gone()
        except RuntimeError:
            pass  # the event loop is gone, and with it anyone who could be waiting
