"""A server that is a command, as the HTTP door serves it: one process for each session of a client.

A session begins with `initialize` and has a name of ours. In the stateless revision there is none: then a run and its
peer have one process together. Bounded: a session that nobody uses ends, and beyond MAX_PROCESSES the one used longest
ago does.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Mapping
from secrets import token_urlsafe
from time import monotonic
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from subluminal.adapters.http.command_session import STATELESS_KEY, CommandSession
from subluminal.adapters.http.era import is_later, is_stateless
from subluminal.adapters.http.paths import MESSAGES, own_path
from subluminal.adapters.listening.front import accepts, check_body
from subluminal.http.heads import HttpFault
from subluminal.mcp.headers import SESSION_ID

if TYPE_CHECKING:
    from subluminal.adapters.http.desk import Desk
    from subluminal.adapters.http.door import Door
    from subluminal.http.inbound import Visit

MAX_PROCESSES = 64
IDLE_SECONDS = 1800
SESSION_ENDED = "the client ended the session"
SESSION_IDLE = "its session was not used for long"


class CommandServer:
    def __init__(self, name: str, command: list[str], environ: Mapping[str, str], public_url: str) -> None:
        self.name = name
        self.door: Door | None = None
        self.metadata = None  # nobody logs in at a command
        self.command = command
        self.environ = environ
        self._path = urlsplit(public_url).path.encode()
        self._paths = (own_path(name), self._path)
        self._sessions: OrderedDict[bytes, CommandSession] = OrderedDict()

    @property
    def words(self) -> list[str]:
        return self.command

    def serves(self, path: bytes) -> bool:
        return path in self._paths or path.startswith(self._path + MESSAGES)

    def arrived(self, visit: Visit, desk: Desk) -> None:
        head = visit.head
        if head.target not in self._paths:
            self._legacy_post(visit, desk)
            return
        session = head.said(SESSION_ID)
        if head.method == b"POST":
            check_body(head)
            self._post(visit, desk, session)
        elif head.method == b"GET":
            self._get(visit, desk, session)
        elif head.method == b"DELETE" and session is not None:
            self._known(session, desk)
            self._end(session, SESSION_ENDED)
            visit.answer(200, [])
        else:
            visit.answer(405, [(b"allow", b"GET, POST, DELETE")])

    # -- requests -------------------------------------------------------------------------------------------------

    def _post(self, visit: Visit, desk: Desk, session: bytes | None) -> None:
        if is_stateless(visit.head) or (session is None and is_later(visit.head)):
            self._of_peer(visit, desk).post(visit)
        elif session is not None:
            self._known(session, desk).post(visit)
        else:
            self._open(desk).post(visit, opens=True)

    def _get(self, visit: Visit, desk: Desk, session: bytes | None) -> None:
        if not accepts(visit.head, b"text/event-stream") or is_stateless(visit.head):
            visit.answer(405, [(b"allow", b"POST")])
        elif session is not None:
            self._known(session, desk).watch(visit)
        else:  # the transport of 2024-11-05 begins with a stream
            opened = self._open(desk)
            opened.watch(visit, self._path + MESSAGES + opened.session)

    def _legacy_post(self, visit: Visit, desk: Desk) -> None:
        session = visit.head.target[len(self._path + MESSAGES) :]
        known = self._sessions.get(session)
        if known is None or known.desk is not desk or not known.replies_on_stream:
            raise HttpFault(404, "there is no such session")
        if visit.head.method != b"POST":
            visit.answer(405, [(b"allow", b"POST")])
            return
        check_body(visit.head)
        known.post(visit)

    # -- sessions -------------------------------------------------------------------------------------------------

    def _known(self, session: bytes, desk: Desk) -> CommandSession:
        known = self._sessions.get(session)
        if known is None or known.desk is not desk:
            raise HttpFault(404, "there is no such session")
        self._sessions.move_to_end(session)
        known.used = monotonic()
        return known

    def _of_peer(self, visit: Visit, desk: Desk) -> CommandSession:
        inbound = visit.inbound
        peer = inbound.notes.peer.pid if inbound is not None and inbound.notes is not None else None
        key = STATELESS_KEY + b"%d:%d" % (id(desk), peer or 0)
        known = self._sessions.get(key)
        return self._known(key, desk) if known is not None else self._open(desk, key)

    def _open(self, desk: Desk, key: bytes | None = None) -> CommandSession:
        if len(self._sessions) >= MAX_PROCESSES:
            idle = next((key for key, each in self._sessions.items() if each.is_idle), None)
            if idle is None:
                raise HttpFault(503, "too many sessions are open here")
            self._end(idle, SESSION_IDLE)
        session = key or token_urlsafe(24).encode()
        opened = self._sessions[session] = CommandSession(self, desk, session)
        return opened

    def opened(self, session: CommandSession, visit: Visit) -> None:
        if self.door is not None:
            self.door.opened(self.name, session.session, visit)

    def forget(self, session: CommandSession) -> None:
        if self._sessions.get(session.session) is session:
            del self._sessions[session.session]

    def _end(self, session: bytes, why: str) -> None:
        known = self._sessions.pop(session, None)
        if known is not None:
            asyncio.get_running_loop().create_task(known.end(why))

    def keep_alive(self) -> None:
        now = monotonic()
        for key, session in list(self._sessions.items()):
            session.keep_alive()
            if session.is_idle and now - session.used > IDLE_SECONDS:
                self._end(key, SESSION_IDLE)

    async def close(self) -> None:
        sessions = list(self._sessions.values())
        self._sessions.clear()
        await asyncio.gather(*(session.end("the proxy ended") for session in sessions))
