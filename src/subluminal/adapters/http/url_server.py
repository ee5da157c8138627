"""A server behind a URL, as the HTTP door serves it: requests go on to it, sessions and streams are its own.

What the client may not choose is set here: Host, what is asked of the encoding, and headers that are injected. What is
ours stays here: who acts, and the token of this door.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from secrets import token_urlsafe
from time import monotonic_ns
from typing import TYPE_CHECKING
from urllib.parse import urljoin, urlsplit

from subluminal.adapters.http.answering import Answering
from subluminal.adapters.http.era import is_stateless
from subluminal.adapters.http.metadata import Metadata
from subluminal.adapters.http.oauth import PROTECTED
from subluminal.adapters.http.paths import MESSAGES, own_path
from subluminal.adapters.http.posting import Posting
from subluminal.adapters.listening.front import check_body
from subluminal.adapters.listening.onward import onward
from subluminal.contracts.errors import SubluminalError
from subluminal.http.heads import Headers, HttpFault, RequestHead, request_lines
from subluminal.http.limits import POOL_CONNECTIONS
from subluminal.http.pool import Pool
from subluminal.http.urls import read_url

if TYPE_CHECKING:
    from subluminal.adapters.http.desk import Desk
    from subluminal.adapters.http.door import Door
    from subluminal.adapters.listening.held import Held
    from subluminal.adapters.upstream.shown import Shown
    from subluminal.contracts.event_stream import Event
    from subluminal.http.inbound import Visit
    from subluminal.http.urls import ServerUrl
    from subluminal.mcp.exchange import Exchange

MAX_ENDPOINTS = 8192
# Each has a connection to the server; the others are for requests.
MAX_STREAMS = POOL_CONNECTIONS * 7 // 8
STREAM_ENDED = "the stream that replies come on has ended"
SESSION_ENDED = "the client ended the session"
_METHODS = (b"POST", b"GET", b"DELETE")


class UrlServer:
    """`public_url` is where clients find it. `door` is told of the sessions that open."""

    def __init__(self, name: str, url: ServerUrl, shown: Shown, public_url: str) -> None:
        self.name = name
        self.door: Door | None = None
        self.url = url
        self.public_url = public_url
        self.pool = Pool(url.origin)
        self.streams: set[Answering] = set()
        self._target = url.target.encode()
        self._shown = shown
        public = urlsplit(public_url)
        self._path = public.path.encode()
        self._paths = (own_path(name), self._path)
        self.metadata_url = f"{public.scheme}://{public.netloc}{PROTECTED}{public.path}"
        self._endpoints: OrderedDict[bytes, _Endpoint] = OrderedDict()
        self.metadata = Metadata(self.pool, url, public_url, public.path)

    @property
    def words(self) -> list[str]:
        return [str(self.url)]

    # -- requests -------------------------------------------------------------------------------------------------

    def serves(self, path: bytes) -> bool:
        return path in self._paths or path in self._endpoints

    def arrived(self, visit: Visit, desk: Desk) -> None:
        head = visit.head
        kept = head.kept
        if kept is not None and kept.notes is not None and (known := kept.notes.notes) is not None:
            visit.listen(Posting(self, visit, desk, desk.exchange(known.session), known.session))
            return
        endpoint = self._endpoints.get(head.target)
        if endpoint is not None:
            self._arrived_at(endpoint, visit, desk)
            return
        if head.target not in self._paths:
            raise HttpFault(404, "there is no such server here")
        if head.method not in _METHODS:
            visit.answer(405, [(b"allow", b"GET, POST, DELETE")])
            return
        session = head.said(b"mcp-session-id")
        stateless = is_stateless(head)
        exchange = desk.exchange(None if stateless else session)
        if head.method == b"POST":
            check_body(head)
            if head.kept is not None and head.kept.notes is not None:
                head.kept.notes.notes = _KnownPost(None if stateless else session)
            visit.listen(Posting(self, visit, desk, exchange, None if stateless else session))
        elif head.method == b"GET" and len(self.streams) >= MAX_STREAMS:
            raise HttpFault(503, "too many streams are open here")
        else:
            visit.listen(_Watching(self, visit, desk, exchange, session))

    def begin(self, posting: Posting, message: bytes | Held) -> Answering:
        answering = Answering(self, posting.visit, posting.desk, posting.exchange, posting)
        answering.ask(message)
        return answering

    def unshown(self, headers: Headers) -> Headers:
        """Headers of an answer without those that repeat what only the server was shown."""
        return self._shown.without(headers)

    def request_lines(self, head: RequestHead) -> bytes:
        """The head of a request as the server gets it, but for its length."""
        injected = self._shown.headers()
        known: _KnownPost | None = None
        if head.kept is not None and head.kept.notes is not None:
            known = head.kept.notes.notes
        if known is not None and (known.injected is injected or known.injected == injected):
            return known.lines
        endpoint = self._endpoints.get(head.target)
        target = self._target if endpoint is None else endpoint.target
        lines = request_lines(head.method, target, onward(head, self.url.origin.authority, injected))
        if known is not None:
            known.lines, known.injected = lines, injected
        return lines

    # -- the transport of 2024-11-05: replies come on the stream that named the address of requests ------------------

    def _arrived_at(self, endpoint: _Endpoint, visit: Visit, desk: Desk) -> None:
        if visit.head.method != b"POST":
            visit.answer(405, [(b"allow", b"POST")])
        elif endpoint.desk is not desk:
            raise HttpFault(404, "this address belongs to another run")
        else:
            check_body(visit.head)
            visit.listen(Posting(self, visit, desk, endpoint.exchange, visit.head.target))

    def rewritten(self, answering: Answering, event: Event) -> bytes:
        """The event that names an address, with an address of ours. One elsewhere is not named at all."""
        named = urljoin(str(self.url), (event.data or b"").decode("utf-8", "replace").strip())
        try:
            url = read_url(named)
        except SubluminalError:
            return b""
        if url.origin != self.url.origin:
            return b""
        self._forget_endpoint(answering)  # a stream has one address, however often it names one
        while len(self._endpoints) >= MAX_ENDPOINTS:
            self._endpoints.popitem(last=False)
        ours = self._path + MESSAGES + token_urlsafe(18).encode()
        self._endpoints[ours] = _Endpoint(url.target.encode(), answering)
        answering.endpoint = ours
        answering.desk.adopt(ours, answering.exchange)
        if self.door is not None:
            self.door.opened(self.name, ours, answering.visit)
        return b"event: endpoint\ndata: " + ours + b"\n\n"

    # -- sessions -------------------------------------------------------------------------------------------------

    def opened(self, desk: Desk, session: bytes, exchange: Exchange, visit: Visit) -> None:
        """A server's answer opens a session."""
        if not desk.knows(session) and not self.is_kept(desk, exchange):
            desk.adopt(session, exchange)
            if self.door is not None:
                self.door.opened(self.name, session, visit)

    def is_kept(self, desk: Desk, exchange: Exchange) -> bool:
        """Whether replies may still come on another stream."""
        return any(exchange is kept for kept in desk.sessions.values())

    def not_known(self, desk: Desk, exchange: Exchange, posting: Posting) -> None:
        """404: the server has forgotten the session. Clients begin another and repeat the call."""
        if posting.reading is not None:
            exchange.not_executed(posting.reading, monotonic_ns())

    def left(self, answering: Answering) -> None:
        self.streams.discard(answering)
        if answering.endpoint is not None:
            self._endpoints.pop(answering.endpoint, None)
            answering.desk.end_session(answering.endpoint, STREAM_ENDED)

    def _forget_endpoint(self, answering: Answering) -> None:
        if answering.endpoint is not None:
            self._endpoints.pop(answering.endpoint, None)
            answering.desk.sessions.pop(answering.endpoint, None)

    def is_listened_to(self, exchange: Exchange) -> bool:
        """Whether replies may come on a stream that is open now."""
        return any(answering.exchange is exchange for answering in self.streams)

    def keep_alive(self) -> None:
        for answering in list(self.streams):
            answering.keep_alive()

    # -- credentials ----------------------------------------------------------------------------------------------

    @property
    def can_renew(self) -> bool:
        return self._shown.can_renew

    def renew(self, then: Callable[[bool], None]) -> None:
        """Ask for another token, beside the loop; `then` hears whether there is one."""

        async def work() -> None:
            then(await self._shown.renew())

        asyncio.get_running_loop().create_task(work())

    async def close(self) -> None:
        await self.pool.close()


class _KnownPost:
    """What was found out about the head of a POST to our own path, which may come again: the body that it states is one
    that we take, its session, and how it goes on with what is injected."""

    __slots__ = ("injected", "lines", "session")

    def __init__(self, session: bytes | None) -> None:
        self.session = session
        self.injected: Headers | None = None
        self.lines = b""


class _Endpoint:
    """Where requests of one stream go."""

    __slots__ = ("desk", "exchange", "target")

    def __init__(self, target: bytes, answering: Answering) -> None:
        self.target = target
        self.desk = answering.desk
        self.exchange = answering.exchange


class _Watching:
    """A GET or DELETE: nothing is judged, and what comes is read on the way."""

    __slots__ = ("_answering", "_desk", "_exchange", "_server", "_session", "_visit")

    def __init__(self, server: UrlServer, visit: Visit, desk: Desk, exchange: Exchange, session: bytes | None) -> None:
        self._server = server
        self._visit = visit
        self._desk = desk
        self._exchange = exchange
        self._session = session
        self._answering: Answering | None = None

    def data(self, data: bytes) -> None:
        """A body that nobody expects has no meaning, and does not go on."""

    def end(self) -> None:
        self._answering = Answering(self._server, self._visit, self._desk, self._exchange, None)
        self._answering.ask(b"")
        if self._visit.head.method == b"DELETE" and self._session is not None:
            self._desk.end_session(self._session, SESSION_ENDED)

    def gone(self) -> None:
        if self._answering is not None:
            self._answering.give_up()

    def full(self) -> None:
        if self._answering is not None:
            self._answering.pause()

    def room(self) -> None:
        if self._answering is not None:
            self._answering.resume()
