"""Run the HTTP API beside the daemon: its own thread, its own event loop, loopback only."""

from __future__ import annotations

import asyncio
import ipaddress
import os
import secrets
import socket
import threading

from aiohttp import web

from subluminal.contracts.errors import UsageError
from subluminal.host.files import read_private
from subluminal.host.home import token_file
from subluminal.ledger.daemon.log import Log
from subluminal.ledger.http.api import make_app

DEFAULT_PORT = 7411


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


def serve_in_thread(home: str, address: str, log: Log) -> int:
    """Serve until the process ends; returns the port. Raises UsageError if the address cannot be had."""
    host, port = parse_address(address)
    try:
        listener = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        raise UsageError(f"--http {address}: {error.strerror}.", hint="Choose another port.") from None
    bound = int(listener.getsockname()[1])
    app = make_app(home, http_token(home), allowed_hosts(bound))

    async def serve() -> None:
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.SockSite(runner, listener).start()
        await asyncio.Event().wait()

    threading.Thread(target=asyncio.run, args=(serve(),), name="http", daemon=True).start()
    log(f"HTTP on {host}:{bound}; the token is in {token_file(home)}")
    return bound
