"""Event streams of the server: each event a message, and where to go on after a cut."""

from __future__ import annotations

from collections.abc import Callable

from subluminal.adapters.upstream.remote.answers import Answer
from subluminal.adapters.upstream.remote.faults import Fault
from subluminal.adapters.upstream.remote.held import Held
from subluminal.adapters.upstream.remote.limits import (
    MAX_BACKOFF_SECONDS,
    MAX_ID_BYTES,
    MAX_RETRY_SECONDS,
    MIN_RETRY_SECONDS,
    RETRY_SECONDS,
)
from subluminal.adapters.upstream.remote.replies import Post, Replies
from subluminal.contracts.event_stream import Event, EventStream, Part
from subluminal.http.heads import Headers, is_value
from subluminal.mcp.headers import LAST_EVENT_ID

EVENT_STREAM = b"text/event-stream"
ACCEPT_STREAM = (b"accept", EVENT_STREAM)


class Place:
    """How far a stream was read, and how long its server wants us to wait before we come back."""

    __slots__ = ("last_id", "retry_s", "told")

    def __init__(self) -> None:
        self.last_id = b""
        self.retry_s: float | None = None
        self.told = 0  # events that have come

    def note(self, event: Event) -> None:
        self.told += 1
        if event.id is not None and len(event.id) <= MAX_ID_BYTES and is_value(event.id):
            self.last_id = event.id
        if event.retry is not None:
            self.retry_s = min(MAX_RETRY_SECONDS, max(MIN_RETRY_SECONDS, int(event.retry[:9]) / 1000))

    def delay_s(self, idle: int, failures: int = 0) -> float:
        """Until it is opened again: as its server wishes, or longer each time that this brings nothing."""
        if self.retry_s is None:
            return min(MAX_BACKOFF_SECONDS, RETRY_SECONDS * 2.0 ** min(idle + failures, 10))
        return max(self.retry_s, min(MAX_BACKOFF_SECONDS, self.retry_s * 2.0 ** min(failures, 10)))

    def headers(self) -> Headers:
        return [(LAST_EVENT_ID, self.last_id)] if self.last_id else []


class StreamReader:
    def __init__(self, replies: Replies, max_inspect: int, max_message: int) -> None:
        self._replies = replies
        self._max_inspect = max_inspect
        self._max_message = max_message

    async def read(
        self, answer: Answer, place: Place, post: Post | None, other: Callable[[Event], None] | None = None
    ) -> None:
        """To its end, or until nobody waits for a reply on it. `other` is told of events that are no messages."""
        stream = EventStream(self._max_inspect)
        held: Held | None = None
        try:
            while piece := await answer.next_piece():
                for event in stream.feed(piece):
                    if isinstance(event, Part):
                        held = await self._large(held, event, post)
                        place.told += 1
                        continue
                    place.note(event)
                    if event.name == b"message":
                        if event.data:
                            await self._replies.deliver(event.data, post)
                    elif other is not None:
                        other(event)
                if post is not None and not post.open:
                    return
        finally:
            if held is not None:
                held.close()

    async def _large(self, held: Held | None, part: Part, post: Post | None) -> Held | None:
        held = held or Held(self._max_message, one_line=True)
        held.feed(part.data)
        if held.fault is not None:
            raise Fault(f"a message of the server {held.fault}.")
        if not part.last:
            return held
        try:
            await self._replies.deliver(held, post)
        finally:
            held.close()
        return None

    async def whole(self, answer: Answer, post: Post) -> None:
        """The content of an answer as one message."""
        found = b""
        held: Held | None = None
        try:
            while piece := await answer.next_piece():
                if held is not None:
                    held.feed(piece)
                    if held.fault is not None:
                        raise Fault(f"a message of the server {held.fault}.")
                    continue
                found += piece
                if len(found) > self._max_inspect:
                    held = Held(self._max_message, one_line=True)
                    held.feed(found)
                    found = b""
            await self._replies.deliver(found if held is None else held, post)
        finally:
            if held is not None:
                held.close()
