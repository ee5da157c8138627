"""A plain HTTP API: `sub proxy http` with an operation for each tool."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from harness.adapters.http import IDENTITY
from harness.adapters.interface import Adapter, Outcome, Session, Setting
from harness.http_api import HttpProxy, http_proxy
from harness.sink import EventFile


class HttpApiSession(Session):
    def __init__(self, door: HttpProxy, tools: list[str], executed: list[str]) -> None:
        self.door = door
        self.events: EventFile = door.events
        self._tools = tools
        self._executed = executed

    @property
    def executed(self) -> list[str]:
        return self._executed

    def call_text(self, tool: str, arguments: str) -> Outcome:
        answer = self.door.ask("POST", f"/tools/{self._tools.index(tool)}", body=arguments.encode())
        body = answer.json()
        if "subluminal" not in body:
            return Outcome(failed=answer.status >= 400)
        assert answer.status in (403, 429), answer.status
        return Outcome(body["error"]["code"], body["error"]["message"], body["subluminal"])


@contextmanager
def tools_behind_paths(setting: Setting, tools: list[str], executed: list[str]) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: Any) -> None: ...

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            tool = tools[int(self.path.rpartition("/")[2])]
            executed.append(tool)
            why = setting.all_tools[tool]
            body = json.dumps({"text": why or "done"}).encode()
            self.send_response(200 if why is None else 500)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class HttpApi(Adapter):
    name = "http api"
    transport = "http"

    @contextmanager
    def start(self, setting: Setting) -> Iterator[Session]:
        tools = list(setting.all_tools)
        executed: list[str] = []
        operations = [
            {"tool": tool, "method": "POST", "path": f"/tools/{number}", "risk_class": []}
            for number, tool in enumerate(tools)
        ]
        with tools_behind_paths(setting, tools, executed) as url:
            mapping = {"server": setting.server_name, "upstream": url, "operations": operations}
            with http_proxy(setting.place, mapping, setting.policy, env=dict(setting.env)) as door:
                door.headers = {header: setting.env[name] for name, header in IDENTITY.items() if name in setting.env}
                yield HttpApiSession(door, tools, executed)
