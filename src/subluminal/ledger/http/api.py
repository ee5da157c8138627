"""The HTTP face of a record: queries, and calls as they change as WebSockets. What only the machine itself answers is
in `machine`.

Off unless asked for, and on loopback only; `guard` says who may ask what, `routes` what there is. A WebSocket may carry
the token as the subprotocol `bearer.TOKEN`, because browsers cannot send it otherwise. `aiohttp` is imported only with
this module.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from time import monotonic, time_ns
from typing import Any, TypeVar

from aiohttp import WSMsgType, web

from subluminal import __version__
from subluminal.contracts.errors import FleetError, LedgerError, SubluminalError, UsageError
from subluminal.contracts.filters import EXACT, NUMBER, Filter, Filters, RunFilters, find_filter
from subluminal.ledger.http.answers import json_answer
from subluminal.ledger.http.guard import Guard, add_headers
from subluminal.ledger.http.page import PUBLIC, Page
from subluminal.ledger.http.parameters import MAX_RUNS
from subluminal.ledger.http.record import Changing, Record
from subluminal.ledger.http.routes import BY_PATH, ROUTES
from subluminal.ledger.http.sessions import Sessions
from subluminal.ledger.read.description import describe
from subluminal.ledger.read.timeline import timeline

MAX_BODY_BYTES = 16 << 20
# What is told of a run as one answer; the calls of a larger one are paged.
MOST_EVENTS = 20_000
# How often a stream looks whether its session still stands.
SESSION_LOOK_S = 30
# A stream that cannot go on ends with this and a sentence of at most so many bytes: come again later.
TRY_LATER = 1013
_SENTENCE_BYTES = 123

_Asked = TypeVar("_Asked", bound=Filters)
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def make_app(answerers: Sequence[object], guard: Guard, page: Page) -> web.Application:
    """A route that none of them answers is one that this page does not have, and says so."""
    app = web.Application(
        middlewares=[guard.middleware({**BY_PATH, **PUBLIC}), _sentences], client_max_size=MAX_BODY_BYTES
    )
    app.on_response_prepare.append(add_headers)
    for route in ROUTES:
        found = (getattr(answerer, route.answer, None) for answerer in answerers)
        app.router.add_route(route.method, _pattern(route.path), next(filter(None, found), _not_here))
    app.add_routes(page.routes())
    return app


def _pattern(path: str) -> str:
    """A name in a path is any text: without this, aiohttp would take none with a brace."""
    return path.replace("_id}", "_id:[^/]+}")


async def _not_here(request: web.Request) -> web.StreamResponse:
    raise LedgerError("Over a fleet this is not told: it is known to the machine itself.", hint="Run `sub ui` there.")


@web.middleware
async def _sentences(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Errors as one JSON object with a sentence, never a page and never a traceback."""
    try:
        return await handler(request)
    except UsageError as error:
        return json_answer({"error": str(error), "hint": error.hint}, 400)
    except LedgerError as error:
        return json_answer({"error": str(error), "hint": error.hint}, 404)
    except FleetError as error:
        return json_answer({"error": str(error), "hint": error.hint}, 502)
    except SubluminalError as error:
        return json_answer({"error": str(error), "hint": error.hint}, 500)
    except ConnectionError:
        return json_answer({"error": "whoever asked has gone"}, 400)
    except web.HTTPException as error:
        return json_answer({"error": error.reason}, error.status)


class Api:
    """`told`: what a page is told of itself beside its session."""

    def __init__(
        self, record: Record, changes: Changing, guard: Guard, sessions: Sessions, told: dict[str, str]
    ) -> None:
        self._record = record
        self._changes = changes
        self._guard = guard
        self._sessions = sessions
        self._told = told

    async def _read(self, ask: Callable[[Record], Any]) -> web.Response:
        """In a thread: a long query must not hold up the live stream."""
        return json_answer(await self._record.in_thread(lambda: ask(self._record)))

    # -- runs -------------------------------------------------------------------------------------------------

    async def runs(self, request: web.Request) -> web.StreamResponse:
        filters, limit = read_filters(request, RunFilters, "limit", "cursor"), _number(request, "limit", 50)
        cursor = request.query.get("cursor")

        def ask(record: Record) -> Any:
            page = record.runs(filters, limit, cursor)
            return {"rows": page.rows, "next_cursor": page.next_cursor}

        return await self._read(ask)

    async def run(self, request: web.Request) -> web.StreamResponse:
        return await self._read(lambda record: record.run(request.match_info["run_id"]))

    async def events(self, request: web.Request) -> web.StreamResponse:
        after, limit = _number(request, "after_n", 0), _number(request, "limit", 500)
        if not 1 <= limit <= 10_000:
            raise UsageError("limit must be between 1 and 10000.")
        run_id = request.match_info["run_id"]

        def ask(record: Record) -> Any:
            with record.holding(run_id) as ledger:
                return {"events": list(ledger.timeline(run_id, after_n=after, limit=limit)), "after_n": after}

        return await self._read(ask)

    async def timeline(self, request: web.Request) -> web.StreamResponse:
        run_id = request.match_info["run_id"]

        def ask(record: Record) -> Any:
            if record.run(run_id)["event_count"] > MOST_EVENTS:
                return {"items": [], "whole": False}
            with record.holding(run_id) as ledger:
                return {"items": timeline(ledger, run_id), "whole": True}

        return await self._read(ask)

    async def sparks(self, request: web.Request) -> web.StreamResponse:
        run_ids = _each_run(request)
        return await self._read(lambda record: {"sparks": record.sparks(run_ids)})

    async def recovery(self, request: web.Request) -> web.StreamResponse:
        run_ids = _each_run(request)
        return await self._read(lambda record: {"runs": record.recoveries(run_ids)})

    # -- calls ------------------------------------------------------------------------------------------------

    async def calls(self, request: web.Request) -> web.StreamResponse:
        filters = read_filters(request, Filters, "limit", "cursor", "patience_ms")
        limit, cursor = _number(request, "limit", 50), request.query.get("cursor")
        patience = _number(request, "patience_ms", -1)

        def ask(record: Record) -> Any:
            page = record.calls(filters, limit, cursor, None if patience < 0 else patience / 1000)
            rows = [{**row, "cursor": own} for row, own in zip(page.rows, page.cursors, strict=True)]
            return {"rows": rows, "next_cursor": page.next_cursor}

        return await self._read(ask)

    async def call(self, request: web.Request) -> web.StreamResponse:
        names = _call_names(request)

        def ask(record: Record) -> Any:
            with record.holding_call(*names[:2]) as ledger:
                return describe(ledger, ledger.call(*names))

        return await self._read(ask)

    async def explanation(self, request: web.Request) -> web.StreamResponse:
        names = _call_names(request)
        return await self._read(lambda record: record.explain(*names))

    async def groups(self, request: web.Request) -> web.StreamResponse:
        filters, limit = read_filters(request, Filters, "limit", "by"), _number(request, "limit", 1000)
        by = request.query.getall("by", [])
        return await self._read(lambda record: {"groups": record.groups(filters, by, limit)})

    async def over_time(self, request: web.Request) -> web.StreamResponse:
        filters, parts = read_filters(request, Filters, "parts"), _number(request, "parts", 60)
        return await self._read(lambda record: record.over_time(filters, parts))

    # -- live -------------------------------------------------------------------------------------------------

    async def live_calls(self, request: web.Request) -> web.StreamResponse:
        if not is_upgrade(request):
            return no_socket()
        filters = read_filters(request, Filters, "after")
        after = _number(request, "after", -1)
        cookie = self._guard.cookie(request)
        socket = open_socket(request)
        await socket.prepare(request)

        async def tell() -> None:
            # `send_str` waits for a slow reader: what happens meanwhile waits in the database.
            try:
                async for text in self._changes.follow(filters, None if after < 0 else after):
                    await socket.send_str(text)
            except SubluminalError as error:
                await socket.close(code=TRY_LATER, message=_cut(str(error)))

        async def while_session_stands() -> None:
            while not cookie or self._sessions.holds(cookie, monotonic()):
                await asyncio.sleep(SESSION_LOOK_S)
            await socket.close(code=4401, message=b"the session has ended")

        self._changes.pages += 1
        try:
            await until_closed(socket, tell(), while_session_stands())
        finally:
            self._changes.pages -= 1
        return socket

    # -- the page ---------------------------------------------------------------------------------------------

    async def session(self, request: web.Request) -> web.StreamResponse:
        cookie = self._guard.cookie(request)
        csrf, directory = self._sessions.csrf(cookie), self._sessions.directory(cookie)
        now_ms = time_ns() // 1_000_000
        return json_answer(
            {"csrf": csrf, "version": __version__, "directory": directory, "now_ms": now_ms, **self._told}
        )

    async def end_session(self, request: web.Request) -> web.StreamResponse:
        self._sessions.end(self._guard.cookie(request))
        answer = json_answer({"ended": True})
        answer.del_cookie(self._guard.cookie_name, path="/")
        return answer


def _cut(sentence: str) -> bytes:
    return sentence.encode("utf-8", "replace")[:_SENTENCE_BYTES].decode("utf-8", "ignore").encode()


def is_upgrade(request: web.Request) -> bool:
    return request.headers.get("Upgrade", "").lower() == "websocket"


def no_socket() -> web.Response:
    return json_answer({"error": "this is a WebSocket"}, 426)


def open_socket(request: web.Request) -> web.WebSocketResponse:
    offered = request.headers.get("Sec-WebSocket-Protocol", "")
    protocols = [p.strip() for p in offered.split(",") if p.strip().startswith("bearer.")]
    return web.WebSocketResponse(heartbeat=30, protocols=protocols, max_msg_size=1 << 16)


async def until_closed(socket: web.WebSocketResponse, *work: Awaitable[None]) -> None:
    """Do this until the other side has closed; nothing that it says is listened to."""
    tasks = [asyncio.ensure_future(one) for one in work]
    try:
        async for message in socket:
            if message.type in (WSMsgType.ERROR, WSMsgType.CLOSE):
                break
    finally:
        for task in tasks:
            task.cancel()


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


def read_filters(request: web.Request, kind: type[_Asked], *others: str) -> _Asked:
    """What the query asks for, beside these other parameters."""
    asked = {name: request.query.getall(name) for name in request.query if name not in others}
    for name in asked:
        find_filter(name, kind.table, others)
    return kind(**asked)
