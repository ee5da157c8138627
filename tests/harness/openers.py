"""What real programs open: paths in a tree of files that know their own names, URLs through a recording proxy.

Python, Node and curl are there or not; the two MCP servers come with `make fuzz` (npm and the package index). What they
all did with the tables of spellings is in `tests/fixtures/openings/`.
"""

from __future__ import annotations

import ipaddress
import json
import re
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from harness import npm, places

SOURCE = places.ROOT / "tests" / "fuzz" / "openers"
INSTALL_DIR = places.ROOT / ".venv" / "openers"
PACKAGES = INSTALL_DIR / "python"
PACKAGE_JSON = (SOURCE / "package.json").read_text()
REQUIREMENTS = (SOURCE / "requirements.txt").read_text()
FILESYSTEM = INSTALL_DIR / "node_modules" / "@modelcontextprotocol" / "server-filesystem" / "dist" / "index.js"

NODE_WAYS = ("open", "resolve", "home", "decode", "url", "cut", "trim", "turned", "normal")
PYTHON_WAYS = ("open", "expand", "abspath", "resolve", "unquote", "url", "cut", "strip")
PYTHON_LIBRARIES = ("urllib", "requests", "httpx")

# What is opened, by its name below the base of the tree; None where nothing is.
Opened = str | None


def servers_installed() -> bool:
    return (
        npm.installed(INSTALL_DIR, PACKAGE_JSON) and (PACKAGES / REQUIREMENTS.split("==")[0].replace("-", "_")).exists()
    )


def install_servers() -> None:
    """Raises npm.InstallError."""
    npm.install(INSTALL_DIR, PACKAGE_JSON)
    command = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--target", str(PACKAGES)]
    if not servers_installed():
        done = subprocess.run(
            [*command, "-r", str(SOURCE / "requirements.txt")], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise npm.InstallError(f"pip install failed: {done.stderr.strip().splitlines()[-1:]}")


# -- paths --------------------------------------------------------------------------------------------------------

FILES = """repo/a.txt repo/sub/b.txt repo/sub/deep/c.txt repo/%2e%2e/p.txt repo/%2e%2e/outside/s.txt repo/~/t.txt
repo/~/h.txt repo/file:/q.txt repo/$HOME/h.txt repo/a%20b.txt repo/..\\outside\\s.txt repo/sub\\b.txt
repo/localhost/l.txt repo/é.txt repo/.hidden/x.txt repo/...//dots.txt repo/UPPER/u.txt repo/sub/out.d/z.txt
repo/out%2fs.txt repo/a?b.txt outside/s.txt outside/a.txt outside/deep/d.txt outside/sub/b.txt outside/é.txt
outside/%2e%2e/p.txt repo2/s.txt repository/s.txt home/h.txt home/sub/b.txt s.txt a.txt p.txt"""
ODD_FILES = ("repo/a b.txt", "repo/ a.txt", "repo/a.txt ", "repo/new\nline.txt", "outside/ s.txt", 'repo/"a.txt"')
LINKS = {
    "repo/out": "../outside",
    "repo/abs": "{base}/outside",
    "repo/up": "..",
    "repo/deep": "../outside/deep",
    "repo/in": "sub/deep",
    "repo/self": ".",
    "repo/leaf": "../outside/s.txt",
    "repo/inner.txt": "sub/b.txt",
    "repo/dangling": "../outside/none.txt",
    "repo/loop": "loop",
    "repo/chain": "chain2",
    "repo/chain2": "sub/../../outside",
    "repo/slash": "/",
    "repo/homely": "../home",
    "repo/e\u0301link": "../outside",
    "outside/back": "../repo",
    "home/repo": "../repo",
    "home/out": "../outside",
    "alias": "repo",
}


class Tree:
    """`repo` is the repository and the working directory, `home` the home. Every file holds its own name."""

    def __init__(self, base: Path) -> None:
        self.base = base.resolve()
        self.repo = self.base / "repo"
        for name in (*FILES.split(), *ODD_FILES):
            path = self.base / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(str(path.relative_to(self.base)), encoding="utf-8")
        for name, target in LINKS.items():
            (self.base / name).symlink_to(target.format(base=self.base))
        (self.repo / ".git").mkdir()
        self.environ = {"HOME": str(self.base / "home"), "PATH": "/usr/bin:/bin", "WORK": str(self.base / "outside")}

    def spelled(self, spelling: str) -> str:
        return spelling.replace("{base}", str(self.base))

    def written(self) -> Opened:
        """The file that was written since the last time, which is as it was before."""
        found = [path for path in self.base.rglob("*") if path.is_file() and not path.is_symlink()]
        for path in found:
            if path.read_text(encoding="utf-8") == "written":
                name = str(path.relative_to(self.base))
                if name in FILES.split() or name in ODD_FILES:
                    path.write_text(name, encoding="utf-8")
                else:
                    path.unlink()
                return name
        return None


@contextmanager
def lines(command: list[str], cwd: Path, environ: dict[str, str]) -> Iterator[Callable[[Any], Any]]:
    """A process that answers each line with a line, both JSON."""
    with subprocess.Popen(
        command, cwd=cwd, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        source, sink = process.stdout, process.stdin

        def ask(message: Any) -> Any:
            sink.write(json.dumps(message).encode() + b"\n")
            sink.flush()
            return json.loads(source.readline())

        try:
            yield ask
        finally:
            sink.close()
            process.kill()


@contextmanager
def path_opener(tree: Tree, program: str) -> Iterator[Callable[[str, str, str], Opened]]:
    """(way, op, path) to what was opened, in Python or in Node."""
    script = SOURCE / ("paths.mjs" if program == "node" else "paths.py")
    command = [str(shutil.which("node")) if program == "node" else sys.executable, str(script)]
    with lines(command, tree.repo, tree.environ) as ask:
        yield lambda way, op, path: _opened(tree, op, ask([way, op, path]))


def _opened(tree: Tree, op: str, text: Opened) -> Opened:
    if op == "write":
        return tree.written()
    known = {*FILES.split(), *ODD_FILES}
    return text if text is None or str(Path(text)) in {str(Path(name)) for name in known} else "(elsewhere)"


@contextmanager
def server(command: list[str], cwd: Path, environ: dict[str, str]) -> Iterator[Callable[[str, Any], Any]]:
    """(tool, arguments) to the result of an MCP server."""
    with lines(command, cwd, environ) as ask:
        client = {"name": "test", "version": "1"}
        params: Any = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client}
        ask({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params})
        count = iter(range(1, 1_000_000))

        def call(tool: str, arguments: Any) -> Any:
            params = {"name": tool, "arguments": arguments}
            return ask({"jsonrpc": "2.0", "id": next(count), "method": "tools/call", "params": params}).get("result")

        yield call


def filesystem_command(tree: Tree, *directories: Path) -> list[str]:
    return [str(shutil.which("node")), str(FILESYSTEM), *map(str, directories)]


@contextmanager
def filesystem(tree: Tree, *directories: Path) -> Iterator[Callable[[str, str], Opened]]:
    with server(filesystem_command(tree, *directories), tree.repo, tree.environ) as call:

        def open_path(op: str, path: str) -> Opened:
            if op == "write":
                call("write_file", {"path": path, "content": "written"})
                return tree.written()
            result = call("read_text_file", {"path": path}) or {"isError": True}
            return None if result.get("isError") else _opened(tree, op, result["content"][0]["text"])

        yield open_path


# -- URLs ---------------------------------------------------------------------------------------------------------


class Proxy:
    """On loopback. Notes the host of every request, and fetches nothing."""

    def __init__(self) -> None:
        self.hosts: list[str] = []
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                target = self.path.partition("://")[2] or self.path
                proxy.hosts.append(re.split("[/?#]", target, maxsplit=1)[0])
                self.send_response(200)
                self.send_header("content-length", "2")
                self.send_header("connection", "close")
                self.end_headers()
                self.wfile.write(b"ok")

            def do_CONNECT(self) -> None:
                proxy.hosts.append(self.path)
                self.send_error(502)

            do_HEAD = do_GET

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def taken(self) -> Opened:
        """The host that was asked for since the last time, as the system would connect to it."""
        hosts, self.hosts = self.hosts, []
        return connected(hosts[0]) or None if hosts else None

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def connected(authority: str) -> Opened:
    """The host of `host:port`: an address as the C library reads it, or a name in lower case without its last dot."""
    host = authority.rpartition("@")[2].lower()
    if host.startswith("["):
        host = host[: host.find("]") + 1]
    elif host.count(":") < 2:  # httpx leaves out the brackets
        host = host.partition(":")[0]
    if ":" in host:
        try:
            address = ipaddress.IPv6Address(host.strip("[]").partition("%")[0])
        except ValueError:
            return None  # nothing can be connected to
        return str(address.ipv4_mapped or address)
    try:
        return socket.inet_ntoa(socket.inet_aton(host.rstrip(".")))
    except OSError:
        return host.rstrip(".")


@contextmanager
def url_opener(proxy: Proxy, program: str) -> Iterator[Callable[[str], Opened]]:
    """A URL to the host that was asked for: by `urllib`, `requests`, `httpx`, `curl`, `undici` or `fetch`."""
    environ = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent"}

    def after(ask: Callable[[], object]) -> Opened:
        ask()
        return proxy.taken()

    if program == "curl":
        curl = ["curl", "-sS", "-o", "/dev/null", "-m", "5", "--proxy", proxy.url, "--proto", "=http,https", "--"]
        quiet: dict[str, Any] = {"capture_output": True, "check": False}
        yield lambda url: None if "\0" in url else after(lambda: subprocess.run([*curl, _bytes(url)], **quiet))
    elif program == "fetch":
        options = ["--ignore-robots-txt", "--allow-private-ips", f"--proxy-url={proxy.url}"]
        command = [sys.executable, "-m", "mcp_server_fetch", *options]
        with server(command, places.ROOT, {**environ, "PYTHONPATH": str(PACKAGES)}) as call:
            # A message that is no UTF-8 is never answered.
            yield lambda url: None if _has_surrogates(url) else after(lambda: call("fetch", {"url": url, "raw": True}))
    elif program == "undici":
        script = npm.placed(SOURCE / "urls.mjs", INSTALL_DIR)
        with lines([str(shutil.which("node")), str(script), proxy.url], places.ROOT, environ) as ask:
            yield lambda url: after(lambda: ask(url))
    else:
        with lines([sys.executable, str(SOURCE / "urls.py"), proxy.url], places.ROOT, environ) as ask:
            yield lambda url: after(lambda: ask([program, url]))


def _has_surrogates(text: str) -> bool:
    return any("\ud800" <= char <= "\udfff" for char in text)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
