"""The HTTP face of the ledger: queries, the live stream as a WebSocket, and ingestion where no unix socket can be had.

Off unless asked for, loopback only, and a web page in the user's browser counts as an attacker: every request needs
the bearer token of `SUB_HOME/http_token`, a Host header that names this server (DNS rebinding), and, where the browser
sends an Origin, one that is this server too. A WebSocket may carry the token as the subprotocol `bearer.TOKEN`,
because browsers cannot send it otherwise.

It reads the database read-only and speaks to the daemon through its socket: nothing here can do more than a local
command. `aiohttp` is imported only with this module.
"""

from __future__ import annotations

import asyncio
import hmac
import os
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import msgspec
from aiohttp import WSMsgType, web

from subluminal.contracts.errors import LedgerError, SubluminalError, UsageError
from subluminal.contracts.filters import NUMBER, EventFilters, Filter, Filters, RunFilters, find_filter
from subluminal.contracts.jsontext import escaped
from subluminal.host.home import ledger_db, ledger_socket
from subluminal.host.record.ledgerd import socket_address
from subluminal.ledger.daemon.submit import submit
from subluminal.ledger.http.openapi import document
from subluminal.ledger.read.ledger import Ledger, open_ledger

MAX_BODY_BYTES = 16 << 20

_Asked = TypeVar("_Asked", bound=Filters)
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def make_app(home: str, token: str, hosts: frozenset[str]) -> web.Application:
    """The application. `hosts` are the Host headers that mean this server."""
    app = web.Application(middlewares=[_guard(token, hosts), _sentences], client_max_size=MAX_BODY_BYTES)
    api = Api(home)
    app.add_routes(
        [
            web.get("/v1/openapi.json", api.openapi),
            web.get("/v1/runs", api.runs),
            web.get("/v1/runs/{run_id}", api.run),
            web.get("/v1/runs/{run_id}/events", api.events),
            web.get("/v1/calls", api.calls),
            web.get("/v1/calls/{call_id}", api.call),
            web.get("/v1/groups", api.groups),
            web.post("/v1/events", api.ingest),
            web.get("/v1/live", api.live),
        ]
    )
    return app


def _json(value: Any, status: int = 200) -> web.Response:
    text = escaped(msgspec.json.encode(value).decode())
    return web.Response(text=text, status=status, content_type="application/json")


def _guard(token: str, hosts: frozenset[str]) -> Any:
    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.headers.get("Host", "").lower() not in hosts:
            return _json({"error": "this Host is not served here"}, 421)
        origin = request.headers.get("Origin")
        if origin is not None and origin.lower().removeprefix("http://") not in hosts:
            return _json({"error": "requests from other web pages are refused"}, 403)
        if not hmac.compare_digest(_presented(request).encode("utf-8", "replace"), token.encode()):
            return _json({"error": "a bearer token is needed; it is in SUB_HOME/http_token"}, 401)
        return await handler(request)

    return guard


def _presented(request: web.Request) -> str:
    kind, _, value = request.headers.get("Authorization", "").partition(" ")
    if kind.lower() == "bearer":
        return value.strip()
    for protocol in request.headers.get("Sec-WebSocket-Protocol", "").split(","):
        if protocol.strip().startswith("bearer."):
            return protocol.strip()[len("bearer.") :]
    return ""


@web.middleware
async def _sentences(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Errors as one JSON object with a sentence, never a page and never a traceback."""
    try:
        return await handler(request)
    except UsageError as error:
        return _json({"error": str(error), "hint": error.hint}, 400)
    except LedgerError as error:
        return _json({"error": str(error), "hint": error.hint}, 404)
    except SubluminalError as error:
        return _json({"error": str(error), "hint": error.hint}, 500)
    except web.HTTPException as error:
        return _json({"error": error.reason}, error.status)


class Api:
    def __init__(self, home: str) -> None:
        self._path = ledger_db(home)
        self._socket = ledger_socket(home)

    async def _read(self, ask: Callable[[Ledger], Any]) -> web.Response:
        """Answer from the database, in a thread: a long query must not hold up the live stream."""

        def work() -> Any:
            with open_ledger(self._path) as ledger:
                return ask(ledger)

        return _json(await asyncio.to_thread(work))

    async def openapi(self, request: web.Request) -> web.StreamResponse:
        return _json(document())

    async def runs(self, request: web.Request) -> web.StreamResponse:
        filters, limit = _filters(request, RunFilters, "limit", "cursor"), _number(request, "limit", 50)
        cursor = request.query.get("cursor")
        return await self._read(lambda ledger: _page(ledger.runs(filters, limit=limit, cursor=cursor)))

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

    async def calls(self, request: web.Request) -> web.StreamResponse:
        filters, limit = _filters(request, Filters, "limit", "cursor"), _number(request, "limit", 50)
        cursor = request.query.get("cursor")
        return await self._read(lambda ledger: _page(ledger.calls(filters, limit=limit, cursor=cursor)))

    async def call(self, request: web.Request) -> web.StreamResponse:
        run_id = request.query.get("run_id")
        return await self._read(lambda ledger: ledger.call(request.match_info["call_id"], run_id))

    async def groups(self, request: web.Request) -> web.StreamResponse:
        filters, limit = _filters(request, Filters, "limit", "by"), _number(request, "limit", 1000)
        by = request.query.getall("by", [])
        return await self._read(lambda ledger: {"groups": ledger.group(filters, by=by, limit=limit)})

    async def ingest(self, request: web.Request) -> web.StreamResponse:
        lines = (await request.read()).split(b"\n")

        def work() -> dict[str, Any]:
            outcomes = list(submit(lines))
            bad = [{"line": o.line_no, "error": o.error} for o in outcomes if o.error is not None]
            known = sum(outcome.duplicate for outcome in outcomes)
            return {"stored": len(outcomes) - len(bad) - known, "known": known, "bad": bad}

        result = await asyncio.to_thread(work)
        return _json(result, 422 if result["bad"] else 200)

    async def live(self, request: web.Request) -> web.StreamResponse:
        if request.headers.get("Upgrade", "").lower() != "websocket":
            return _json({"error": "this is a WebSocket"}, 426)
        follow = {"control": "follow", **_filters(request, EventFilters).asked}
        offered = request.headers.get("Sec-WebSocket-Protocol", "")
        protocols = [p.strip() for p in offered.split(",") if p.strip().startswith("bearer.")]
        socket = web.WebSocketResponse(heartbeat=30, protocols=protocols, max_msg_size=1 << 16)
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
        relay = asyncio.create_task(_relay(reader, socket))
        try:
            async for message in socket:
                if message.type in (WSMsgType.ERROR, WSMsgType.CLOSE):
                    break
        finally:
            relay.cancel()
            writer.close()
        return socket


async def _relay(reader: asyncio.StreamReader, socket: web.WebSocketResponse) -> None:
    """One event line, one message. `send_str` waits for a slow reader, and so does the daemon."""
    await reader.readline()  # the daemon's word that it follows
    while line := await reader.readline():
        await socket.send_str(line.decode().rstrip("\n"))
    await socket.close(code=1001, message=b"the ledger daemon has ended")


def _page(page: Any) -> dict[str, Any]:
    return {"rows": page.rows, "next_cursor": page.next_cursor}


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
