"""Connections that we open: one request at a time, its answer told to whoever asked."""

from __future__ import annotations

import asyncio
import select
import socket
from collections.abc import Iterable
from typing import Any, Protocol, cast

from subluminal.http.bodies import NO_BODY_STATUS, Body, Sized, response_body
from subluminal.http.heads import (
    HEAD_END,
    Headers,
    HttpFault,
    ResponseHead,
    has_bare_newline,
    read_response,
    request_lines,
)
from subluminal.http.limits import MAX_HEAD_BYTES
from subluminal.http.loop import tune
from subluminal.http.recurring import Recurring, recurring
from subluminal.http.together import Together

_WITH_CONTENT = (b"POST", b"PUT", b"PATCH")


class Asker(Protocol):
    """Who asked. Told in this order: `head`, `data`*, `end`; or `failed` at any time, and then nothing more."""

    def head(self, head: ResponseHead) -> None: ...
    def data(self, data: bytes) -> None: ...
    def end(self) -> None: ...
    def failed(self, why: str) -> None:
        """The server did not answer, or not to the end. `why` is a clause for a person: nothing of the message."""

    def full(self) -> None:
        """More was sent than the server takes: pause until `room`."""

    def room(self) -> None: ...


class WholeAsker:
    """An asker that hears of an answer which is all there at once: `whole`, and none of `head`, `data` and `end`."""

    __slots__ = ()

    def whole(self, head: ResponseHead, content: bytes) -> None:
        raise NotImplementedError


class Outbound(asyncio.Protocol):
    """One connection to a server. `released(self)` is told when it may serve another request, or is lost."""

    __slots__ = (
        "_asker",
        "_body",
        "_buffer",
        "_keep_alive",
        "_method",
        "_paused",
        "_poll",
        "_recurring",
        "_to_send",
        "_transport",
        "fd",
        "idle_since",
        "is_full",
        "looked_at",
        "released",
        "together",
    )

    def __init__(self) -> None:
        self._transport: Any = None
        self._asker: Asker | None = None
        self._body: Body | None = None
        self._buffer = b""
        self._method = b""
        self._to_send = 0  # content that was announced and is not sent yet
        self._keep_alive = True
        self._paused = False
        self._poll: Any = None
        self._recurring: Recurring | None = None  # the head of the last answer to a POST
        self.fd = -1
        self.idle_since = 0.0
        self.looked_at = -1  # the turn of the loop in which its owner has seen that it is fresh
        self.is_full = False  # more was sent than the server takes
        self.released: Any = None
        self.together: Together | None = None  # for a request that may wait for others of this turn of the loop

    # -- asking ---------------------------------------------------------------------------------------------------

    def ask(self, method: bytes, target: bytes, headers: Headers | bytes, body: bytes, asker: Asker) -> None:
        """The whole request. `headers` state `host`; the length is stated here. As bytes they are `request_lines`."""
        together = self.together
        if together is not None and body and isinstance(headers, bytes):
            self._asker = asker
            self._method = method
            self._to_send = 0
            together.write(self._transport, b"%bcontent-length: %d\r\n\r\n%b" % (headers, len(body), body))
            return
        length = len(body) if body or method in _WITH_CONTENT else None
        self.begin(method, target, headers, length, asker, body)

    def begin(
        self,
        method: bytes,
        target: bytes,
        headers: Headers | bytes,
        length: int | None,
        asker: Asker,
        first: bytes = b"",
    ) -> None:
        """The head; `length` bytes of content follow with `send`. Only while `usable`."""
        self._asker = asker
        self._method = method
        lines = headers if isinstance(headers, bytes) else request_lines(method, target, headers)
        if length is None:
            self._transport.write(lines + b"\r\n")
        else:
            self._to_send = left = length - len(first)
            data = b"%bcontent-length: %d\r\n\r\n%b" % (lines, length, first)
            if left or self.together is None:
                self._transport.write(data)
            else:
                self.together.write(self._transport, data)

    def send(self, data: bytes) -> None:
        """More than was announced, or for an answer that has come already, is not sent: the next request would be
        read from it."""
        if self._transport is not None and len(data) <= self._to_send:
            self._to_send -= len(data)
            self._transport.write(data)

    def pause(self, asker: Asker | None = None) -> None:
        """Take no more of the answer for now. With `asker`: unless this connection serves another by now."""
        if self._transport is not None and not self._paused and (asker is None or self._asker is asker):
            self._paused = True
            self._transport.pause_reading()

    def resume(self, asker: Asker | None = None) -> None:
        if self._transport is not None and self._paused and (asker is None or self._asker is asker):
            self._paused = False
            self._transport.resume_reading()

    def give_up(self, asker: Asker | None = None) -> None:
        """Nobody wants the answer any more. With `asker`: unless this connection serves another by now."""
        if asker is not None and self._asker is not asker:
            return
        self._asker = None
        self._body = None
        self._abort()

    def is_fresh(self) -> bool:
        """Whether the server still holds the other end, as far as the kernel knows. A request on a connection that it
        has closed would fail, and could not be repeated: nobody knows whether it was read."""
        if not self.usable:
            return False
        if self._poll is None:
            self._poll = _poll((self,))
        return not self._poll(0)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def _abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    @property
    def usable(self) -> bool:
        return self._transport is not None and self._asker is None and not self._transport.is_closing()

    # -- the loop's side ------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.fd = transport.get_extra_info("socket").fileno()
        tune(transport)
        # A server that vanished without a word is noticed in the end, even on a stream where nothing is ever sent.
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._poll = None
        self.fd = -1
        body, self._body = self._body, None
        asker, self._asker = self._asker, None
        if asker is not None:
            if body is None:
                asker.failed("the server closed the connection without an answer")
            elif exc is None and body.closed():
                asker.end()
            else:
                asker.failed("the server closed the connection in the middle of its answer")
        released, self.released = self.released, None
        if released is not None:
            released(self)

    def data_received(self, data: bytes) -> None:
        if self._body is not None:
            self._read_body(data)
        elif self._asker is None:  # unasked for: this connection cannot be trusted any more
            self.close()
        elif not self._buffer:
            self._read_head(data, 0)
        else:
            self._read_head(self._buffer + data, len(self._buffer))

    def pause_writing(self) -> None:
        self.is_full = True
        if self._asker is not None:
            self._asker.full()

    def resume_writing(self) -> None:
        self.is_full = False
        if self._asker is not None:
            self._asker.room()

    # -- reading --------------------------------------------------------------------------------------------------

    def _read_head(self, buffer: bytes, looked_at: int) -> None:
        at = 0
        body: Body
        while True:
            end = buffer.find(HEAD_END, at if looked_at <= 3 else max(at, looked_at - 3))
            if end < 0 and len(buffer) - at <= MAX_HEAD_BYTES:
                self._buffer = buffer[at:]
                if has_bare_newline(buffer, max(at, looked_at)):
                    self.fail("its answer is not understood: malformed HTTP")
                return
            if end < 0 or end - at > MAX_HEAD_BYTES:
                self.fail("the head of its answer is too large")
                return
            known = self._recurring
            length = -1 if known is None or at or self._method != b"POST" else known.again(buffer, end + 4)
            if known is not None and length >= 0:
                head = known.head
                at = end + 4
                if 0 < length <= len(buffer) - at:
                    self._take_whole(head, length, buffer, at)
                    return
                body = Sized(length)
                break
            try:
                raw = buffer[at : end + 4]
                head = read_response(raw)
                body = response_body(self._method, head.status, head.headers, head.http_1_0)
            except HttpFault as fault:
                self.fail(f"its answer is not understood: {fault.why}")
                return
            if head.status == 101:
                self.fail("it changed the protocol unasked")
                return
            at = end + 4
            if head.status >= 200:  # else 100 and its like: the answer is still to come
                has_body = self._method == b"POST" and head.status not in NO_BODY_STATUS
                self._recurring = recurring(head, raw, body) if has_body else None
                break
        self._buffer = b""
        self._keep_alive = head.keep_alive
        self._body = body
        asker = self._asker
        assert asker is not None
        asker.head(head)
        if self._body is not body:  # given up
            return
        if body.done:
            self._whole(buffer[at:])
        elif at < len(buffer):
            self._read_body(buffer[at:])

    def _take_whole(self, head: ResponseHead, length: int, buffer: bytes, at: int) -> None:
        """An answer that is all there, as most are."""
        self._buffer = b""
        self._keep_alive = head.keep_alive
        end = at + length
        asker = self._asker
        assert asker is not None
        if isinstance(asker, WholeAsker):
            self._asker = None
            self._whole(buffer[end:])
            asker.whole(head, buffer[at:end])
            return
        self._body = body = Sized(length)
        asker.head(head)
        if self._body is body:
            asker.data(buffer[at:end])
        if self._body is body:
            self._whole(buffer[end:])

    def _read_body(self, data: bytes) -> None:
        body = self._body
        assert body is not None
        try:
            content, rest = body.feed(data)
        except HttpFault as fault:
            self.fail(f"its answer is not understood: {fault.why}")
            return
        if content and self._asker is not None:
            self._asker.data(content)
        if rest is not None and self._body is body:
            self._whole(rest)

    def _whole(self, rest: bytes) -> None:
        """Used again only if nothing of this exchange is left, neither of the answer nor of the request."""
        asker, self._asker = self._asker, None
        self._body = None
        if self._paused:
            self.resume()
        if self._to_send or self._transport.get_write_buffer_size():
            self._to_send = 0
            self._abort()
        elif rest or not self._keep_alive:
            self.close()
        released, self.released = self.released, None
        if released is not None:
            released(self)
        if asker is not None:
            asker.end()

    def fail(self, why: str) -> None:
        """Nothing more can come of this connection: whoever waits for an answer is told."""
        asker, self._asker = self._asker, None
        self._body = None
        self._to_send = 0
        self._abort()
        if asker is not None:
            asker.failed(why)


def spoken(connections: Iterable[Outbound]) -> set[int]:
    """The descriptors of those on which something has come, be it the end."""
    return {fd for fd, _ in _poll(connections)(0)}


def _poll(connections: Iterable[Outbound]) -> Any:
    """The sockets of both loops refuse to be read; a descriptor can be asked, whatever its number."""
    poll = select.poll()
    for connection in connections:
        poll.register(connection.fd, select.POLLIN)
    return poll.poll
