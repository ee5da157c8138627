"""The HTTP face of the ledger: queries, live streams as WebSockets, and ingestion where no unix socket can be had.

Off unless asked for, and on loopback only; `guard` says who may ask what, `routes` what there is. A WebSocket may carry
the token as the subprotocol `bearer.TOKEN`, because browsers cannot send it otherwise.

It reads the database read-only and speaks to the daemon through its socket: nothing here can do more than a local
command. `aiohttp` is imported only with this module.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from time import monotonic, time_ns
from typing import Any, TypeVar

import msgspec
from aiohttp import WSMsgType, web

from subluminal import __version__
from subluminal.contracts.errors import LedgerError, SubluminalError, UsageError
from subluminal.contracts.figures import Reading
from subluminal.contracts.filters import (
    EXACT,
    NUMBER,
    EventFilters,
    Filter,
    Filters,
    HintFilters,
    RunFilters,
    find_filter,
)
from subluminal.host.home import ledger_db, ledger_socket
from subluminal.host.record.ledgerd import socket_address
from subluminal.ledger.daemon.submit import submit
from subluminal.ledger.http.answers import json_answer
from subluminal.ledger.http.changes import Changes
from subluminal.ledger.http.governance import Governance
from subluminal.ledger.http.guard import Guard, add_headers
from subluminal.ledger.http.metrics import CONTENT_TYPE, metrics_text
from subluminal.ledger.http.openapi import document
from subluminal.ledger.http.page import PUBLIC, Page
from subluminal.ledger.http.parameters import MAX_RUNS
from subluminal.ledger.http.routes import BY_PATH, ROUTES
from subluminal.ledger.http.sessions import Sessions
from subluminal.ledger.read.description import describe
from subluminal.ledger.read.figures import Watch
from subluminal.ledger.read.hints import hint_rules
from subluminal.ledger.read.ledger import Ledger, open_ledger
from subluminal.ledger.read.over_time import over_time
from subluminal.ledger.read.recovery import recoveries
from subluminal.ledger.read.refused import Sources
from subluminal.ledger.read.sparks import spark
from subluminal.ledger.read.timeline import timeline

MAX_BODY_BYTES = 16 << 20
# What is told of a run as one answer; the calls of a larger one are paged.
MOST_EVENTS = 20_000
# How often a stream looks whether its session still stands.
SESSION_LOOK_S = 30

_Asked = TypeVar("_Asked", bound=Filters)
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def make_app(api: Api, governance: Governance, guard: Guard, page: Page) -> web.Application:
    app = web.Application(
        middlewares=[guard.middleware({**BY_PATH, **PUBLIC}), _sentences], client_max_size=MAX_BODY_BYTES
    )
    app.on_response_prepare.append(add_headers)
    for route in ROUTES:
        answer = getattr(api, route.answer, None) or getattr(governance, route.answer)
        app.router.add_route(route.method, _pattern(route.path), answer)
    app.add_routes(page.routes())
    return app


def _pattern(path: str) -> str:
    """A name in a path is any text: without this, aiohttp would take none with a brace."""
    return path.replace("_id}", "_id:[^/]+}")


@web.middleware
async def _sentences(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Errors as one JSON object with a sentence, never a page and never a traceback."""
    try:
        return await handler(request)
    except UsageError as error:
        return json_answer({"error": str(error), "hint": error.hint}, 400)
    except LedgerError as error:
        return json_answer({"error": str(error), "hint": error.hint}, 404)
    except SubluminalError as error:
        return json_answer({"error": str(error), "hint": error.hint}, 500)
    except ConnectionError:
        return json_answer({"error": "whoever asked has gone"}, 400)
    except web.HTTPException as error:
        return json_answer({"error": error.reason}, error.status)


class Api:
    def __init__(self, home: str, guard: Guard, sessions: Sessions, changes: Changes) -> None:
        self._home = home
        self._path = ledger_db(home)
        self._socket = ledger_socket(home)
        self._guard = guard
        self._sessions = sessions
        self._changes = changes
        self.sources: Sources | None = None
        self.fleet_figures: Callable[[], list[Reading]] | None = None
        self._watch = Watch(home)
        self._watching = asyncio.Lock()

    async def _read(self, ask: Callable[[Ledger], Any]) -> web.Response:
        """Answer from the database, in a thread: a long query must not hold up the live stream."""

        def work() -> Any:
            with open_ledger(self._path) as ledger:
                return ask(ledger)

        return json_answer(await asyncio.to_thread(work))

    async def openapi(self, request: web.Request) -> web.StreamResponse:
        return json_answer(document())

    # -- runs -------------------------------------------------------------------------------------------------

    async def runs(self, request: web.Request) -> web.StreamResponse:
        filters, limit = _filters(request, RunFilters, "limit", "cursor"), _number(request, "limit", 50)
        cursor = request.query.get("cursor")

        def ask(ledger: Ledger) -> Any:
            page = ledger.runs(filters, limit=limit, cursor=cursor)
            return {"rows": page.rows, "next_cursor": page.next_cursor}

        return await self._read(ask)

    async def run(self, request: web.Request) -> web.StreamResponse:
        return await self._read(lambda ledger: ledger.run(request.match_info["run_id"]))

    async def events(self, request: web.Request) -> web.StreamResponse:
        after, limit = _number(request, "after_n", 0), _number(request, "limit", 500)
        if not 1 <= limit <= 10_000:
            raise UsageError("limit must be between 1 and 10000.")
        run_id = request.match_info["run_id"]
        return await self._read(
            lambda ledger: {"events": list(ledger.timeline(run_id, after_n=after, limit=limit)), "after_n": after}
        )

    async def timeline(self, request: web.Request) -> web.StreamResponse:
        run_id = request.match_info["run_id"]

        def ask(ledger: Ledger) -> Any:
            whole = ledger.run(run_id)["event_count"] <= MOST_EVENTS
            return {"items": timeline(ledger, run_id) if whole else [], "whole": whole}

        return await self._read(ask)

    async def sparks(self, request: web.Request) -> web.StreamResponse:
        run_ids = _each_run(request)
        return await self._read(
            lambda ledger: {"sparks": [{"run_id": run_id, "calls": spark(ledger, run_id)} for run_id in run_ids]}
        )

    async def recovery(self, request: web.Request) -> web.StreamResponse:
        run_ids = _each_run(request)
        return await self._read(lambda ledger: {"runs": recoveries(ledger, run_ids, self.sources)})

    # -- calls ------------------------------------------------------------------------------------------------

    async def calls(self, request: web.Request) -> web.StreamResponse:
        filters, limit = _filters(request, Filters, "limit", "cursor", "patience_ms"), _number(request, "limit", 50)
        cursor, patience = request.query.get("cursor"), _number(request, "patience_ms", -1)

        def ask(ledger: Ledger) -> Any:
            patience_s = None if patience < 0 else patience / 1000
            page = ledger.calls(filters, limit=limit, cursor=cursor, patience_s=patience_s)
            rows = [{**row, "cursor": own} for row, own in zip(page.rows, page.cursors, strict=True)]
            return {"rows": rows, "next_cursor": page.next_cursor}

        return await self._read(ask)

    async def call(self, request: web.Request) -> web.StreamResponse:
        names = _call_names(request)
        return await self._read(lambda ledger: describe(ledger, ledger.call(*names)))

    async def groups(self, request: web.Request) -> web.StreamResponse:
        filters, limit = _filters(request, Filters, "limit", "by"), _number(request, "limit", 1000)
        by = request.query.getall("by", [])
        return await self._read(lambda ledger: {"groups": ledger.group(filters, by=by, limit=limit)})

    async def over_time(self, request: web.Request) -> web.StreamResponse:
        filters, parts = _filters(request, Filters, "parts"), _number(request, "parts", 60)
        return await self._read(lambda ledger: over_time(ledger, filters, parts))

    async def hints(self, request: web.Request) -> web.StreamResponse:
        filters = _filters(request, HintFilters)
        return await self._read(lambda ledger: {"rules": hint_rules(ledger, filters, self.sources)})

    # -- what comes in ----------------------------------------------------------------------------------------

    async def ingest(self, request: web.Request) -> web.StreamResponse:
        lines = (await request.read()).split(b"\n")

        def work() -> dict[str, Any]:
            outcomes = list(submit(lines))
            bad = [{"line": o.line_no, "error": o.error} for o in outcomes if o.error is not None]
            known = sum(outcome.duplicate for outcome in outcomes)
            return {"stored": len(outcomes) - len(bad) - known, "known": known, "bad": bad}

        result = await asyncio.to_thread(work)
        return json_answer(result, 422 if result["bad"] else 200)

    # -- live -------------------------------------------------------------------------------------------------

    async def live(self, request: web.Request) -> web.StreamResponse:
        if not _is_upgrade(request):
            return _no_socket()
        follow = {"control": "follow", **_filters(request, EventFilters).asked}
        socket = _socket(request)
        await socket.prepare(request)
        address, directory = socket_address(self._socket)
        try:
            reader, writer = await asyncio.open_unix_connection(address, limit=4 << 20)
        except OSError:
            await socket.close(code=1013, message=b"the ledger daemon is not running")
            return socket
        finally:
            if directory >= 0:
                os.close(directory)
        writer.write(msgspec.json.encode(follow) + b"\n")
        try:
            await _until_closed(socket, _relay(reader, socket))
        finally:
            writer.close()
        return socket

    async def live_calls(self, request: web.Request) -> web.StreamResponse:
        if not _is_upgrade(request):
            return _no_socket()
        filters = _filters(request, Filters, "after")
        after = _number(request, "after", -1)
        cookie = self._guard.cookie(request)
        socket = _socket(request)
        await socket.prepare(request)

        async def tell() -> None:
            # `send_str` waits for a slow reader: what happens meanwhile waits in the database.
            async for text in self._changes.follow(filters, None if after < 0 else after):
                await socket.send_str(text)

        async def while_session_stands() -> None:
            while not cookie or self._sessions.holds(cookie, monotonic()):
                await asyncio.sleep(SESSION_LOOK_S)
            await socket.close(code=4401, message=b"the session has ended")

        self._changes.pages += 1
        try:
            await _until_closed(socket, tell(), while_session_stands())
        finally:
            self._changes.pages -= 1
        return socket

    # -- figures ----------------------------------------------------------------------------------------------

    async def metrics(self, request: web.Request) -> web.StreamResponse:
        async with self._watching:  # two that scrape at once must not count the same twice
            watched = await asyncio.to_thread(self._look)
        return web.Response(text=metrics_text(watched), headers={"Content-Type": CONTENT_TYPE})

    def _look(self) -> list[Reading]:
        return [*self._watch.look(), *(self.fleet_figures() if self.fleet_figures is not None else [])]

    # -- the page ---------------------------------------------------------------------------------------------

    async def session(self, request: web.Request) -> web.StreamResponse:
        cookie = self._guard.cookie(request)
        csrf, directory = self._sessions.csrf(cookie), self._sessions.directory(cookie)
        now_ms = time_ns() // 1_000_000
        return json_answer(
            {"csrf": csrf, "version": __version__, "home": self._home, "directory": directory, "now_ms": now_ms}
        )

    async def end_session(self, request: web.Request) -> web.StreamResponse:
        self._sessions.end(self._guard.cookie(request))
        answer = json_answer({"ended": True})
        answer.del_cookie(self._guard.cookie_name, path="/")
        return answer


def _is_upgrade(request: web.Request) -> bool:
    return request.headers.get("Upgrade", "").lower() == "websocket"


def _no_socket() -> web.Response:
    return json_answer({"error": "this is a WebSocket"}, 426)


def _socket(request: web.Request) -> web.WebSocketResponse:
    offered = request.headers.get("Sec-WebSocket-Protocol", "")
    protocols = [p.strip() for p in offered.split(",") if p.strip().startswith("bearer.")]
    return web.WebSocketResponse(heartbeat=30, protocols=protocols, max_msg_size=1 << 16)


async def _until_closed(socket: web.WebSocketResponse, *work: Awaitable[None]) -> None:
    """Do this until the other side has closed; nothing that it says is listened to."""
    tasks = [asyncio.ensure_future(one) for one in work]
    try:
        async for message in socket:
            if message.type in (WSMsgType.ERROR, WSMsgType.CLOSE):
                break
    finally:
        for task in tasks:
            task.cancel()


async def _relay(reader: asyncio.StreamReader, socket: web.WebSocketResponse) -> None:
    """One event line, one message. `send_str` waits for a slow reader, and so does the daemon."""
    await reader.readline()  # the daemon's word that it follows
    while line := await reader.readline():
        await socket.send_str(line.decode().rstrip("\n"))
    await socket.close(code=1001, message=b"the ledger daemon has ended")


def _call_names(request: web.Request) -> tuple[str, str | None, str | None]:
    return request.match_info["call_id"], request.query.get("run_id"), request.query.get("shim_id")


def _each_run(request: web.Request) -> list[str]:
    run_ids: list[str] | None = Filter("run_id", "", EXACT, "").read(request.query.getall("run_id", []))
    if not run_ids or len(run_ids) > MAX_RUNS:
        raise UsageError(f"Name between 1 and {MAX_RUNS} runs with run_id.")
    return run_ids


def _number(request: web.Request, name: str, default: int) -> int:
    """Read as the numbers of filters are: once, in ASCII digits, and not so many that `int` would refuse them."""
    asked = Filter(name, "", NUMBER, "").read(request.query.getall(name, []))
    return default if asked is None else int(asked)


def _filters(request: web.Request, kind: type[_Asked], *others: str) -> _Asked:
    """What the query asks for, beside these other parameters."""
    asked = {name: request.query.getall(name) for name in request.query if name not in others}
    for name in asked:
        find_filter(name, kind.table, others)
    return kind(**asked)
