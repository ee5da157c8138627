"""MCP servers over HTTP for tests: the SDK's own as a process, and one that says byte for byte what a test wants.

    with sdk_server(json=True) as server:         server.url, server.restart()
    with typescript_server() as origin:           its /mcp and /sse

    def call(heard, wire):                        runs in the thread of its connection
        wire.json(wire.result({"content": []}))
    with raw_server({"tools/call": call}) as server:
        server.url, server.heard                  every request as it came

What a raw server is not told how to answer, it answers as a small, proper server does: a session is begun, GET is not
allowed, notifications are accepted, a call is answered with its own arguments.
"""

from __future__ import annotations

import atexit
import json
import socket
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Lock, Thread
from typing import Any

import pytest

from harness import npm, sdks
from harness.places import ROOT
from harness.ports import listening

SESSION_ID = "session-1"
READ_BYTES = 1 << 16


class Heard:
    """One request. `headers` have lower-case names; a name that came twice has both values."""

    def __init__(self, method: str, target: str, headers: dict[str, str], body: bytes) -> None:
        self.method = method
        self.target = target
        self.headers = headers
        self.body = body
        try:
            self.message: Any = json.loads(body) if body else None
        except ValueError:
            self.message = None

    @property
    def rpc(self) -> str:
        """The method of the message in it, or that of the request."""
        if isinstance(self.message, dict):
            return str(self.message.get("method", "response"))
        return self.method

    def __repr__(self) -> str:
        return f"{self.method} {self.target} {self.rpc}"


class Wire:
    """The connection that a request came on. `stay` is cleared when it is to be closed after the answer."""

    def __init__(self, connection: socket.socket, heard: Heard, server: RawServer) -> None:
        self.connection = connection
        self.heard = heard
        self.server = server
        self.stay = True

    def send(self, data: bytes) -> None:
        self.connection.sendall(data)

    def head(self, status: int = 200, length: int | None = 0, **headers: str) -> None:
        lines = [f"HTTP/1.1 {status} X"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        lines += [] if length is None else [f"Content-Length: {length}"]
        self.send("\r\n".join(lines).encode() + b"\r\n\r\n")

    def body(self, content: bytes, status: int = 200, **headers: str) -> None:
        self.head(status, len(content), **headers)
        self.send(content)

    def json(self, value: Any, status: int = 200, **headers: str) -> None:
        self.body(json.dumps(value).encode(), status, **{"Content_Type": "application/json", **headers})

    def result(self, result: Any) -> dict[str, Any]:
        return {"jsonrpc": "2.0", "id": self.heard.message["id"], "result": result}

    def stream(self, **headers: str) -> None:
        """An event stream that ends with its connection."""
        self.stay = False
        self.head(200, None, Content_Type="text/event-stream", Connection="close", **headers)

    def event(self, value: Any, **fields: Any) -> None:
        data = value if isinstance(value, str) else json.dumps(value)
        lines = [f"{name}: {field}" for name, field in fields.items()]
        self.send("\n".join([*lines, f"data: {data}"]).encode() + b"\n\n")

    def wait_closed(self) -> None:
        """Until the other side has hung up."""
        self.stay = False
        try:
            while self.connection.recv(READ_BYTES):
                pass
        except OSError:
            pass
        self.server.hung_up.set()


Handler = Callable[[Heard, Wire], None]


class RawServer:
    """`on` maps methods, of messages (`tools/call`) or of requests (`GET`), to who answers them."""

    def __init__(
        self, on: dict[str, Handler], path: str = "/mcp", context: ssl.SSLContext | None = None, port: int = 0
    ) -> None:
        self.on = on
        self._context = context
        self.heard: list[Heard] = []
        self.hung_up = Event()  # some client has, while somebody waited for it
        self._lock = Lock()
        self._connections: set[socket.socket] = set()
        self._listener = listening(port, backlog=512)
        self.port = self._listener.getsockname()[1]
        self.origin = f"http://127.0.0.1:{self.port}"
        self.url = self.origin + path
        Thread(target=self._accept, daemon=True).start()

    def rpcs(self) -> list[str]:
        return [heard.rpc for heard in list(self.heard)]

    def of(self, rpc: str) -> list[Heard]:
        return [heard for heard in list(self.heard) if heard.rpc == rpc]

    @property
    def open_connections(self) -> int:
        return len(self._connections)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)  # else whoever waits in accept takes one more
        self._listener.close()
        with self._lock:
            for connection in list(self._connections):
                connection.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # heads go before bodies here
            with self._lock:
                self._connections.add(connection)
            Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            if self._context is not None:
                connection = self._context.wrap_socket(connection, server_side=True)
            while (heard := _read_request(connection)) is not None:
                self.heard.append(heard)
                wire = Wire(connection, heard, self)
                self.on.get(heard.rpc, self.on.get("*", well_behaved))(heard, wire)
                if not wire.stay:
                    return
        except OSError:
            pass  # clients may hang up
        finally:
            with self._lock:
                self._connections.discard(connection)
            connection.close()


def _read_request(connection: socket.socket) -> Heard | None:
    data = b""
    while b"\r\n\r\n" not in data:
        piece = connection.recv(READ_BYTES)
        if not piece:
            return None
        data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(":")
        known = headers.get(name.lower())
        headers[name.lower()] = value.strip() if known is None else f"{known}, {value.strip()}"
    left = int(headers.get("content-length", 0)) - len(body)
    pieces = [body]
    while left > 0:
        piece = connection.recv(READ_BYTES)
        if not piece:
            return None
        pieces.append(piece)
        left -= len(piece)
    method, target, _ = first.split(" ")
    return Heard(method, target, headers, b"".join(pieces))


def well_behaved(heard: Heard, wire: Wire) -> None:
    message = heard.message
    if heard.method != "POST":
        wire.head(200 if heard.method == "DELETE" else 405)
    elif not isinstance(message, dict) or "id" not in message or "method" not in message:
        wire.head(202)
    elif heard.rpc == "initialize":
        agreed = {"protocolVersion": message["params"]["protocolVersion"], "capabilities": {"tools": {}}}
        wire.json(wire.result({**agreed, "serverInfo": {"name": "raw", "version": "1"}}), Mcp_Session_Id=SESSION_ID)
    elif heard.rpc == "tools/call":
        text = json.dumps(message["params"].get("arguments"))
        wire.json(wire.result({"content": [{"type": "text", "text": text}]}))
    else:
        wire.json(wire.result({}))


@contextmanager
def raw_server(
    on: dict[str, Handler] | None = None, path: str = "/mcp", context: ssl.SSLContext | None = None, port: int = 0
) -> Iterator[RawServer]:
    server = RawServer({} if on is None else on, path, context, port)
    try:
        yield server
    finally:
        server.close()


class _SdkProcess:
    """Loading the SDK takes seconds, so one process has all servers that tests of this process ask for."""

    process: subprocess.Popen[bytes] | None = None

    @classmethod
    def tell(cls, **wanted: Any) -> int:
        if cls.process is None:
            command = [sys.executable, "-m", "harness.sdk_http_server"]
            cls.process = subprocess.Popen(
                command, cwd=ROOT / "tests", stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
            )
            atexit.register(cls.process.kill)
        assert cls.process.stdin is not None and cls.process.stdout is not None
        cls.process.stdin.write(json.dumps(wanted).encode() + b"\n")
        line = cls.process.stdout.readline()
        assert line, "the servers of the SDK did not start"
        return int(line)


class SdkServer:
    def __init__(self, options: dict[str, Any]) -> None:
        self._port = _SdkProcess.tell(**options)
        self.origin = f"http://127.0.0.1:{self._port}"
        self.url = self.origin + ("/sse" if options.get("sse") else "/mcp")

    def restart(self) -> None:
        """On the same port: it knows nobody any more."""
        _SdkProcess.tell(restart=self._port)

    def close(self) -> None:
        _SdkProcess.tell(stop=self._port)


@contextmanager
def typescript_server() -> Iterator[str]:
    """The origin of a server of the TypeScript SDK. Skips where that is not installed."""
    if not sdks.typescript_installed():
        pytest.skip("the TypeScript SDK is not installed: `make sdks` does that")
    program = npm.placed(ROOT / "tests" / "harness" / "typescript_http_server.mjs", sdks.INSTALL_DIR)
    process = subprocess.Popen(["node", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{int(process.stdout.readline())}"
    finally:
        process.kill()
        process.communicate()


@contextmanager
def sdk_server(**options: Any) -> Iterator[SdkServer]:
    server = SdkServer(options)
    try:
        yield server
    finally:
        server.close()
