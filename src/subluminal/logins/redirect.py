"""The end of a login in the browser: one redirect to a port of this machine, or its address pasted by the user.

Any page and any program of this machine can talk to the port. Only a request for our path, with our own `Host` (a page
of another site that was made to resolve to this machine sends its own) and with this login's `state` counts; the rest
is answered and forgotten, and the first that counts ends it. Browsers open connections that they do not use, so several
are read at once.
"""

from __future__ import annotations

import os
import selectors
import socket
import time
from hmac import compare_digest
from typing import NamedTuple
from urllib.parse import parse_qsl, urlsplit

from subluminal.contracts.errors import LoginError
from subluminal.logins.wording import said

HOST = "127.0.0.1"
PATH = "/callback"
MAX_HEAD_BYTES = 16 * 1024
MAX_CONNECTIONS = 32
_PAGE = "<!doctype html><meta charset=utf-8><title>Subluminal</title><p style='font:1.2em sans-serif;margin:3em'>{}</p>"
_DONE = "Subluminal has what it needs. You can close this page."
_NOT_DONE = "The login did not succeed. The terminal says why. You can close this page."
_OTHER = "This is not the end of a login that Subluminal waits for."


class Redirected(NamedTuple):
    """What the authorization server sent back."""

    code: str
    iss: str | None

    def __repr__(self) -> str:
        return "Redirected(...)"


class Listener:
    """`redirect_uri` is good from now on; `wait` serves it."""

    def __init__(self, port: int = 0) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._socket.bind((HOST, port))
            self._socket.listen(4 * MAX_CONNECTIONS)
        except OSError as error:
            self._socket.close()
            hint = "Choose another with --callback-port, or none for any that is free."
            raise LoginError(f"port {port} of this machine cannot be used: {error.strerror}", hint=hint) from None
        self._socket.setblocking(False)
        self.port: int = self._socket.getsockname()[1]
        self.redirect_uri = f"http://{HOST}:{self.port}{PATH}"
        self._heads: dict[socket.socket, bytes] = {}

    def wait(self, state: str, seconds: float, pasting: int | None = None) -> Redirected:
        """The redirect with this `state`. `pasting` is a terminal where its address may be pasted instead."""
        end = time.monotonic() + seconds
        with selectors.DefaultSelector() as selector:
            selector.register(self._socket, selectors.EVENT_READ)
            if pasting is not None:
                selector.register(pasting, selectors.EVENT_READ)
            while (left := end - time.monotonic()) > 0:
                for key, _ in selector.select(left):
                    found = None
                    if key.fileobj is self._socket:
                        self._accept(selector)
                    elif key.fileobj == pasting:
                        found = self._pasted(key.fd, selector, state)
                    elif isinstance(key.fileobj, socket.socket):
                        found = self._read(key.fileobj, selector, state)
                    if found is not None:
                        return _checked(found)
        hint = "Log in again, and finish it in the browser in time; --timeout gives more of it."
        raise LoginError(f"nobody came back from the browser within {seconds:g} seconds", hint=hint)

    def close(self) -> None:
        for connection in [self._socket, *self._heads]:
            connection.close()
        self._heads.clear()

    # -- the browser ----------------------------------------------------------------------------------------------

    def _accept(self, selector: selectors.BaseSelector) -> None:
        try:
            connection, _ = self._socket.accept()
        except OSError:
            return
        if len(self._heads) >= MAX_CONNECTIONS:
            self._drop(next(iter(self._heads)), selector)  # the oldest, which never asked for anything
        connection.setblocking(False)
        self._heads[connection] = b""
        selector.register(connection, selectors.EVENT_READ)

    def _read(self, connection: socket.socket, selector: selectors.BaseSelector, state: str) -> dict[str, str] | None:
        if connection not in self._heads:
            return None
        try:
            data = connection.recv(MAX_HEAD_BYTES)
        except BlockingIOError:
            return None
        except OSError:
            data = b""
        head = self._heads[connection] = self._heads[connection] + data
        if data and b"\r\n\r\n" not in head and len(head) < MAX_HEAD_BYTES:
            return None
        found, status, words = self._judge(head, state) if b"\r\n\r\n" in head else (None, "400 Bad Request", _OTHER)
        _answer(connection, status, words)
        self._drop(connection, selector)
        return found

    def _judge(self, head: bytes, state: str) -> tuple[dict[str, str] | None, str, str]:
        first, *lines = head.partition(b"\r\n\r\n")[0].decode("latin-1").split("\r\n")
        words = first.split(" ")
        hosts = [line.partition(":")[2].strip() for line in lines if line.lower().startswith("host:")]
        if hosts != [f"{HOST}:{self.port}"]:
            return None, "403 Forbidden", _OTHER
        path, _, query = words[1].partition("?") if len(words) == 3 else ("", "", "")
        if path != PATH:
            return None, "404 Not Found", _OTHER
        if words[0] != "GET":
            return None, "405 Method Not Allowed", _OTHER
        found = _parameters(query, state)
        if found is None:
            return None, "400 Bad Request", _OTHER
        return found, "200 OK", _NOT_DONE if "error" in found else _DONE

    def _drop(self, connection: socket.socket, selector: selectors.BaseSelector) -> None:
        selector.unregister(connection)
        self._heads.pop(connection, None)
        connection.close()

    # -- the terminal ---------------------------------------------------------------------------------------------

    def _pasted(self, terminal: int, selector: selectors.BaseSelector, state: str) -> dict[str, str] | None:
        data = os.read(terminal, MAX_HEAD_BYTES)
        if not data:
            selector.unregister(terminal)
            return None
        text = data.decode("utf-8", "replace").strip()
        if not text:
            return None
        try:
            found = _parameters(urlsplit(text).query, state)
        except ValueError:
            found = None
        if found is None:
            raise LoginError("what was pasted is not the address that this login ends at", hint="Log in again.")
        return found


def _parameters(query: str, state: str) -> dict[str, str] | None:
    """Those of our redirect; None for any other: no state or another one, or a name twice."""
    try:
        pairs = parse_qsl(query, keep_blank_values=True, max_num_fields=32)
    except ValueError:
        return None
    found = dict(pairs)
    if len(found) < len(pairs) or not compare_digest(found.get("state", "").encode(), state.encode()):
        return None
    return found if "code" in found or "error" in found else None


def _checked(found: dict[str, str]) -> Redirected:
    if "error" in found:
        why = said(found.get("error_description"))
        raise LoginError(f"the login was refused: {said(found['error'])}{f' ({why})' if why else ''}")
    return Redirected(found["code"], found.get("iss"))


def _answer(connection: socket.socket, status: str, words: str) -> None:
    body = _PAGE.format(words).encode()
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {len(body)}\r\n"
        "Cache-Control: no-store\r\nReferrer-Policy: no-referrer\r\nX-Content-Type-Options: nosniff\r\n"
        "Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'\r\nConnection: close\r\n\r\n"
    )
    try:
        connection.send(head.encode() + body)  # a new connection takes so little at once
        connection.shutdown(socket.SHUT_WR)
    except OSError:
        pass
