"""The conformance suite, from npm into .venv/conformance: two versions of it, and the Node that they need."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

from harness import npm, places

INSTALL_DIR = places.ROOT / ".venv" / "conformance"
PACKAGE_JSON = json.dumps(
    {
        "private": True,
        "dependencies": {
            "@modelcontextprotocol/conformance": "0.1.16",
            "conformance-next": "npm:@modelcontextprotocol/conformance@0.2.0-alpha.12",
            "node": "22.23.3",
        },
    }
)
# The revisions that each version of the suite knows.
SERVER_REVISIONS = {
    "@modelcontextprotocol/conformance": ("2025-06-18", "2025-11-25"),
    "conformance-next": ("2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"),
}
VERSIONS = {name: spec.rpartition("@")[2] for name, spec in json.loads(PACKAGE_JSON)["dependencies"].items()}
LIMIT_SECONDS = 600

# Of one scenario: how often each check came out how.
Outcome = dict[tuple[str, str], int]


def install() -> None:
    npm.install(INSTALL_DIR, PACKAGE_JSON)


def run(package: str, arguments: Sequence[str], results: Path, *, output: bool = True) -> str:
    """What it printed. Its results are below `results`."""
    modules = INSTALL_DIR / "node_modules"
    done = subprocess.run(
        ["node", str(modules / package / "dist" / "index.js"), *arguments, *(["-o", str(results)] if output else [])],
        env={
            **os.environ,
            "PYTHONPATH": str(places.ROOT / "tests"),
            "PATH": f"{modules / '.bin'}:{os.environ['PATH']}",
        },
        cwd=results,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )
    return done.stdout


def client_scenarios(package: str, results: Path) -> dict[str, list[str]]:
    """Each with the revisions that it is for. Those of extensions have none."""
    listed = run(package, ["list"], results, output=False).partition("Client scenarios")[2].partition("\n\n")[0]
    found = re.findall(r"- (\S+) \[([^\]]+)\]", listed)
    return {name: [each for each in revisions.split(",") if each[:2] == "20"] for name, revisions in found}


def outcomes(results: Path) -> dict[str, Outcome]:
    """By scenario. What is only told (INFO) depends on how pieces happen to arrive."""
    found: dict[str, Outcome] = {}
    for path in sorted(results.rglob("checks.json")):
        outcome = found.setdefault(_scenario(results, path), {})
        for check in json.loads(path.read_text()):
            key = (check["id"], check["status"])
            if check["status"] != "INFO":
                outcome[key] = outcome.get(key, 0) + 1
    return found


def _scenario(results: Path, path: Path) -> str:
    """Its directory ends with the time: -2026-01-02T03-04-05-678Z."""
    return str(path.parent.relative_to(results))[: -len("-2026-01-02T03-04-05-678Z")].removeprefix("server-")
