"""`sub proxy mcp` in a test, and a client that sends exactly the bytes a test wants.

with proxy(tmp_path, policy, url=server.url) as door:
    door.post({"jsonrpc": ...}).json()
    door.raw(b"POST ...").status
door.events.events()            after the block it has ended and every event is written
"""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from harness.shim import isolated_env, write_policy
from harness.sink import EventFile

ACCEPT = "application/json, text/event-stream"
SECONDS = 20.0


class Answer:
    """`reader` is open as long as the connection is, for streams."""

    def __init__(self, status: int, headers: dict[str, list[str]], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body

    def json(self) -> Any:
        if self.header("content-type").startswith("text/event-stream"):
            return self.events()[-1]
        return json.loads(self.body)

    def events(self) -> list[Any]:
        lines = self.body.decode().replace("\r\n", "\n").split("\n")
        return [json.loads(line[5:]) for line in lines if line.startswith("data:") and line[5:].strip()]

    def header(self, name: str) -> str:
        return ", ".join(self.headers.get(name, []))

    @property
    def error(self) -> dict[str, Any]:
        error: dict[str, Any] = self.json()["error"]
        return error

    @property
    def text(self) -> str:
        """Of a tool's result."""
        return str(self.json()["result"]["content"][0]["text"])


class Connection:
    """One connection, kept."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), SECONDS)
        self._file = self.socket.makefile("rb")

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def head(self) -> tuple[int, dict[str, list[str]]]:
        line = self._file.readline()
        if not line:
            raise ConnectionError("closed without an answer")
        status = int(line.split()[1])
        headers: dict[str, list[str]] = {}
        while (line := self._file.readline()) not in (b"\r\n", b""):
            name, _, value = line.decode("latin-1").partition(":")
            headers.setdefault(name.lower(), []).append(value.strip())
        return (status, headers) if status >= 200 else self.head()

    def read_chunk(self) -> bytes:
        size = int(self._file.readline() or b"0", 16)
        data = self._file.read(size)
        self._file.readline()
        return data

    def answer(self) -> Answer:
        status, headers = self.head()
        if headers.get("transfer-encoding") == ["chunked"]:
            body = b"".join(iter(self.read_chunk, b""))
        else:
            body = self._file.read(int(headers.get("content-length", ["0"])[0]))
        return Answer(status, headers, body)

    def at_end(self) -> bool:
        """Whether the other side has closed, after everything it had to say."""
        return self._file.read(1) == b""

    def close(self) -> None:
        self._file.close()
        self.socket.close()


class Proxy:
    def __init__(self, port: int, path: str, events: EventFile, process: subprocess.Popen[bytes]) -> None:
        self.port = port
        self.path = path
        self.url = f"http://127.0.0.1:{port}{path}"
        self.events = events
        self.process = process
        self.expected_status = 0
        self.session: str | None = None
        self.headers: dict[str, str] = {}  # sent with every request

    def connect(self) -> Connection:
        return Connection(self.port)

    def raw(self, data: bytes) -> Answer:
        connection = self.connect()
        try:
            connection.send(data)
            return connection.answer()
        finally:
            connection.close()

    def request(self, body: bytes, *, method: str = "POST", path: str | None = None, **headers: str | None) -> bytes:
        """Its bytes. A header given as None is not sent."""
        given: dict[str, str | None] = {
            "Host": f"127.0.0.1:{self.port}",
            "Accept": ACCEPT,
            "Content-Type": "application/json",
            "Content-Length": str(len(body)),
            **self.headers,
        }
        if self.session is not None:
            given["Mcp-Session-Id"] = self.session
        given.update({name.replace("_", "-"): value for name, value in headers.items()})
        lines = [f"{method} {path or self.path} HTTP/1.1"]
        lines += [f"{name}: {value}" for name, value in given.items() if value is not None]
        return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body

    def post(self, message: Any, **headers: str | None) -> Answer:
        body = message if isinstance(message, bytes) else json.dumps(message).encode()
        return self.raw(self.request(body, **headers))

    def initialize(self, version: str = "2025-06-18", **headers: str | None) -> Answer:
        params = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
        answer = self.post({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}, **headers)
        self.session = answer.header("mcp-session-id") or None
        self.post({"jsonrpc": "2.0", "method": "notifications/initialized"}, **headers)
        return answer

    def call(self, tool: str, arguments: Any = None, request_id: Any = 1, **headers: str | None) -> Answer:
        return self.post(call(tool, arguments, request_id), **headers)


def call(tool: str, arguments: Any = None, request_id: Any = 1) -> dict[str, Any]:
    params = {"name": tool, "arguments": {} if arguments is None else arguments}
    return {"jsonrpc": "2.0", "id": request_id, "method": "tools/call", "params": params}


@contextmanager
def proxy(
    place: Path,
    policy: dict[str, Any] | str | None = None,
    *,
    name: str = "linear",
    url: str | None = None,
    command: Sequence[str] = (),
    options: Sequence[str] = (),
    env: dict[str, str] | None = None,
    stderr: int | None = None,
) -> Iterator[Proxy]:
    events = EventFile(place / "events.jsonl")
    words = [sys.executable, "-m", "subluminal", "proxy", "mcp", "--json", "--server-name", name]
    words += ["--events", events.argument, *options]
    words += [] if policy is None else ["--policy", str(write_policy(place, policy))]
    words += ["--", *command] if command else ["--url", url or ""]
    process = subprocess.Popen(
        words,
        env=isolated_env(place, **(env or {})),
        cwd=place,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=stderr,
    )
    try:
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline() or b"{}")
        door = Proxy(int(ready["listening"].rpartition(":")[2]), f"/mcp/{name}", events, process)
        yield door
        process.send_signal(signal.SIGTERM)
        assert process.wait(SECONDS) == door.expected_status
    finally:
        process.kill()
        process.wait()
        process.stdout.close()  # type: ignore[union-attr]
