"""What a server answers to one request: passed on as it comes, and read on the way.

Event streams pass event by event, as bytes; a JSON answer as a whole, or in pieces if it is too large to hold. Which
call a message answers is the exchange's business.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import monotonic_ns
from typing import TYPE_CHECKING, Any

from subluminal.adapters.http.answers import json_answer, one_body
from subluminal.adapters.http.oauth import named_metadata, rewritten_challenge
from subluminal.contracts.event_stream import Event, EventStream, Part, event_bytes
from subluminal.http.heads import Headers, ResponseHead, media_type, response_lines, values, without
from subluminal.http.outbound import WholeAsker
from subluminal.mcp.faults import fault
from subluminal.mcp.refusal import server_gone

if TYPE_CHECKING:
    from subluminal.adapters.http.desk import Desk
    from subluminal.adapters.http.posting import Posting
    from subluminal.adapters.http.url_server import UrlServer
    from subluminal.adapters.listening.held import Held
    from subluminal.host.oversize import Oversize
    from subluminal.http.inbound import Visit
    from subluminal.mcp.exchange import Exchange

EVENT_STREAM = b"text/event-stream"
_DROPPED = frozenset((b"content-length", b"content-encoding"))
CLIENT_LEFT = "the client closed the connection"
LIST_TOO_LARGE = "its list of tools is too large for policy to be applied to it"
STREAM_CUT = "the server ended its stream without a reply"


class Answering(WholeAsker):
    """Asker of the request. `posting` is None for a stream that the client only listens to."""

    __slots__ = (
        "_asked", "_big", "_head", "_message", "_over", "_pieces", "_posting", "_renewed", "_sending", "_server",
        "_size", "_stream", "desk", "endpoint", "exchange", "visit",
    )  # fmt: skip

    def __init__(
        self, server: UrlServer, visit: Visit, desk: Desk, exchange: Exchange, posting: Posting | None
    ) -> None:
        self._server = server
        self.visit = visit
        self.desk = desk
        self.exchange = exchange
        self._posting = posting
        self._asked: Any = None
        self._message = b""
        self._head: ResponseHead | None = None
        self._stream: EventStream | None = None
        self._pieces: list[bytes] = []
        self._size = 0
        self._big: Oversize | None = None
        self.endpoint: bytes | None = None  # the address that this stream has named, in the transport of 2024-11-05
        self._over = False
        self._sending = False
        self._renewed = False

    # -- asking ---------------------------------------------------------------------------------------------------

    def ask(self, message: bytes | Held) -> None:
        body, started, length = b"", None, None
        if isinstance(message, bytes):
            self._message = body = message
        else:
            started, length = message.pump, message.size
        head = self.visit.head
        lines = self._server.request_lines(head)
        self._sending = True
        self._asked = self._server.pool.ask(head.method, head.target, lines, body, self, started, length)
        self._sending = False

    def recorded(self) -> None:
        """Whatever the server answers comes later, and `head` or `failed` before it."""

    def give_up(self) -> None:
        """The client has left. In the stateless revision this is its cancel; elsewhere a reply may still be asked for
        on another stream, so the call stays open as long as its session."""
        if self._over:
            return
        self._over = True
        self._server.pool.give_up(self._asked)
        self._server.left(self)
        if self._posting is None:
            return
        if self._server.is_kept(self.desk, self.exchange):
            self.desk.client_left(self.exchange, self._posting.ids, self._server.is_listened_to)
        else:
            self._do(self._end_calls, "CANCELLED", "unknown", CLIENT_LEFT)

    def pause(self) -> None:
        self._server.pool.pause(self._asked)

    def resume(self) -> None:
        self._server.pool.resume(self._asked)

    # -- the server answers ---------------------------------------------------------------------------------------

    def head(self, head: ResponseHead) -> None:
        self.desk.later.before_answer()
        self._head = head
        if head.kept is not None and head.kept.notes is not None:
            return  # a JSON answer, known again
        coding = b",".join(values(head.headers, b"content-encoding")).strip().lower()
        if coding not in (b"", b"identity"):
            self._refuse("its answer is encoded, though it was asked not to")
            return
        if 300 <= head.status < 400:
            self._refuse(
                f"it redirects elsewhere ({head.status}), which is not followed; configure the address it means"
            )
            return
        if head.status == 200 and media_type(head.said(b"content-type")) == EVENT_STREAM:
            self._adopt_session(head.said(b"mcp-session-id"))
            self._stream = EventStream(self.desk.held_bytes)
            self.visit.begin(200, self._headers(head), None, head.reason)
            self._server.streams.add(self)

    def whole(self, head: ResponseHead, content: bytes) -> None:
        desk = self.desk
        if head.kept is not None and head.kept.notes is not None and len(content) <= desk.config.max_inspect_bytes:
            if not self._over:
                self._head = head
                desk.do(self._whole, content, needs_state=self.exchange.needs_state(content))
        else:
            self.head(head)
            self.data(content)
            self.end()

    def data(self, data: bytes) -> None:
        if self._over:
            return
        if self._stream is not None:
            for item in self._stream.feed(data):
                if type(item) is Event:
                    self.desk.do(self._event, item, needs_state=self.exchange.needs_state(item.data or b""))
                else:
                    self._do(self._part, item)
            return
        self._size += len(data)
        if self._big is not None:
            self._big.feed(data)
            self.visit.send(data)
            return
        self._pieces.append(data)
        if self._size > self.desk.config.max_inspect_bytes and not self.exchange.holds_list(self._size):
            self._begin_large()

    def end(self) -> None:
        if self._over or self._head is None:
            return
        if self._stream is not None:
            self._do(self._stream_ended)
        elif self._big is not None:
            self._do(self._large_ended)
        else:
            body = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
            needs_state = self.exchange.needs_state(body) if self._head.status == 200 else self.exchange.is_watched
            self.desk.do(self._whole, body, needs_state=needs_state)

    def failed(self, why: str) -> None:
        if self._over:
            return
        if self._sending:  # the turn that sends it is not over: its decision is not recorded yet
            asyncio.get_running_loop().call_soon(self.failed, why)
            return
        self.desk.later.before_answer()
        if self._stream is not None or self.visit.begun:
            self._do(self._cut, why)
        else:
            self._refuse(why)

    def full(self) -> None:
        """The server takes no more for now: only a message from a file is sent in pieces."""

    def room(self) -> None:
        if self._posting is not None:
            self._posting.more()

    def _do(self, work: Callable[..., None], *args: Any) -> None:
        self.desk.do(work, *args, needs_state=self.exchange.is_watched)

    # -- events ---------------------------------------------------------------------------------------------------

    def _event(self, event: Event) -> None:
        if event.data is None or (event.name != b"message" and event.name != b""):
            self.visit.send(self._server.rewritten(self, event) if event.name == b"endpoint" else event.raw)
            return
        if event.data[:1].isspace():  # what stands first tells a batch from a message
            event.data = event.data.strip()
        now_ns = monotonic_ns()
        self.exchange.server_message(event.data, now_ns)
        self.desk.carry_out(_Events(self.visit, event), now_ns)

    def _part(self, part: Part) -> None:
        if self._big is None and self.exchange.may_edit:
            self._server.pool.give_up(self._asked)
            self._cut(LIST_TOO_LARGE)
            return
        if self._big is None:
            from subluminal.host.oversize import Oversize  # few have such a message

            self._big = Oversize(False, 0, strict=False)
        self._big.feed(part.data)
        self.visit.send(part.raw)
        if part.last:
            big, self._big = self._big, None
            big.scan.finish()
            self.exchange.server_scanned(big.scan, big.size, big.stream_hash())
            self.desk.carry_out(_Events(self.visit, None), monotonic_ns())

    def keep_alive(self) -> None:
        """A comment, between two events: somebody on the way may close what is silent for long."""
        if self._stream is not None and self._stream.between_events and self._big is None:
            self.visit.send(b": \n\n")

    def _stream_ended(self) -> None:
        assert self._stream is not None
        self.visit.send(self._stream.rest())
        self.visit.end()
        self._finish(STREAM_CUT)

    # -- whole answers --------------------------------------------------------------------------------------------

    def _whole(self, body: bytes) -> None:
        head = self._head
        assert head is not None
        known: _KnownAnswer | None = None if head.kept is None else head.kept.notes
        if known is not None:
            if known.session is not None:
                self._adopt_session(known.session)
            self._json(_Whole(self.visit, 200, known.lines), body)
            return
        if head.status == 401 and not self._renewed and self._message and self._server.can_renew:
            self._renewed = True
            self._server.renew(self._again)
            return
        headers = self._headers(head)
        session = head.said(b"mcp-session-id")
        if head.status == 200 and session is not None:
            self._adopt_session(session)
        elif head.status == 404 and self._posting is not None:
            self._server.not_known(self.desk, self.exchange, self._posting)
        if body and media_type(head.said(b"content-type")) == b"application/json":
            if head.status == 200 and head.kept is not None:
                head.kept.notes = _KnownAnswer(response_lines(200, headers), session)
            self._json(_Whole(self.visit, head.status, headers), body)
            return
        self.visit.answer(head.status, headers, b"" if head.status == 202 else body)
        self._finish(f"the server answered {head.status} without a reply")

    def _json(self, party: _Whole, body: bytes) -> None:
        """The answer leaves before the call is settled."""
        now_ns = monotonic_ns()
        self.exchange.server_message(body.strip() if body[:1].isspace() else body, now_ns)
        self.desk.carry_out(party, now_ns)
        self._finish("the server answered without a reply")

    def _again(self, renewed: bool) -> None:
        """The server did not take what we showed it, so nothing was done: once more, with what there is now."""
        if self._over or self.visit.over:
            return
        if not renewed:
            self._do(self._whole, b"".join(self._pieces))
            return
        self._head = None
        self._pieces = []
        self._size = 0
        self.ask(self._message)

    def _begin_large(self) -> None:
        from subluminal.host.oversize import Oversize  # few have such a message

        head = self._head
        assert head is not None
        if self.exchange.may_edit:
            self._refuse(LIST_TOO_LARGE)
            return
        if head.status == 200:
            self._adopt_session(head.said(b"mcp-session-id"))
        self._big = Oversize(False, 0, strict=False)
        length = head.said(b"content-length")
        self.visit.begin(head.status, self._headers(head), int(length) if length else None, head.reason)
        for piece in self._pieces:
            self._big.feed(piece)
            self.visit.send(piece)
        self._pieces = []

    def _large_ended(self) -> None:
        big, self._big = self._big, None
        assert big is not None
        big.scan.finish()
        self.exchange.server_scanned(big.scan, big.size, big.stream_hash())
        self.visit.end()
        self.desk.carry_out(None, monotonic_ns())
        self._finish(STREAM_CUT)

    # -- the end --------------------------------------------------------------------------------------------------

    def _refuse(self, why: str) -> None:
        """The server has not answered, or not so that it could be passed on: 502, and an error that can be read."""
        self._server.pool.give_up(self._asked)
        self._do(self._answer_for_it, f"The tool server {self._server.name} did not answer: {why}.")

    def _answer_for_it(self, message: str) -> None:
        ids = self._posting.ids if self._posting is not None else []
        replies = [server_gone(id_raw, message) for id_raw in ids] or [server_gone(b"null", message)]
        json_answer(self.visit, 502, one_body(replies))
        self._finish(message, "ERROR", "transport")

    def _cut(self, why: str) -> None:
        self.visit.break_off()
        self._finish(f"the answer was cut: {why}", "ERROR", "transport")

    def _finish(self, why: str, status: str = "ERROR", error_class: str = "transport") -> None:
        """Nothing more comes here. What is not answered may be on another stream of its session, if it has one."""
        self._over = True
        self._asked = None  # what refers to each other would be kept until it is looked for
        if self._stream is not None or self.endpoint is not None:
            self._server.left(self)
        posting = self._posting
        if posting is None or not posting.waits:
            self._posting = None
            return
        accepted = self._head is not None and self._head.status == 202
        elsewhere = (self._stream is not None or accepted) and self._server.is_kept(self.desk, self.exchange)
        if elsewhere:
            self.desk.client_left(self.exchange, posting.ids, self._server.is_listened_to)
        else:
            self._do(self._end_calls, status, error_class, why)

    def _end_calls(self, status: str, error_class: str, why: str) -> None:
        if self._posting is None:
            return
        for id_raw in self._posting.ids:
            self.exchange.unanswerable(id_raw, status, fault(error_class, why))
        self.desk.carry_out(None, monotonic_ns())

    # -- heads ----------------------------------------------------------------------------------------------------

    def _headers(self, head: ResponseHead) -> Headers:
        headers = self._server.unshown(without(head.headers, _DROPPED))
        if head.status == 401 or head.status == 403:
            self._server.metadata.challenged(named_metadata(headers))
            headers = rewritten_challenge(headers, self._server.metadata_url)
        return headers

    def _adopt_session(self, session: bytes | None) -> None:
        if session is not None and self._posting is not None:
            self._server.opened(self.desk, session, self.exchange, self.visit)


class _Events:
    """The party for one event of a stream: it passes as it came; what we add is an event of its own."""

    __slots__ = ("_event", "_visit")

    def __init__(self, visit: Visit, event: Event | None) -> None:
        self._visit = visit
        self._event = event

    def forward(self, messages: list[Any]) -> None:
        """Nothing of a server's goes to a server."""

    def answer(self, messages: list[bytes]) -> None:
        event = self._event
        for message in messages:
            if event is not None and message is event.data:
                self._visit.send(event.raw)
            else:
                self._visit.send(event_bytes(message))


class _KnownAnswer:
    """What was found out about the head of a JSON answer with status 200, which may come again."""

    __slots__ = ("lines", "session")

    def __init__(self, lines: bytes, session: bytes | None) -> None:
        self.lines = lines
        self.session = session


class _Whole:
    """The party for a JSON answer: what is added to it becomes one array with it."""

    __slots__ = ("_headers", "_status", "_visit")

    def __init__(self, visit: Visit, status: int, headers: Headers | bytes) -> None:
        self._visit = visit
        self._status = status
        self._headers = headers

    def forward(self, messages: list[Any]) -> None:
        """Nothing of a server's goes to a server."""

    def answer(self, messages: list[bytes]) -> None:
        body = messages[0]
        if len(messages) > 1:
            body = b"[" + b",".join(message.strip(b"[] \t\r\n") for message in messages) + b"]"
        if isinstance(self._headers, bytes):
            self._visit.answer_as(self._headers, body)
        else:
            self._visit.answer(self._status, self._headers, b"" if self._status == 202 else body)
