"""The HTTP door: which server a request is for, who sends it, and at which desk it is served."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Protocol

from subluminal.adapters.http.answers import json_answer
from subluminal.adapters.http.desk import Desk, short
from subluminal.adapters.http.paths import MESSAGES
from subluminal.contracts.errors import SubluminalError
from subluminal.http.heads import HttpFault
from subluminal.mcp.refusal import server_gone
from subluminal.producer.pool import NoRoom
from subluminal.producer.visitor import IDENTITY_HEADERS, Visitor, VisitorRefused, visitor_of

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from subluminal.adapters.http.metadata import Metadata
    from subluminal.adapters.listening.callers import Caller
    from subluminal.adapters.listening.front import Front
    from subluminal.host.config import Config
    from subluminal.http.inbound import Visit
    from subluminal.producer.producer import Producer
    from subluminal.producer.visitors import Visitors

MAX_SESSIONS = 16_384
_SessionKey = tuple[str, bytes, int | None]  # server, session, and the process that has it
# Of runs that have ended, but have sessions that may be used again.
MAX_DESKS = 1024


class Served(Protocol):
    """A server behind this door, whatever it is."""

    name: str
    door: Door | None

    @property
    def words(self) -> Sequence[str]:
        """Its command, or its address."""

    @property
    def metadata(self) -> Metadata | None:
        """Of logins at it, where there can be such."""

    def arrived(self, visit: Visit, desk: Desk) -> None:
        """A request for it. Raises HttpFault for what it does not take."""

    def serves(self, path: bytes) -> bool:
        """Whether a path, exactly as it was sent, leads to it."""

    def keep_alive(self) -> None: ...
    async def close(self) -> None: ...


class Admitted:
    """What was found out about a head: it holds for every request of its connection that has the same.

    `visitor`: who it is, where that is told by the session. `desk`: where it was served last; another one serves it
    when its run has ended meanwhile. `notes` are the server's own.
    """

    __slots__ = ("desk", "notes", "server", "visitor")

    def __init__(self, server: Served, visitor: Visitor | None, desk: Desk) -> None:
        self.server = server
        self.visitor = visitor
        self.desk = desk
        self.notes: Any = None


class Door:
    """`urls`: where clients find each server."""

    def __init__(
        self, servers: list[Served], front: Front, visitors: Visitors, config: Config, urls: dict[str, str]
    ) -> None:
        self.urls = urls
        self._servers = servers
        self._front = front
        self._visitors = visitors
        self._config = config
        self._words = {server.name: server.words for server in servers}
        self._desks: OrderedDict[tuple[Hashable, str], Desk] = OrderedDict()
        self._by_session: OrderedDict[_SessionKey, Visitor] = OrderedDict()
        self._owners: dict[tuple[str, bytes], int | None] = {}  # the process that began a session

    # -- requests -------------------------------------------------------------------------------------------------

    def arrived(self, visit: Visit) -> None:
        try:
            kept = visit.head.kept
            if kept is None or kept.notes is None:
                self._admit(visit)
            else:
                self._admit_again(visit, kept.notes)
        except HttpFault as fault:
            json_answer(visit, fault.status, server_gone(b"null", f"{fault.why}."))
        except VisitorRefused as refused:
            json_answer(visit, 400, server_gone(b"null", f"{refused.why}."))
        except NoRoom:
            json_answer(visit, 503, server_gone(b"null", "too many runs have calls open here; try again later."))
        except (SubluminalError, OSError) as fault:  # its run can have no record here
            why = fault.strerror if isinstance(fault, OSError) else str(fault)
            json_answer(visit, 503, server_gone(b"null", f"calls cannot be recorded here: {why}."))

    def _admit(self, visit: Visit) -> None:
        head, inbound = visit.head, visit.inbound
        assert inbound is not None
        caller: Caller = inbound.notes
        self._front.admit(head)
        if not self._front.knows(caller.peer):
            raise HttpFault(403, "this address serves the user who started it, and nobody else")
        path = head.target.partition(b"?")[0]
        for server in self._servers:
            if server.metadata is not None and server.metadata.serves(head.target, len(self._servers) == 1):
                server.metadata.arrived(visit)
                return
            if server.serves(path):
                session = self._session(visit, server.name, caller)
                visitor = (session and self._by_session.get(session)) or self._visitor(visit, caller, session)
                desk = self._desk(visitor, server.name)
                if head.kept is not None:
                    head.kept.notes = Admitted(server, visitor if session else None, desk)
                server.arrived(visit, desk)
                return
        raise HttpFault(404, "there is no such server here")

    def _admit_again(self, visit: Visit, admitted: Admitted) -> None:
        visitor = admitted.visitor
        if visitor is None:
            assert visit.inbound is not None
            visitor = visit.inbound.notes.acting(visit)
        if self._visitors.producer_for(visitor) is not admitted.desk.producer:
            admitted.desk = self._desk(visitor, admitted.server.name)
        admitted.server.arrived(visit, admitted.desk)

    def _desk(self, visitor: Visitor, server_name: str) -> Desk:
        """The run that a request of this visitor belongs to, at this server."""
        producer = self._visitors.producer_for(visitor)
        key = (self._visitors.recognise(visitor), server_name)
        desk = self._desks.get(key)
        if desk is None:
            desk = self._desks[key] = Desk(
                producer, self._config.server(server_name), self._config, self._words.get(server_name, ())
            )
        elif desk.producer is not producer:  # its run has ended meanwhile, and goes on
            desk.take_up(producer)
            self._desks.move_to_end(key)
        return desk

    # -- who it is ------------------------------------------------------------------------------------------------

    def _session(self, visit: Visit, server_name: str, caller: Caller) -> _SessionKey | None:
        """The session, where nothing else tells who it is."""
        session = visit.head.said(b"mcp-session-id")
        if MESSAGES in visit.head.target:  # of 2024-11-05: the address is the session
            session = visit.head.target
        if session is None or any(map(visit.head.said, IDENTITY_HEADERS)):
            return None
        name = short(session)
        pid = caller.peer.pid
        owner = self._owners.get((server_name, name), pid)
        # A search for a process has bounds: one that was found once, and not the next time, is still the same.
        return server_name, name, owner if pid is None or owner is None else pid

    def _visitor(self, visit: Visit, caller: Caller, session: _SessionKey | None) -> Visitor:
        if session is None:
            return caller.acting(visit)
        known = visitor_of(visit.head.headers, f"mcp:{session[1].decode('latin-1')}", peer=caller.peer)
        self._remember(session, known)
        return known

    def opened(self, server_name: str, session: bytes, visit: Visit) -> None:
        """A session that an answer opens belongs to whoever asked."""
        inbound = visit.inbound
        if inbound is not None and inbound.notes is not None and inbound.notes.visitor is not None:
            self._remember((server_name, short(session), inbound.notes.peer.pid), inbound.notes.visitor)
            inbound.notes.visitor = None  # the next session on this connection is another

    def _remember(self, key: _SessionKey, visitor: Visitor) -> None:
        while len(self._by_session) >= MAX_SESSIONS:
            oldest, _ = self._by_session.popitem(last=False)
            self._owners.pop(oldest[:2], None)
        self._by_session[key] = visitor
        self._owners.setdefault(key[:2], key[2])

    # -- now and then, and at the end -----------------------------------------------------------------------------

    def calls_open(self, producer: Producer) -> int:
        """Or 1, where none is, but something must still be judged."""
        desks = [desk for desk in self._desks.values() if desk.producer is producer]
        return sum(desk.calls_open for desk in desks) or int(any(desk.is_busy for desk in desks))

    def ended(self, producer: Producer) -> None:
        """A run has ended, with no call of it open. Its sessions may go on, and with them it."""
        for key, desk in list(self._desks.items()):
            if desk.producer is producer and (not desk.sessions or len(self._desks) > MAX_DESKS):
                del self._desks[key]

    def tick(self, now_ns: int) -> None:
        for desk in list(self._desks.values()):
            desk.tick(now_ns)

    def keep_alive(self) -> None:
        for server in self._servers:
            server.keep_alive()

    async def close(self) -> None:
        for server in self._servers:
            await server.close()
        for desk in self._desks.values():
            desk.close("the proxy ended")
        self._desks.clear()
