"""A user with a home, a client's configuration of his own, and a repository that somebody else has written."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from harness.driver import Agent
from harness.keychain import NONE
from harness.shim import isolated_env
from harness.sink import EventFile

# Starts a server as a client does: as a child, with the client's own environment and the variables of the entry.
CLIENT = "import json, os, subprocess, sys; words, env = map(json.loads, sys.argv[1:])\n"
CLIENT += "sys.exit(subprocess.call(words, env={**os.environ, **env}))"
SUB = (sys.executable, "-m", "subluminal")


class Desk:
    def __init__(self, tmp_path: Path) -> None:
        self.recorded = EventFile(tmp_path / "events.jsonl")
        self.env = isolated_env(tmp_path, PYTHON_KEYRING_BACKEND=NONE, SUB_EVENTS=self.recorded.argument)
        # An entry that a repository shares names `sub` without its place.
        self.env["PATH"] = f"{Path(sys.executable).parent}:{self.env['PATH']}"
        self.home = Path(self.env["HOME"])
        self.sub_home = Path(self.env["SUB_HOME"])
        self.repository = tmp_path / "repository"
        (self.repository / ".git").mkdir(parents=True)
        self.own = self.home / ".claude.json"
        self.theirs = self.repository / ".mcp.json"

    def write(self, path: Path, **servers: dict[str, Any]) -> None:
        path.write_text(json.dumps({"mcpServers": servers}, indent=2))

    def sub(self, *words: str, code: int = 0, stdin: str = "", cwd: Path | None = None) -> str:
        """What a command says, on stdout and stderr."""
        done = subprocess.run(
            [*SUB, *words], cwd=cwd or self.repository, env=self.env, input=stdin, capture_output=True, text=True,
            timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
        return done.stdout + done.stderr

    def findings(self, code: str) -> list[dict[str, Any]]:
        """What `sub doctor` has found of one kind."""
        done = subprocess.run(
            [*SUB, "doctor", "--json"], cwd=self.repository, env=self.env, capture_output=True, timeout=60, check=False
        )
        return [finding for finding in json.loads(done.stdout)["findings"] if finding["code"] == code]

    def start(self, path: Path, name: str, cwd: Path | None = None, through: tuple[str, ...] = ()) -> Agent:
        """A client in the repository starts the server of an entry; `through` stands before the client's command."""
        entry = json.loads(path.read_text())["mcpServers"][name]
        words = json.dumps([entry["command"], *entry.get("args", [])])
        client = [sys.executable, "-c", CLIENT, words, json.dumps(entry.get("env", {}))]
        return Agent([*through, *client], env=self.env, cwd=cwd or self.repository)
