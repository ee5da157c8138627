"""Run the HTTP API beside the daemon: its own thread, its own event loop, loopback only."""

from __future__ import annotations

import asyncio
import ipaddress
import os
import secrets
import socket
import threading
from time import monotonic

from aiohttp import web

from subluminal.contracts.errors import UsageError
from subluminal.host.files import read_private
from subluminal.host.home import ledger_db, token_file
from subluminal.ledger.daemon.log import Log
from subluminal.ledger.http.above import Above
from subluminal.ledger.http.api import Api, make_app
from subluminal.ledger.http.changes import Changes
from subluminal.ledger.http.governance import Governance
from subluminal.ledger.http.guard import Guard
from subluminal.ledger.http.machine import Machine
from subluminal.ledger.http.page import Page
from subluminal.ledger.http.record import Here
from subluminal.ledger.http.sessions import Sessions

DEFAULT_PORT = 7411
# Requests that are under way when a server ends; live streams wait for nothing.
GRACE_S = 1.0


def http_token(home: str) -> str:
    """The bearer token of this home, made on first use, readable by its owner only."""
    path = token_file(home)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        token = read_private(path).decode("ascii", "replace").strip()
        if len(token) < 20:
            raise UsageError(f"{path} holds no usable token.", hint="Remove it; a new one is made.") from None
        os.chmod(path, 0o600)
        return token
    with os.fdopen(descriptor, "w") as file:
        token = secrets.token_urlsafe(32)
        file.write(token + "\n")
    return token


def parse_address(text: str) -> tuple[str, int]:
    """`HOST:PORT`, `PORT` or `HOST`; UsageError for anything that is not this machine alone."""
    host, _, port = text.rpartition(":")
    if not host:
        host, port = ("127.0.0.1", text) if text.isdigit() else (text, str(DEFAULT_PORT))
    host = host.strip("[]")
    if not (port.isascii() and port.isdigit() and len(port) < 6 and int(port) < 65536):
        raise UsageError(f"--http {text[:40]!r}: that is no port.", hint="Use for example --http 127.0.0.1:7411.")
    try:
        loopback = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        loopback = False
    if not loopback:
        hint = "The ledger is private to this machine; use 127.0.0.1 or ::1, and a tunnel from elsewhere."
        raise UsageError(f"--http {text!r}: only loopback addresses are served.", hint=hint)
    return host, int(port)


def allowed_hosts(port: int) -> frozenset[str]:
    names = ("127.0.0.1", "localhost", "[::1]")
    return frozenset(f"{name}:{port}" for name in names)


def listen(host: str, port: int, named: str) -> socket.socket:
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        raise UsageError(f"{named}: {error.strerror}.", hint="Choose another port.") from None


class HttpSide:
    """Serves until the process ends. Raises UsageError if the address cannot be had."""

    def __init__(self, home: str, address: str, log: Log, above: Above | None = None) -> None:
        host, port = parse_address(address)
        host = "127.0.0.1" if host == "localhost" else host
        listener = listen(host, port, f"--http {address}")
        self.port = int(listener.getsockname()[1])
        self.origin = (
            f"http://{f'[{host}]' if ':' in host else '127.0.0.1' if host == 'localhost' else host}:{self.port}"
        )
        self._sessions = Sessions()
        self._home, self._above = home, above
        self._token = http_token(home)
        self._loop = asyncio.new_event_loop()
        self._changes: Changes | None = None
        threading.Thread(target=self._run, args=(listener,), name="http", daemon=True).start()
        log(f"HTTP on {host}:{self.port}; the token is in {token_file(home)}")

    @property
    def pages(self) -> int:
        """How many are being looked at."""
        return self._changes.pages if self._changes is not None else 0

    def link(self, path: str, directory: str = "") -> str:
        """An address that opens the page there, once and within a minute, for whoever works in this directory."""
        return f"{self.origin}/link/{self._sessions.link(path, monotonic(), directory)}"

    def committed(self) -> None:
        """The daemon's word, from its own thread, that there is something new."""
        if self._changes is not None and self._changes.pages:
            self._loop.call_soon_threadsafe(self._changes.committed)

    def _run(self, listener: socket.socket) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._serve(listener))

    async def _serve(self, listener: socket.socket) -> None:
        self._changes = Changes(ledger_db(self._home))
        guard = Guard(self._token, allowed_hosts(self.port), self.origin, self._sessions)
        record = Here(ledger_db(self._home), self._above)
        api = Api(record, self._changes, guard, self._sessions, {"home": self._home})
        governance = Governance(self._home, guard, self._sessions, self._above)
        answerers = (api, Machine(self._home, self._above), governance)
        await serve_app(make_app(answerers, guard, Page(guard, self._sessions)), listener)
        await asyncio.Event().wait()


async def serve_app(app: web.Application, listener: socket.socket) -> web.AppRunner:
    """No access log: links and filters are nobody's business."""
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=GRACE_S)
    await runner.setup()
    await web.SockSite(runner, listener).start()
    return runner
