"""Policies and tools for the page, and the few things that may be done on it: each asked of the rooms above.

What writes is confirmed on the page and carries the token of its session (`guard`). Beside that, the process at the
other end must be nobody's: an agent that drives a browser, or has read the token, cannot approve what servers say to
it. Where the system does not tell who asks, nothing is written, and the command line does it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Literal

import msgspec
from aiohttp import web

from subluminal.contracts.errors import LedgerError, UsageError
from subluminal.contracts.vocabulary import CLIENTS, ENVS
from subluminal.host.peers import peer_of_socket
from subluminal.ledger.http.above import Above, Told
from subluminal.ledger.http.answers import json_answer
from subluminal.ledger.http.guard import Guard
from subluminal.ledger.http.sessions import Sessions

MAX_DIRECTORY_CHARS = 4096
MAX_REASON_CHARS = 500
SCOPES = ("session", "persist")


class Kill(msgspec.Struct, forbid_unknown_fields=True):
    run_id: str
    reason: str = ""


class Approve(msgspec.Struct, forbid_unknown_fields=True):
    server_name: str
    key: str
    fingerprint: str


class Promote(msgspec.Struct, forbid_unknown_fields=True):
    call_id: str
    scope: Literal["session", "persist"]
    seen: str
    run_id: str | None = None
    shim_id: str | None = None


class Governance:
    def __init__(self, home: str, guard: Guard, sessions: Sessions, above: Above | None) -> None:
        self._home = home
        self._guard = guard
        self._sessions = sessions
        self._above = above
        self._promoting = asyncio.Lock()

    async def _ask(self, work: Callable[[Above], Told]) -> web.Response:
        above = self._above
        if above is None:
            raise LedgerError("This daemon cannot tell.", hint="Start it with `sub ledgerd`.")
        return json_answer(await asyncio.to_thread(lambda: work(above)))

    async def _promote(self, request: web.Request, work: Callable[[Above], Told]) -> web.Response:
        """One at a time: it may judge the whole past, and threads that wait for it would answer nothing else. Nobody
        waits for those that a page has asked for and left."""
        async with self._promoting:
            if request.transport is None or request.transport.is_closing():
                raise LedgerError("Whoever asked has gone.")
            return await self._ask(work)

    def _directory(self, request: web.Request) -> str:
        """Where the page looks: asked for, or where `sub ui` was started, or nowhere in particular."""
        asked = request.query.get("directory") or self._sessions.directory(self._guard.cookie(request)) or self._home
        if not asked.startswith("/") or len(asked) > MAX_DIRECTORY_CHARS or "\0" in asked:
            raise UsageError(f"{asked[:80]!r} is no directory.", hint="Give the whole path of one.")
        return asked

    # -- read ---------------------------------------------------------------------------------------------------

    async def policies(self, request: web.Request) -> web.StreamResponse:
        directory = self._directory(request)
        who = {name: request.query[name] for name in ("client", "env", "agent_id") if request.query.get(name)}
        for name, words in (("client", CLIENTS), ("env", ENVS)):
            if who.get(name, words[0]) not in words:
                raise UsageError(f"{who[name][:40]!r} is no {name}.", hint=f"Known: {', '.join(words)}.")
        return await self._ask(lambda above: above.policies(directory, who))

    async def policy_diff(self, request: web.Request) -> web.StreamResponse:
        old, new = request.query.get("old", ""), request.query.get("new", "")
        return await self._ask(lambda above: above.policy_diff(old, new))

    async def tools(self, request: web.Request) -> web.StreamResponse:
        directory = self._directory(request)
        return await self._ask(lambda above: above.tools(directory))

    async def tool(self, request: web.Request) -> web.StreamResponse:
        directory, query = self._directory(request), request.query
        return await self._ask(lambda above: above.tool(directory, query.get("server_name", ""), query.get("key", "")))

    async def proposal(self, request: web.Request) -> web.StreamResponse:
        directory, query = self._directory(request), request.query
        call, scope = {name: query.get(name) for name in ("call_id", "run_id", "shim_id")}, query.get("scope", "")
        if call["call_id"] is None or scope not in SCOPES:
            raise UsageError("call_id and scope are needed.", hint=f"scope is {' or '.join(SCOPES)}.")
        return await self._promote(request, lambda above: above.proposal(directory, call, scope))

    # -- write --------------------------------------------------------------------------------------------------

    async def kill(self, request: web.Request) -> web.StreamResponse:
        asked = await _body(request, Kill)
        reason = asked.reason.strip()[:MAX_REASON_CHARS] or "stopped on the page"
        return await self._refusal(request) or await self._ask(lambda above: above.kill(asked.run_id, reason))

    async def approve(self, request: web.Request) -> web.StreamResponse:
        asked, directory = await _body(request, Approve), self._directory(request)
        return await self._refusal(request) or await self._ask(
            lambda above: above.approve(directory, asked.server_name, asked.key, asked.fingerprint)
        )

    async def promote(self, request: web.Request) -> web.StreamResponse:
        asked, directory = await _body(request, Promote), self._directory(request)
        call = {"call_id": asked.call_id, "run_id": asked.run_id, "shim_id": asked.shim_id}
        return await self._refusal(request) or await self._promote(
            request, lambda above: above.promote(directory, call, asked.scope, asked.seen)
        )

    async def _refusal(self, request: web.Request) -> web.Response | None:
        """None: a person's process asks."""
        connection = request.transport.get_extra_info("socket") if request.transport else None
        peer = await asyncio.to_thread(peer_of_socket, connection) if connection is not None else None
        if self._above is None or peer is None or peer.pid is None:
            return json_answer({"error": "who asks cannot be told", "hint": "Use the command line."}, 403)
        run_id = await asyncio.to_thread(self._above.run_of, peer.pid)
        if run_id is None:
            return None
        return json_answer({"error": f"this belongs to run {run_id}: a person does that, not an agent"}, 403)


def _body(request: web.Request, kind: type[Any]) -> Any:
    async def read() -> Any:
        try:
            return msgspec.json.decode(await request.read(), type=kind)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise UsageError(f"That is not what is asked for here: {error}.") from None

    return read()
