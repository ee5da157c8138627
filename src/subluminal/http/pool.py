"""Connections to one origin: bounded, used again while they are fresh, dialled only when somebody asks.

A request is repeated on another connection only if nothing of it was sent.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Callable
from itertools import islice
from time import monotonic
from typing import Any

from subluminal.http.dialling import DialFault, dial
from subluminal.http.end_of_turn import FORWARD, end_of_turn
from subluminal.http.heads import Headers
from subluminal.http.limits import (
    CONNECT_SECONDS,
    POOL_CONNECTIONS,
    POOL_DIALLING,
    POOL_IDLE_SECONDS,
    POOL_WAITING,
)
from subluminal.http.outbound import Asker, Outbound, spoken
from subluminal.http.together import FEW, Together
from subluminal.http.urls import Origin

__all__ = ["Origin", "Pool"]

# So many idle connections are looked at together, where many requests are under way.
LOOKED_AT = 8


class _Asked:
    """A request, for whoever gives it up, pauses or resumes its answer."""

    __slots__ = ("asker", "outbound")

    def __init__(self, asker: Asker, outbound: Outbound | None = None) -> None:
        self.asker = asker
        self.outbound = outbound  # once it is sent


class _Waiting(_Asked):
    """One that waits for a connection."""

    __slots__ = ("body", "headers", "length", "method", "started", "target", "task")

    def __init__(
        self,
        method: bytes,
        target: bytes,
        headers: Headers | bytes,
        body: bytes,
        asker: Asker,
        started: Any,
        length: int | None,
    ) -> None:
        super().__init__(asker)
        self.method = method
        self.target = target
        self.headers = headers
        self.body = body
        self.started = started
        self.length = length
        self.task: asyncio.Task[None] | None = None  # while it is dialled for


class Pool:
    """`context` is for https; by default the system's certificates are trusted."""

    def __init__(
        self,
        origin: Origin,
        *,
        limit: int = POOL_CONNECTIONS,
        context: ssl.SSLContext | None = None,
        connect_seconds: float = CONNECT_SECONDS,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self.origin = origin
        self._limit = limit
        self._context = context
        self._connect_seconds = connect_seconds
        self._clock = clock
        self._idle: deque[Outbound] = deque()
        self._open: set[Outbound] = set()
        self._dialling: set[_Waiting] = set()
        self._queue: deque[_Waiting] = deque()
        self._loop = asyncio.get_running_loop()
        self._together = Together(FORWARD)
        self._end_of_turn = end_of_turn()
        self._turn = 0  # of the loop, as far as connections were looked at in it
        self._turn_counts = False  # `_turn_over` will be called
        self._sweep_handle: asyncio.TimerHandle | None = None
        self._closed = False

    def __len__(self) -> int:
        """Connections that are open."""
        return len(self._open)

    def ask(
        self,
        method: bytes,
        target: bytes,
        headers: Headers | bytes,
        body: bytes,
        asker: Asker,
        started: Any = None,
        length: int | None = None,
    ) -> _Asked | None:
        """Send a request; `started(outbound)` is told of the connection as soon as there is one.

        With `length`, `body` is the beginning of so much content, and the rest follows by `outbound.send`.
        Returns what `give_up` takes. None: it has failed already.
        """
        outbound = self._fresh()
        if outbound is not None:
            asked = _Asked(asker, outbound)
            if started is None and length is None:
                outbound.released = self._release
                outbound.together = self._together if len(self._open) - len(self._idle) > FEW else None
                outbound.ask(method, target, headers, body, asker)
            else:
                self._send(outbound, method, target, headers, body, asker, started, length)
            return asked
        if self._closed:
            asker.failed(_CLOSED)
            return None
        waiting = _Waiting(method, target, headers, body, asker, started, length)
        if self._may_dial():
            self._dial(waiting)
        elif len(self._queue) < POOL_WAITING:
            self._queue.append(waiting)
        else:
            asker.failed("too many requests wait for it")
            return None
        return waiting

    def give_up(self, asked: _Asked | None) -> None:
        """Nobody waits for this request's answer any more. Too late is no harm: a connection that serves another by
        now is left alone."""
        if asked is not None:
            asker, asked.asker = asked.asker, NOBODY
            if asked.outbound is not None:
                asked.outbound.give_up(asker)
            elif isinstance(asked, _Waiting):
                self._wait_no_more(asked)

    def _wait_no_more(self, waiting: _Waiting) -> None:
        waiting.started = None
        if waiting.task is not None:
            waiting.task.cancel()  # it may not even have begun, and then never learns of it
            self._dialled(waiting)
            self._serve_queue()
        elif waiting in self._queue:
            self._queue.remove(waiting)

    def pause(self, asked: _Asked | None) -> None:
        """Take no more of this request's answer for now."""
        if asked is not None and asked.outbound is not None:
            asked.outbound.pause(asked.asker)

    def resume(self, asked: _Asked | None) -> None:
        if asked is not None and asked.outbound is not None:
            asked.outbound.resume(asked.asker)

    async def close(self) -> None:
        """Whoever still waits is told that it failed."""
        self._closed = True
        if self._sweep_handle is not None:
            self._sweep_handle.cancel()
        for waiting in [*self._dialling, *self._queue]:
            asker = waiting.asker
            self.give_up(waiting)
            asker.failed(_CLOSED)
        for outbound in list(self._open):
            outbound.fail(_CLOSED)
        await asyncio.sleep(0)

    # -- connections ----------------------------------------------------------------------------------------------

    def _fresh(self) -> Outbound | None:
        """The connection used last: the others may become too old and go."""
        idle = self._idle
        while idle:
            outbound = idle.pop()
            if len(self._open) - len(idle) > FEW:  # what is asked now is written at the end of the turn
                if outbound.looked_at != self._turn:
                    self._look_at_several(outbound)
                fresh = outbound.looked_at == self._turn and outbound.usable
            else:
                fresh = outbound.is_fresh()
            if fresh:
                return outbound
            self._drop(outbound)
        return None

    def _look_at_several(self, first: Outbound) -> None:
        """At it, and at those that come next if as many requests do."""
        if not self._turn_counts:
            self._turn_counts = True
            self._end_of_turn.leave(FORWARD, self._turn_over)
        several = [each for each in (first, *islice(reversed(self._idle), LOOKED_AT - 1)) if each.usable]
        ended = spoken(several)
        for each in several:
            each.looked_at = -1 if each.fd in ended else self._turn

    def _turn_over(self) -> None:
        self._turn_counts = False
        self._turn += 1

    def _drop(self, outbound: Outbound) -> None:
        self._open.discard(outbound)
        outbound.close()

    def _may_dial(self) -> bool:
        dialling = len(self._dialling)
        return dialling < POOL_DIALLING and len(self._open) + dialling < self._limit

    def _dial(self, waiting: _Waiting) -> None:
        self._dialling.add(waiting)
        waiting.task = self._loop.create_task(self._connect(waiting))

    async def _connect(self, waiting: _Waiting) -> None:
        try:
            outbound = await dial(self.origin, self._context, self._connect_seconds)
        except DialFault as fault:
            self._dialled(waiting)
            waiting.asker.failed(fault.why)
            if not self._open:  # those who wait would only wait longer for the same
                while self._queue:
                    self._queue.popleft().asker.failed(fault.why)
        else:
            self._dialled(waiting)
            self._open.add(outbound)
            self._sweep_soon()
            self._use(outbound, waiting)
        self._serve_queue()

    def _dialled(self, waiting: _Waiting) -> None:
        self._dialling.discard(waiting)
        waiting.task = None

    def _use(self, outbound: Outbound, waiting: _Waiting) -> None:
        if waiting.asker is NOBODY:
            self._release(outbound)
            return
        if not outbound.usable:
            self._drop(outbound)
            waiting.asker.failed("the server closed the connection without an answer")
            return
        waiting.outbound = outbound
        request = waiting.method, waiting.target, waiting.headers, waiting.body
        waiting.headers, waiting.body = [], b""  # its asker may keep it for as long as a stream lasts
        self._send(outbound, *request, waiting.asker, waiting.started, waiting.length)

    def _send(
        self,
        outbound: Outbound,
        method: bytes,
        target: bytes,
        headers: Headers | bytes,
        body: bytes,
        asker: Asker,
        started: Any,
        length: int | None,
    ) -> None:
        outbound.released = self._release
        outbound.together = self._together if len(self._open) - len(self._idle) > FEW else None
        if length is None:
            outbound.ask(method, target, headers, body, asker)
        else:
            outbound.begin(method, target, headers, length, asker, body)
        if started is not None:
            started(outbound)

    def _release(self, outbound: Outbound) -> None:
        if self._closed or not outbound.usable:
            self._drop(outbound)
            self._serve_queue()
        elif not self._queue:
            outbound.looked_at = -1
            outbound.idle_since = self._clock()
            self._idle.append(outbound)
        elif outbound.is_fresh():
            self._use(outbound, self._queue.popleft())
        else:
            self._drop(outbound)
            self._serve_queue()

    def _serve_queue(self) -> None:
        while self._queue and not self._closed and self._may_dial():
            self._dial(self._queue.popleft())

    def _sweep_soon(self) -> None:
        if self._sweep_handle is None and not self._closed:
            self._sweep_handle = self._loop.call_later(1, self._sweep)

    def _sweep(self) -> None:
        self._sweep_handle = None
        self.let_go_idle()
        if self._open:
            self._sweep_soon()

    def let_go_idle(self) -> None:
        """Connections that nobody has used for a while: their server will close them soon."""
        limit = self._clock() - POOL_IDLE_SECONDS
        while self._idle and self._idle[0].idle_since < limit:
            self._drop(self._idle.popleft())


class _Nobody:
    """Takes the answer of a request that was given up."""

    def head(self, head: Any) -> None: ...
    def data(self, data: bytes) -> None: ...
    def end(self) -> None: ...
    def failed(self, why: str) -> None: ...
    def full(self) -> None: ...
    def room(self) -> None: ...


NOBODY = _Nobody()
_CLOSED = "its connections were closed here"
