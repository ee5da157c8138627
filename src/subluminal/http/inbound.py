"""Connections that clients open: one request at a time, each as a `Visit` that somebody answers.

No task and no future on the way of a request: bytes come in, the visit's listener is told, and what it answers is
written. A second request that is sent before the first was answered waits, unread.

What a connection waits for, by what it holds:

    _leaving            its end: the last answer is written, and what still comes is dropped
    _visit and _body    the request's content, for a listener
    _body alone         content that nobody wants any more, because the answer is given
    _visit alone        the answer
    neither             the next request
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

from subluminal.http.bodies import Body, Sized, request_body
from subluminal.http.heads import HEAD_END, HttpFault, has_bare_newline, read_request, response_bytes
from subluminal.http.limits import (
    BODY_SECONDS,
    HEAD_SECONDS,
    IDLE_SECONDS,
    LEAVE_SECONDS,
    MAX_DISCARDED_BYTES,
    MAX_HEAD_BYTES,
)
from subluminal.http.loop import tune
from subluminal.http.recurring import Recurring, recurring
from subluminal.http.together import FEW
from subluminal.http.visits import Listener, Visit

if TYPE_CHECKING:
    from subluminal.http.serving import Serving

__all__ = ["Inbound", "Listener", "Visit"]


class Inbound(asyncio.Protocol):
    """One connection of a client."""

    __slots__ = (
        "_body",
        "_buffer",
        "_discarded",
        "_full",
        "_held",
        "_leaving",
        "_paused",
        "_recurring",
        "_serving",
        "_since",
        "_transport",
        "_unknown",
        "_visit",
        "local",
        "notes",
        "remote",
    )

    def __init__(self, serving: Serving) -> None:
        self._serving = serving
        self._transport: Any = None
        self._buffer = b""  # of a head that is not whole, or sent too early
        self._visit: Visit | None = None
        self._body: Body | None = None
        self._recurring: Recurring | None = None  # the head that came last
        self._held = b""  # to be written at the end of this turn of the loop
        self._discarded = 0  # bytes that nobody wants any more
        self._paused = False  # we read no more
        self._full = False  # more is written than the client takes
        self._leaving = False
        self._unknown = False  # whose connection it is, is being found out
        self._since = 0.0  # when we began to wait for what we wait for
        self.local: tuple[str, int] = ("", 0)
        self.remote: tuple[str, int] = ("", 0)
        self.notes: Any = None  # whatever the owner keeps of this connection, such as who its peer is

    # -- the loop's side ------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        tune(transport)
        self.local = (transport.get_extra_info("sockname") or ("", 0))[:2]
        self.remote = (transport.get_extra_info("peername") or ("", 0))[:2]
        self._since = self._serving.clock()
        if not self._serving.opened(self):
            self.refuse(HttpFault(503, "too many connections"))
            self._transport.close()
        elif self._serving.met is not None:
            self._unknown = True
            self._serving.met(self, transport.get_extra_info("socket"))

    def welcome(self, notes: Any) -> None:
        """`Serving.met` has found out who it is: requests may come."""
        self.notes = notes
        self._unknown = False
        if self._transport is None:  # it has left meanwhile
            self._buffer = b""
            return
        self._since = self._serving.clock()
        self._resume_reading()
        self._go_on()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._held = b""
        self._serving.closed(self)
        self._lose_visit()

    def data_received(self, data: bytes) -> None:
        if self._body is not None:
            self._read_body(data)
        elif self._leaving:
            self._discard(len(data))
        elif self._visit is not None or self._full or self._unknown:  # a request, before its turn has come
            self._buffer += data
            if len(self._buffer) > MAX_HEAD_BYTES:
                self._pause_reading()
        elif not self._buffer:
            self._since = self._serving.clock()
            self._read_head(data)
        else:
            self._read_head(self._buffer + data, len(self._buffer))

    def eof_received(self) -> bool:
        """A client that has left, and one that only closes its side, look the same until something is written: both
        have left. Else a silent event stream would be kept for nobody."""
        self._lose_visit()
        return False

    def pause_writing(self) -> None:
        self._full = True
        if self._visit is not None:
            self._visit.full()

    def resume_writing(self) -> None:
        self._full = False
        if self._visit is not None:
            self._visit.room()
        elif self._body is None and not self._leaving:
            self._since = self._serving.clock()
            self._resume_reading()
            self._go_on()

    # -- reading --------------------------------------------------------------------------------------------------

    def _read_head(self, buffer: bytes, looked_at: int = 0) -> None:
        at = buffer.find(HEAD_END, looked_at - 3 if looked_at > 3 else 0) + 4
        if at < 4 and len(buffer) <= MAX_HEAD_BYTES:
            self._buffer = buffer
            if not buffer[:1].isupper() or has_bare_newline(buffer, looked_at):
                self.refuse(HttpFault(400, "malformed HTTP"))
            return
        if not 4 <= at <= MAX_HEAD_BYTES + 4:
            self._buffer = buffer
            self.refuse(HttpFault(431, "the head is too large"))
            return
        known, body = self._recurring, None
        length = -1 if known is None else known.again(buffer, at)
        if known is not None and length >= 0:
            head = known.head
        else:
            try:
                raw = buffer[:at]
                head = read_request(raw)
                body = request_body(head.headers, head.http_1_0)
            except HttpFault as fault:
                self._buffer = buffer
                self.refuse(fault)
                return
            self._recurring = None if head.expects_continue else recurring(head, raw, body)
            length = -1 if body.length is None else body.length
        serving = self._serving
        serving.under_way = under_way = serving.under_way + 1
        visit = self._visit = Visit(head, self, under_way >= FEW)
        end = at + length
        if at <= end <= len(buffer):  # all of it has come, as most do
            self._buffer = buffer[end:]
            serving.arrived(visit)
            if length and (listener := visit.listener) is not None:
                listener.data(buffer[at:end])
            if (listener := visit.listener) is not None:
                listener.end()
            return
        self._buffer = b""
        self._body = body or Sized(length)
        self._discarded = 0
        self._since = serving.clock()
        serving.arrived(visit)
        if at < len(buffer) and self._transport is not None:
            self.data_received(buffer[at:])

    def _read_body(self, data: bytes) -> None:
        assert self._body is not None
        visit = self._visit
        try:
            content, rest = self._body.feed(data)
        except HttpFault as fault:
            self.refuse(fault)
            return
        if rest is not None:
            self._body = None
            self._buffer = rest
            self._resume_reading()
        if visit is None:
            if rest is not None:
                self._free()
            else:
                self._discard(len(data))
            return
        self._since = self._serving.clock()
        if content and (listener := visit.listener) is not None:
            listener.data(content)
        if rest is not None and (listener := visit.listener) is not None:
            listener.end()

    @property
    def awaits_body(self) -> bool:
        return self._body is not None

    def pause_body(self) -> None:
        if self._body is not None:
            self._pause_reading()

    def resume_body(self) -> None:
        if self._body is not None:
            self._since = self._serving.clock()
            self._resume_reading()

    def _pause_reading(self) -> None:
        if not self._paused and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()

    def _resume_reading(self) -> None:
        if self._paused and self._transport is not None:
            self._paused = False
            self._transport.resume_reading()

    def _discard(self, size: int) -> None:
        """`_since` stays: whoever is answered gets no more time by sending on."""
        self._discarded += size
        if self._discarded > MAX_DISCARDED_BYTES:
            self.abort()

    # -- between two requests -------------------------------------------------------------------------------------

    def answered(self, keep_alive: bool, last: bytes = b"") -> None:
        """The visit is over; `last` is the rest of its answer."""
        serving, transport = self._serving, self._transport
        self._visit = None
        self._since = serving.clock()
        few = serving.under_way < FEW
        serving.under_way -= 1
        if few or self._held or self._leaving or not keep_alive:
            self.hold(last)
            self._flush()
        elif transport is not None and last:
            serving.together.write(transport, last)
        if not keep_alive or serving.ending:
            self._leave()
        elif self._body is not None:
            self._resume_reading()
        elif self._paused or self._buffer or self._full:
            self._free()

    def _free(self) -> None:
        """The connection is free again. What was sent too early is read now, but not from within its own reading, and
        not while earlier answers are left unread: they would pile up."""
        if self._serving.ending:
            self._leave()
        elif not self._full:
            self._resume_reading()
            if self._buffer:
                self._serving.loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        if (
            self._visit is None
            and self._body is None
            and not (self._full or self._leaving or self._unknown)
            and self._buffer
        ):
            self._read_head(self._buffer)

    # -- writing --------------------------------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        """What is written in one turn of the loop goes out as one."""
        if not self._held:
            self._serving.loop.call_soon(self._flush)
        self.hold(data)

    def hold(self, data: bytes) -> None:
        """Like `write`, for an answer's last piece: `answered` follows and sends it."""
        if self._transport is not None and not self._leaving:
            self._held += data

    def _flush(self) -> None:
        held = self._held
        if held and self._transport is not None:
            self._held = b""
            self._serving.together.flush()
            self._transport.write(held)

    # -- ending ---------------------------------------------------------------------------------------------------

    def refuse(self, fault: HttpFault) -> None:
        """Not a request that we take: a short answer, and the end of the connection."""
        visit = self._visit
        discarding = visit is None and self._body is not None
        begun = visit is not None and visit.begun
        self._lose_visit()
        if discarding or begun or self._leaving:  # one answer is all there is
            self.abort()
            return
        text = fault.why.encode() + b"\n"
        headers = [
            (b"content-type", b"text/plain; charset=utf-8"),
            (b"content-length", b"%d" % len(text)),
            (b"connection", b"close"),
        ]
        self.hold(response_bytes(fault.status, headers) + text)
        self._flush()
        self._leave(more_may_come=True)

    def _leave(self, more_may_come: bool = False) -> None:
        """Nothing more is answered. While the client still sends, closing would take the answer away from it: the
        kernel resets a connection whose data nobody reads."""
        if self._transport is None or self._leaving:
            return
        self._leaving = True
        self._serving.together.flush()
        more_may_come = more_may_come or self._body is not None or bool(self._buffer)
        self._body = None
        self._buffer = b""
        if more_may_come and not self._transport.is_closing():
            self._transport.write_eof()
            self._resume_reading()
        else:
            self._transport.close()

    def _lose_visit(self) -> None:
        visit, self._visit = self._visit, None
        if visit is not None:
            self._serving.under_way -= 1
            visit.lost()

    def abort(self) -> None:
        self._held = b""
        if self._transport is not None:
            self._leaving = True
            self._body = None
            self._transport.abort()

    def close_if_idle(self) -> None:
        if self._visit is None:
            self._leave()

    def overdue(self, now: float) -> None:
        """Asked now and then: whoever makes us wait too long is let go."""
        waited = now - self._since
        if self._leaving:
            if waited > LEAVE_SECONDS:
                self.abort()
        elif self._body is not None:
            if waited > BODY_SECONDS and not self._paused:
                self.refuse(HttpFault(408, "the body did not come"))
        elif self._visit is None and not self._full and not self._unknown:
            if self._buffer and waited > HEAD_SECONDS:
                self.refuse(HttpFault(408, "the head did not come"))
            elif waited > IDLE_SECONDS:
                self._leave()
