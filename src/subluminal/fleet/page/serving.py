"""The page over a fleet as a process: where it listens, who is let in, and how it ends."""

from __future__ import annotations

import asyncio
import secrets
import signal
import socket
from collections.abc import Callable, Mapping
from time import monotonic
from typing import NamedTuple

from subluminal.contracts.errors import UsageError
from subluminal.fleet.client import Fleet
from subluminal.fleet.folded import FoldedRuns
from subluminal.fleet.page.live import Live
from subluminal.fleet.page.record import PATIENCE_S, Explain, FleetRecord
from subluminal.ledger.http.api import Api, make_app
from subluminal.ledger.http.guard import Guard
from subluminal.ledger.http.page import Page
from subluminal.ledger.http.serve import DEFAULT_PORT, allowed_hosts, listen, serve_app
from subluminal.ledger.http.sessions import Sessions

HOST = "127.0.0.1"
WAY_IN = "the session of a page is needed: run `sub ui --fleet URL`"


class Shown(NamedTuple):
    """`environ` has the token that may read; `home`: whose policies may be those that decided."""

    url: str
    environ: Mapping[str, str]
    home: str
    explain: Explain


def serve(shown: Shown, *, port: int | None, path: str, ready: Callable[[str, str], None]) -> None:
    """Until SIGINT or SIGTERM. `ready` hears where the page is, and the link that opens it once."""
    listener = _listener(port)
    folded = FoldedRuns(shown.home)
    try:
        asyncio.run(_serve(shown, listener, folded, path, ready))
    finally:
        folded.close()


def _listener(port: int | None) -> socket.socket:
    if port is not None:
        return listen(HOST, port, f"--port {port}")
    try:
        return listen(HOST, DEFAULT_PORT, f"--port {DEFAULT_PORT}")
    except UsageError:  # the page of this machine has it
        return listen(HOST, 0, "--port")


async def _serve(
    shown: Shown, listener: socket.socket, folded: FoldedRuns, path: str, ready: Callable[[str, str], None]
) -> None:
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    port = int(listener.getsockname()[1])
    origin = f"http://{HOST}:{port}"
    sessions = Sessions()
    # A token that nobody is told: only sessions of the page are let in.
    guard = Guard(secrets.token_urlsafe(32), allowed_hosts(port), origin, sessions, WAY_IN)
    record = FleetRecord(lambda: Fleet(shown.url, PATIENCE_S, shown.environ), folded, shown.explain)
    api = Api(record, Live(record), guard, sessions, {"home": "", "fleet": shown.url})
    runner = await serve_app(make_app((api,), guard, Page(guard, sessions)), listener)
    try:
        ready(origin + path, f"{origin}/link/{sessions.link(path, monotonic())}")
        await ended.wait()
    finally:
        await runner.cleanup()
