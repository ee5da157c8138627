"""Real MCP servers that the templates of policies are for: how they are started, and what tools they list.

mcp-server-git comes with `make setup`, the others with `make test-servers` into .venv/servers. What each of them lists
is kept in `tests/fixtures/tool_lists`, with the package and version that it was recorded from:

    PYTHONPATH=tests .venv/bin/python -m harness.real_servers record
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from harness import npm, places
from harness.driver import Agent

LISTS = places.FIXTURES / "tool_lists"
INSTALL_DIR = places.ROOT / ".venv" / "servers"
PACKAGE_JSON = (LISTS / "package.json").read_text(encoding="utf-8")
REQUIREMENTS = (LISTS / "requirements.txt").read_text(encoding="utf-8")
# A directory of its own: the server needs an earlier SDK than the one of this Python.
PYTHON_DIR = INSTALL_DIR / "python"

Tools = list[dict[str, Any]]


class RealServer(NamedTuple):
    name: str
    package: str
    program: str = ""  # of an npm package
    module: str = ""  # of a Python package with its own directory

    @property
    def version(self) -> str:
        if self.program:
            return str(json.loads(PACKAGE_JSON)["dependencies"][self.package])
        if self.module:
            return dict(line.split("==") for line in REQUIREMENTS.split())[self.package]
        return version(self.package)

    @property
    def missing(self) -> str:
        """Why it cannot be started here, in a line; empty if it can."""
        if self.program:
            there = npm.installed(INSTALL_DIR, PACKAGE_JSON)
        elif self.module:
            there = _python_installed()
        else:
            there = importlib.util.find_spec(self.package.replace("-", "_")) is not None
        return "" if there else f"{self.package} is not installed (make test-servers)"

    def command(self, *arguments: object) -> list[str]:
        if self.program:
            start = [str(INSTALL_DIR / "node_modules" / ".bin" / self.program)]
        elif self.module:
            script = f"import sys; sys.path.insert(0, {str(PYTHON_DIR)!r}); import {self.module} as m; m.main()"
            start = [sys.executable, "-c", script]
        else:
            start = [sys.executable, "-m", self.package.replace("-", "_")]
        return [*start, *map(str, arguments)]

    def tools(self, *arguments: object, cwd: Path) -> Tools:
        """What the server lists, without the descriptions for models."""
        with Agent(self.command(*arguments), cwd=cwd) as agent:
            agent.initialize()
            listed = agent.request("tools/list")["result"]["tools"]
        return [{key: tool[key] for key in ("name", "inputSchema", "annotations") if key in tool} for tool in listed]

    def recorded(self) -> dict[str, Any]:
        return dict(json.loads((LISTS / f"{self.name}.json").read_text(encoding="utf-8")))


FILESYSTEM = RealServer("filesystem", "@modelcontextprotocol/server-filesystem", program="mcp-server-filesystem")
GIT = RealServer("git", "mcp-server-git")
GITHUB = RealServer("github", "@modelcontextprotocol/server-github", program="mcp-server-github")
BROWSER = RealServer("browser", "@playwright/mcp", program="playwright-mcp")
DATABASE = RealServer("database", "mcp-server-sqlite", module="mcp_server_sqlite")
SERVERS = {server.name: server for server in (FILESYSTEM, GIT, GITHUB, BROWSER, DATABASE)}


def arguments_of(server: RealServer, directory: Path) -> list[object]:
    """What the server needs to start at all."""
    needed: dict[str, list[object]] = {
        "filesystem": [directory],
        "browser": ["--headless"],
        "database": ["--db-path", directory / "test.db"],
    }
    return needed.get(server.name, [])


def _python_installed() -> bool:
    stamp = PYTHON_DIR / "installed.txt"
    return stamp.exists() and stamp.read_text(encoding="utf-8") == REQUIREMENTS


def install() -> None:
    npm.install(INSTALL_DIR, PACKAGE_JSON)
    if not _python_installed():
        pip = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        subprocess.run([*pip, "--target", str(PYTHON_DIR), "-r", str(LISTS / "requirements.txt")], check=True)
        (PYTHON_DIR / "installed.txt").write_text(REQUIREMENTS, encoding="utf-8")


def record(directory: Path) -> None:
    for server in SERVERS.values():
        tools = server.tools(*arguments_of(server, directory), cwd=directory)
        told = {"package": server.package, "version": server.version, "tools": tools}
        (LISTS / f"{server.name}.json").write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    import tempfile

    install()
    if sys.argv[1:] == ["record"]:
        with tempfile.TemporaryDirectory() as scratch:
            record(Path(scratch))
