"""The page of `sub ui`: its files, the link that opens it, and what stands there for whoever has no session."""

from __future__ import annotations

import asyncio
import os
from time import monotonic

from aiohttp import web

from subluminal.host.peers import peer_of_socket
from subluminal.ledger.http.answers import json_answer
from subluminal.ledger.http.guard import Guard
from subluminal.ledger.http.routes import Route
from subluminal.ledger.http.sessions import Sessions
from subluminal.ui.files import SERVED, SURFACES, content

LINK = "/link/{code}"
# Whoever reaches us may have these: nothing in them is anybody's. What a surface shows without a session is empty.
PUBLIC = {("GET", path): Route("GET", path, "", "", public=True) for path in (LINK, *SERVED, *SURFACES)}


class Page:
    def __init__(self, guard: Guard, sessions: Sessions) -> None:
        self._guard = guard
        self._sessions = sessions
        self._files = {path: (content(name), kind) for path, (name, kind) in SERVED.items()}
        self._document, self._landing = content("index.html"), content("landing.html")

    def routes(self) -> list[web.RouteDef]:
        named = dict.fromkeys(SURFACES, self._surface) | dict.fromkeys(SERVED, self._file)
        return [*(web.get(path, answer) for path, answer in named.items()), web.get(LINK, self._open, allow_head=False)]

    async def _file(self, request: web.Request) -> web.StreamResponse:
        body, kind = self._files[request.path]
        return web.Response(body=body, content_type=kind, charset="utf-8")

    async def _surface(self, request: web.Request) -> web.StreamResponse:
        """A link on a foreign page comes without the cookie: the landing page asks once more, as ourselves."""
        known = self._sessions.holds(self._guard.cookie(request), monotonic())
        body = self._document if known else self._landing
        return web.Response(body=body, content_type="text/html", charset="utf-8")

    async def _open(self, request: web.Request) -> web.StreamResponse:
        """Only a browser that goes there may spend a link, not one that fetches ahead; and only our own user's, where
        the system tells: the link stood on the command line of whoever opened the browser."""
        if request.headers.get("Sec-Fetch-Dest", "document") != "document" or "Sec-Purpose" in request.headers:
            return json_answer({"error": "a link is opened in a browser, once"}, 403)
        if not await asyncio.to_thread(_is_our_user, request):
            return json_answer({"error": "this link belongs to another user"}, 403)
        opened = self._sessions.redeem(request.match_info["code"], monotonic())
        if opened is None:
            return web.Response(body=self._landing, status=403, content_type="text/html", charset="utf-8")
        cookie, path = opened
        answer = web.Response(status=303, headers={"Location": path})
        answer.set_cookie(self._guard.cookie_name, cookie, path="/", httponly=True, samesite="Strict")
        return answer


def _is_our_user(request: web.Request) -> bool:
    connection = request.transport.get_extra_info("socket") if request.transport else None
    uid = peer_of_socket(connection).uid if connection is not None else None
    return uid in (None, 0, os.geteuid())
