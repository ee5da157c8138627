"""An HTTP server on this machine that answers as it is told, well or badly.

    with scripted_http() as server:
        server.routes["/token"] = (200, {"Content-Type": "application/json"}, b"{}")
        server.seen                    # (method, path with query, headers, body) of every request

A route may also be a function of the request handler, which then writes what it likes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, NamedTuple

Answer = tuple[int, dict[str, str], bytes]
Route = Answer | Callable[[BaseHTTPRequestHandler], None]


class Request(NamedTuple):
    method: str
    target: str
    headers: Any
    body: bytes


class ScriptedHttp:
    def __init__(self) -> None:
        self.routes: dict[str, Route] = {}
        self.seen: list[Request] = []
        scripted = self

        class Handler(BaseHTTPRequestHandler):
            def answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                scripted.seen.append(Request(self.command, self.path, self.headers, body))
                route = scripted.routes.get(self.path.partition("?")[0], (404, {}, b""))
                if callable(route):
                    return route(self)
                status, headers, content = route
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_POST = do_DELETE = answer

            def log_message(self, format: str, *arguments: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.handle_error = lambda *_: None  # type: ignore[method-assign]  # clients may hang up
        self.origin = f"http://127.0.0.1:{self._server.server_address[1]}"
        Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def json(self, path: str, value: Any, status: int = 200, **headers: str) -> None:
        named = {name.replace("_", "-"): text for name, text in headers.items()}
        self.routes[path] = (status, {"Content-Type": "application/json", **named}, json.dumps(value).encode())

    def paths(self) -> list[str]:
        return [f"{request.method} {request.target}" for request in self.seen]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@contextmanager
def scripted_http() -> Iterator[ScriptedHttp]:
    server = ScriptedHttp()
    try:
        yield server
    finally:
        server.close()
