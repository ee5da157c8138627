"""What only the machine itself answers: events in, events out, hints, figures, and the document of all that.

It reads the database read-only and speaks to the daemon through its socket: nothing here can do more than a local
command.
"""

from __future__ import annotations

import asyncio
import os
from typing import Any

import msgspec
from aiohttp import web

from subluminal.contracts.figures import Reading
from subluminal.contracts.filters import EventFilters, HintFilters
from subluminal.host.home import ledger_db, ledger_socket
from subluminal.host.record.ledgerd import socket_address
from subluminal.ledger.daemon.submit import submit
from subluminal.ledger.http.above import Above
from subluminal.ledger.http.answers import json_answer
from subluminal.ledger.http.api import is_upgrade, no_socket, open_socket, read_filters, until_closed
from subluminal.ledger.http.metrics import CONTENT_TYPE, metrics_text
from subluminal.ledger.http.openapi import document
from subluminal.ledger.read.figures import Watch
from subluminal.ledger.read.hints import hint_rules
from subluminal.ledger.read.ledger import open_ledger


class Machine:
    def __init__(self, home: str, above: Above | None) -> None:
        self._path = ledger_db(home)
        self._socket = ledger_socket(home)
        self._above = above
        self._watch = Watch(home)
        self._watching = asyncio.Lock()

    async def openapi(self, request: web.Request) -> web.StreamResponse:
        return json_answer(document())

    async def hints(self, request: web.Request) -> web.StreamResponse:
        filters = read_filters(request, HintFilters)
        sources = None if self._above is None else self._above.messages

        def work() -> Any:
            with open_ledger(self._path) as ledger:
                return {"rules": hint_rules(ledger, filters, sources)}

        return json_answer(await asyncio.to_thread(work))

    async def ingest(self, request: web.Request) -> web.StreamResponse:
        lines = (await request.read()).split(b"\n")

        def work() -> dict[str, Any]:
            outcomes = list(submit(lines))
            bad = [{"line": o.line_no, "error": o.error} for o in outcomes if o.error is not None]
            known = sum(outcome.duplicate for outcome in outcomes)
            return {"stored": len(outcomes) - len(bad) - known, "known": known, "bad": bad}

        result = await asyncio.to_thread(work)
        return json_answer(result, 422 if result["bad"] else 200)

    async def live(self, request: web.Request) -> web.StreamResponse:
        if not is_upgrade(request):
            return no_socket()
        follow = {"control": "follow", **read_filters(request, EventFilters).asked}
        socket = open_socket(request)
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
            await until_closed(socket, _relay(reader, socket))
        finally:
            writer.close()
        return socket

    async def metrics(self, request: web.Request) -> web.StreamResponse:
        async with self._watching:  # two that scrape at once must not count the same twice
            watched = await asyncio.to_thread(self._look)
        return web.Response(text=metrics_text(watched), headers={"Content-Type": CONTENT_TYPE})

    def _look(self) -> list[Reading]:
        return [*self._watch.look(), *([] if self._above is None else self._above.fleet_figures())]


async def _relay(reader: asyncio.StreamReader, socket: web.WebSocketResponse) -> None:
    """One event line, one message. `send_str` waits for a slow reader, and so does the daemon."""
    await reader.readline()  # the daemon's word that it follows
    while line := await reader.readline():
        await socket.send_str(line.decode().rstrip("\n"))
    await socket.close(code=1001, message=b"the ledger daemon has ended")
