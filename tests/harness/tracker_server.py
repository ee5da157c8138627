"""A small issue tracker over HTTP, with state: the API that `tests/fixtures/http_api/tracker.yaml` maps.

It is generous in what it reads, as many servers are: it decodes paths before it takes them apart, drops empty segments
and dot segments, folds the case of words, takes the last of two parameters, and another method from a header, the query
or the body. So whatever slips past a door is carried out, and stands in `carried_out`.
"""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, unquote

BASE = "/api/v3"
STREAM_PIECES = 40


class Tracker:
    """`heard`: every request line with its headers and body. `carried_out`: what each did, as (method, segments)."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, str, dict[str, str], bytes]] = []
        self.carried_out: list[tuple[str, tuple[str, ...]]] = []
        self.issues: dict[int, dict[str, Any]] = {
            1: {"number": 1, "title": "first", "labels": ["bug"], "locked": False}
        }
        self.comments: dict[int, dict[str, Any]] = {7: {"id": 7, "body": "hello"}}
        self.files: dict[str, str] = {"README.md": "# read me"}
        self.repos: dict[str, dict[str, Any]] = {"ada/engine": {"name": "engine", "topics": []}}
        self.go_on = threading.Event()  # a stream waits for it in the middle
        self.port = 0

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        return self.origin + BASE


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    tracker: Tracker

    def log_message(self, format: str, *args: Any) -> None: ...

    def handle_any(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        tracker = self.tracker
        tracker.heard.append((self.command, self.path, {k.lower(): v for k, v in self.headers.items()}, body))
        path, _, query = self.path.partition("?")
        self.query = dict(parse_qsl(query, keep_blank_values=True))
        self.value = self._json(body)
        method = self._method()
        steps = self._steps(path)
        if steps[:2] != ["api", "v3"]:
            self._answer(404, {"message": "not below the base path"})
            return
        steps = steps[2:]
        tracker.carried_out.append((method, tuple(steps)))
        self._answer(*self._do(method, steps))

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = handle_any

    def _json(self, body: bytes) -> Any:
        try:
            body = gzip.decompress(body) if self.headers.get("content-encoding") == "gzip" else body
            return json.loads(body.decode("utf-8-sig")) if body else {}
        except (ValueError, OSError):
            return dict(parse_qsl(body.decode("latin-1")))

    def _method(self) -> str:
        said = self.headers.get("x-http-method-override") or self.query.get("_method")
        if isinstance(self.value, dict):
            said = said or self.value.get("_method")
        return said or ("GET" if self.command == "HEAD" else self.command)

    def _steps(self, path: str) -> list[str]:
        path = self.headers.get("x-original-url", path)
        steps: list[str] = []
        for step in unquote(unquote(path)).replace("\\", "/").split("/"):
            step = step.partition(";")[0].rstrip(". ") if step != ".." else step
            if step == "..":
                del steps[-1:]
            elif step:
                steps.append(step)
        return steps

    def _do(self, method: str, steps: list[str]) -> tuple[int, Any]:
        value = self.value
        words = [step.lower() for step in steps]
        if words == ["user"]:
            return 200, {"login": "ada", "seen": self.headers.get("authorization", "")}
        if words == ["user", "repos"]:
            return 201, {"name": value.get("name")}
        if words[:1] == ["users"]:
            return 200, [{"name": "engine"}]
        if words == ["search", "issues"]:
            return 200, {"q": self.query.get("q"), "items": []}
        if words[:1] != ["repos"] or len(words) < 3:
            return 404, {"message": "Not Found"}
        rest = words[3:]
        if not rest:
            return self._repo(method, f"{steps[1]}/{steps[2]}")
        if rest[0] == "contents":
            return self._file(method, "/".join(steps[4:]))
        if rest[0] == "issues":
            return self._issues(method, rest[1:], steps[4:])
        if rest[0] == "topics":
            return 200, {"names": value}
        return (202, {"ok": True}) if rest[0] in ("merge-upstream", "tarball") else (404, {"message": "Not Found"})

    def _repo(self, method: str, name: str) -> tuple[int, Any]:
        if method == "DELETE":
            return (204, None) if self.tracker.repos.pop(name, None) else (404, {"message": "Not Found"})
        if method == "PATCH":
            self.tracker.repos.setdefault(name, {}).update(self.value)
        return 200, self.tracker.repos.get(name, {})

    def _file(self, method: str, path: str) -> tuple[int, Any]:
        if method == "PUT":
            self.tracker.files[path] = self.value.get("content", "")
            return 201, {"path": path, "size": len(self.tracker.files[path])}
        found = self.tracker.files.get(path)
        return (200, {"path": path, "content": found}) if found is not None else (404, {"message": "Not Found"})

    def _issues(self, method: str, words: list[str], steps: list[str]) -> tuple[int, Any]:
        issues, comments = self.tracker.issues, self.tracker.comments
        if not words:
            if method == "GET":
                return 200, list(issues.values())
            number = max(issues, default=0) + 1
            issues[number] = {"number": number, "labels": [], "locked": False, **self.value}
            return 201, issues[number]
        if words[0] == "comments":
            found = comments.pop(int(words[1]), None) if method == "DELETE" else comments.get(int(words[1]))
            return (404, {"message": "Not Found"}) if found is None else (200, found)
        issue = issues.get(int(words[0]))
        if issue is None:
            return 404, {"message": f"no issue {words[0]}"}
        if len(words) == 1:
            if method == "PATCH":
                issue.update(self.value)
            return 200, issue
        if words[1] == "lock":
            issue["locked"] = method == "PUT"
            return 204, None
        if words[1] == "labels":
            if method == "POST":
                issue["labels"] += self.value if isinstance(self.value, list) else self.value["labels"]
            else:
                issue["labels"].remove(steps[2])
            return 200, issue["labels"]
        if method == "POST":
            identity = max(comments, default=0) + 1
            comments[identity] = {"id": identity, "body": self.value["body"]}
            return 201, comments[identity]
        return 200, list(comments.values())

    # -- answers --------------------------------------------------------------------------------------------------

    def _answer(self, status: int, value: Any) -> None:
        kind = self.headers.get("x-test-answer", "")
        if kind:
            getattr(self, f"_answer_{kind}")()
            return
        body = b"" if value is None else json.dumps(value).encode()
        self._head(status, len(body), ("Content-Type", "application/json"))
        if self.command != "HEAD":
            self.wfile.write(body)

    def _head(self, status: int, length: int | None, *headers: tuple[str, str]) -> None:
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        if length is not None and status != 204:
            self.send_header("Content-Length", str(length))
        self.end_headers()

    def _answer_gzip(self) -> None:
        body = gzip.compress(b'{"secret":"inside"}')
        self._head(200, len(body), ("Content-Type", "application/json"), ("Content-Encoding", "gzip"))
        self.wfile.write(body)

    def _answer_redirect(self) -> None:
        self._head(302, 0, ("Location", self.headers["x-test-location"]))

    def _answer_links(self) -> None:
        url = f"{self.tracker.url}/users/ada/repos?page=2"
        elsewhere = "https://elsewhere.example/x"
        self._head(200, 0, ("Link", f'<{url}>; rel="next", <{elsewhere}>; rel="help"'))

    def _answer_echo(self) -> None:
        said = self.headers.get("authorization", "")
        body = json.dumps({"said": said}).encode()
        self._head(200, len(body), ("Content-Type", "application/json"), ("X-Said", said))
        self.wfile.write(body)

    def _answer_stream(self) -> None:
        """One piece, and the others only once somebody has said that it came."""
        self._head(200, None, ("Content-Type", "text/event-stream"), ("Transfer-Encoding", "chunked"))
        for number in range(STREAM_PIECES):
            piece = b"data: %d\n\n" % number
            self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            self.wfile.flush()
            if number == 0:
                self.tracker.go_on.wait(20)
        self.wfile.write(b"0\r\n\r\n")

    def _answer_large(self) -> None:
        size = 3 * 1024 * 1024
        self._head(200, size, ("Content-Type", "application/octet-stream"))
        self.wfile.write(b"\xfe" * size)

    def _answer_cut(self) -> None:
        self._head(200, 1000, ("Content-Type", "application/json"))
        self.wfile.write(b'{"half":')
        self.close_connection = True

    def _answer_never(self) -> None:
        self.tracker.go_on.wait(20)
        self.close_connection = True


@contextmanager
def tracker_server() -> Iterator[Tracker]:
    tracker = Tracker()
    handler = type("Handler", (_Handler,), {"tracker": tracker})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    tracker.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield tracker
    finally:
        tracker.go_on.set()
        server.shutdown()
        server.server_close()
        thread.join()
