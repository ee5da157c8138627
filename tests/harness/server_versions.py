"""Real MCP servers in two versions that followed each other (`tests/fixtures/tool_lists/versions.json`): how they are
installed beside each other, and started. `make test-servers` installs them into .venv/servers/versions.

npm gives both versions of a package names of their own. Of a package from PyPI each version has a directory of its own,
without what it depends on: that is in the Python of the tests, in the directory of an earlier SDK that
`harness.real_servers` has, or in one that all share.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from harness import npm, real_servers
from harness.driver import Agent

SOURCE = real_servers.LISTS / "versions.json"
KNOWN: dict[str, Any] = json.loads(SOURCE.read_text(encoding="utf-8"))
INSTALL_DIR = real_servers.INSTALL_DIR / "versions"
PYTHON_DIR = INSTALL_DIR / "python"
SHARED = PYTHON_DIR / "shared"
PATIENCE_S = 120.0  # some load half a thousand modules before they answer
NEEDED: dict[str, list[str]] = {"browser": ["--headless"], "sqlite": ["--db-path", "test.db"], "filesystem": ["."]}


class ServerVersion(NamedTuple):
    name: str
    package: str
    version: str
    which: int  # the earlier (0) or the later (1)
    of_npm: bool

    @property
    def command(self) -> list[str]:
        needed = NEEDED.get(self.name, [])
        if self.of_npm:
            place = INSTALL_DIR / "node_modules" / f"{self.name}-{self.which}"
            programs: dict[str, str] = json.loads((place / "package.json").read_text(encoding="utf-8"))["bin"]
            return ["node", str(place / next(iter(programs.values()))), *needed]
        earlier = [real_servers.PYTHON_DIR] if self.requirement in KNOWN["earlier_sdk"] else []
        paths = [str(path) for path in (PYTHON_DIR / self.requirement, *earlier)]
        module = self.package.replace("-", "_")
        script = (
            f"import sys; sys.path[:0] = {paths!r}; sys.path.append({str(SHARED)!r}); import {module} as m; m.main()"
        )
        return [sys.executable, "-c", script, *needed]

    @property
    def requirement(self) -> str:
        return f"{self.package}=={self.version}"

    def tools(self, cwd: Path) -> list[dict[str, Any]]:
        """What it lists when it is asked directly."""
        with Agent(self.command, cwd=cwd, timeout=PATIENCE_S) as agent:
            agent.initialize()
            listed: list[dict[str, Any]] = agent.request("tools/list")["result"]["tools"]
        return listed


def pairs() -> dict[str, tuple[ServerVersion, ServerVersion]]:
    found = {}
    for source in ("npm", "pypi"):
        for name, (package, *versions) in KNOWN[source].items():
            first, second = (
                ServerVersion(name, package, each, which, source == "npm") for which, each in enumerate(versions)
            )
            found[name] = (first, second)
    return found


def missing() -> str:
    """Why they cannot be started here, in a line; empty if they can."""
    stamp = INSTALL_DIR / "installed.txt"
    there = stamp.exists() and stamp.read_text(encoding="utf-8") == SOURCE.read_text(encoding="utf-8")
    return "" if there else "servers in two versions are not installed (make test-servers)"


def install() -> None:
    if not missing():
        return
    dependencies = {
        f"{each.name}-{each.which}": f"npm:{each.package}@{each.version}"
        for pair in pairs().values()
        for each in pair
        if each.of_npm
    }
    npm.install(INSTALL_DIR, json.dumps({"private": True, "dependencies": dependencies}))
    pip = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--upgrade"]
    subprocess.run([*pip, "--target", str(SHARED), *KNOWN["with_dependencies"]], check=True)
    for pair in pairs().values():
        for each in pair:
            if not each.of_npm:
                place = ["--no-deps", "--target", str(PYTHON_DIR / each.requirement)]
                subprocess.run([*pip, *place, each.requirement], check=True)
    (INSTALL_DIR / "installed.txt").write_text(SOURCE.read_text(encoding="utf-8"), encoding="utf-8")


if __name__ == "__main__":
    install()
