"""Who is at the other end of a connection, and who acts on it."""

from __future__ import annotations

import asyncio
from itertools import count
from secrets import token_hex
from typing import TYPE_CHECKING, Any

from subluminal.host.peers import Peer, peer_of_socket
from subluminal.http.heads import Kept, values
from subluminal.producer.visitor import CLIENT_SESSION_HEADERS, IDENTITY_HEADERS, Visitor, visitor_of

if TYPE_CHECKING:
    from subluminal.http.inbound import Inbound, Visit

_LOOPBACK = ("127.", "::1", "::ffff:127.")
_numbers = count()
_this_process = token_hex(8)


class Caller:
    """What is kept of a connection: who holds its other end, and who acts on it where no session says. Its `name` is
    never another's, neither later nor in another process: by it a run may be named."""

    __slots__ = ("_head", "_named", "name", "peer", "visitor")

    def __init__(self, peer: Peer) -> None:
        self.name = f"connection:{_this_process}:{next(_numbers)}"
        self.peer = peer
        self.visitor: Visitor | None = None
        self._named: tuple[object, ...] = ()
        self._head: Kept | None = None  # of the head that said so, if it may come again

    def acting(self, visit: Visit) -> Visitor:
        """Who acts by the headers of this request; the same object while they say the same."""
        head = visit.head
        if self.visitor is not None and head.kept is not None and head.kept is self._head:
            return self.visitor
        headers = head.headers
        named: tuple[object, ...] = tuple(map(head.said, IDENTITY_HEADERS))
        named += tuple(values(headers, header) for header in CLIENT_SESSION_HEADERS)
        if self.visitor is None or self._named != named:
            self._named = named
            self.visitor = visitor_of(headers, self.name, peer=self.peer)
        self._head = head.kept
        return self.visitor


def met(inbound: Inbound, connection: Any) -> None:
    """A connection: who holds its other end is found out beside the loop, before anything is read of it. From then on
    `inbound.notes` is its Caller."""
    if not inbound.remote[0].startswith(_LOOPBACK):
        inbound.welcome(Caller(Peer()))
        return
    found = asyncio.get_running_loop().run_in_executor(None, peer_of_socket, connection)
    found.add_done_callback(lambda done: inbound.welcome(Caller(_found(done))))


def _found(done: asyncio.Future[Peer]) -> Peer:
    """Where the search itself failed, nobody is known: without a token nobody is served then."""
    return Peer() if done.cancelled() or done.exception() is not None else done.result()
