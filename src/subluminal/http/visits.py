"""One request of a client, and the way to answer it. The connection that it came on is `inbound`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from subluminal.http.bodies import LAST_CHUNK, NO_BODY_STATUS, chunk
from subluminal.http.heads import Headers, RequestHead, response_bytes

if TYPE_CHECKING:
    from collections.abc import Callable

    from subluminal.http.inbound import Inbound

_ANYTHING = -1  # as much as comes: chunks, or until the connection ends
_NOTHING = -2  # an answer that has no content whatever its head says: to HEAD, 204, 304


class Listener(Protocol):
    """Who takes a request. Told in this order: `data`*, `end`; `gone` at any time and then nothing more.

    It may answer inside any of them; from then on it is told nothing more.
    """

    def data(self, data: bytes) -> None: ...
    def end(self) -> None: ...
    def gone(self) -> None:
        """The client has left, or took too long. Nothing can be answered any more."""

    def full(self) -> None:
        """More was sent than the client takes: pause until `room`."""

    def room(self) -> None: ...


class Visit:
    """One request: `answer` it, or `begin`, `send`*, `end`. Once answered it is over.

    `headers` of an answer state no length and no coding: they are stated here. Content that is shorter or longer than
    the `length` that was announced cuts the connection, for its reader would take the next answer for the rest.
    """

    __slots__ = ("_chunked", "_left", "_when_over", "begun", "head", "inbound", "is_of_many", "listener", "over")

    def __init__(self, head: RequestHead, inbound: Inbound, is_of_many: bool = False) -> None:
        self.head = head
        self.inbound: Inbound | None = inbound  # the connection; None once this visit is over
        self.is_of_many = is_of_many  # so many are under way that work for several at once is saved
        self.listener: Listener | None = None
        self.begun = False
        self._chunked = False
        self._left = _ANYTHING  # content that was announced and is not sent yet
        self.over = False
        self._when_over: Callable[[], None] | None = None

    def when_over(self, told: Callable[[], None]) -> None:
        """`told` is called once, however this visit ends: answered, broken off, or lost."""
        self._when_over = told

    def listen(self, listener: Listener) -> None:
        """From here on the body comes. Call it in `Serving.arrived`, or answer there."""
        self.listener = listener
        if self.head.expects_continue and self.inbound is not None and self.inbound.awaits_body:
            self.inbound.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    # -- the answer -----------------------------------------------------------------------------------------------

    def answer(self, status: int, headers: Headers, body: bytes = b"") -> None:
        """The whole answer at once."""
        inbound = self.inbound
        if inbound is None or self.begun:
            return
        self.begun = True
        if status in NO_BODY_STATUS:
            body = b""
        else:
            headers = [*headers, (b"content-length", b"%d" % len(body))]
            if self.head.method == b"HEAD":
                body = b""
        inbound.hold(response_bytes(status, self._with_connection(headers)) + body)
        self._end()

    def answer_as(self, lines: bytes, body: bytes) -> None:
        """An answer that has content, whose head begins with these (`response_lines`)."""
        inbound, head = self.inbound, self.head
        if inbound is None or self.begun:
            return
        self.begun = True
        if not head.keep_alive:
            lines += b"connection: close\r\n"
        self._forget()
        last = b"%bcontent-length: %d\r\n\r\n%b" % (lines, len(body), b"" if head.method == b"HEAD" else body)
        inbound.answered(head.keep_alive, last)

    def begin(self, status: int, headers: Headers, length: int | None = None, reason: bytes = b"") -> None:
        """The head; content follows. Without a `length` it is chunked, or ends with the connection (HTTP/1.0)."""
        inbound = self.inbound
        if inbound is None or self.begun:
            return
        self.begun = True
        if length is not None and status != 204:
            headers = [*headers, (b"content-length", b"%d" % length)]
        if self.head.method == b"HEAD" or status in NO_BODY_STATUS:
            self._left = _NOTHING
        elif length is not None:
            self._left = length
        elif self.head.http_1_0:
            self.head.keep_alive = False
        else:
            self._chunked = True
            headers = [*headers, (b"transfer-encoding", b"chunked")]
        inbound.write(response_bytes(status, self._with_connection(headers), reason))

    def send(self, data: bytes) -> None:
        if self.inbound is None or not data or not self.begun:
            return
        if self._chunked:
            data = chunk(data)
        elif self._left == _NOTHING:
            return
        elif self._left != _ANYTHING:
            if len(data) > self._left:
                self.break_off()
                return
            self._left -= len(data)
        self.inbound.write(data)

    def end(self) -> None:
        if self.inbound is None or not self.begun:
            return
        if self._left > 0:
            self.break_off()
            return
        if self._chunked:
            self.inbound.hold(LAST_CHUNK)
        self._end()

    def break_off(self) -> None:
        """The answer ends in the middle, and its reader must know: the connection is cut."""
        inbound = self.inbound
        if inbound is not None:
            self._forget()
            inbound.abort()

    def pause(self) -> None:
        """Take no more of the body for now."""
        if self.inbound is not None:
            self.inbound.pause_body()

    def resume(self) -> None:
        if self.inbound is not None:
            self.inbound.resume_body()

    def _with_connection(self, headers: Headers) -> Headers:
        head = self.head
        if head.expects_continue and self.listener is None:
            head.keep_alive = False  # whether its body comes now, nobody can tell
        return headers if head.keep_alive else [*headers, (b"connection", b"close")]

    def _end(self) -> None:
        inbound = self.inbound
        self._forget()
        if inbound is not None:
            inbound.answered(self.head.keep_alive)

    def _forget(self) -> None:
        self.over = True
        self.inbound = None
        self.listener = None
        told, self._when_over = self._when_over, None
        if told is not None:
            told()

    # -- told by the connection -----------------------------------------------------------------------------------

    def lost(self) -> None:
        listener = self.listener
        self._forget()
        if listener is not None:
            listener.gone()

    def full(self) -> None:
        if self.listener is not None:
            self.listener.full()

    def room(self) -> None:
        if self.listener is not None:
            self.listener.room()
