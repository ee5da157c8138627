"""A developer who has a client with MCP servers and adopts Subluminal: import, run as always, look, restore."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from clients import programs
from clients.models import ModelServer
from clients.scenarios import backend_for
from harness.processes import (
    MARKER_VARIABLE,
    command_line,
    descendants,
    kill_marked,
    new_marker,
    processes_with,
)
from harness.waiting import wait_for

SUB = str(Path(sys.executable).with_name("sub"))
NAMES = {"claude_code": "claude", "codex": "codex"}
# What `programs.claude_env` sets to make Claude Code wait for its servers; a user's Claude Code does not wait.
PATIENCE = ("MCP_CONNECTION_NONBLOCKING", "MCP_CONNECT_TIMEOUT_MS")


class Adopter:
    def __init__(self, kind: str, cli_dir: Path, home: Path) -> None:
        self.kind, self.cli_dir, self.home = kind, cli_dir, home
        self.client = NAMES[kind]
        self.sub_home = home / ".subluminal"
        self.project = home / "project"
        self.marker = new_marker()
        self.variables: dict[str, str] = {}  # of the developer's own environment
        self.config = self.project / ".mcp.json" if kind == "claude_code" else home / ".codex" / "config.toml"

    def configure(self, *servers: str, patient: bool = True) -> bytes:
        """Write the client's configuration as its user would have it; returns its bytes.

        `patient`: Codex waits for its servers, so that a busy machine does not change what is tested.
        """
        wait = "required = true\nstartup_timeout_sec = 30\n" if patient else ""
        command, script = sys.executable, str(programs.ECHO_SERVER)
        if self.kind == "claude_code":
            entries = {name: {"command": command, "args": [script]} for name in servers}
            text = json.dumps({"mcpServers": entries}, indent=2)
        else:
            # Codex hands its servers a short list of variables; the marker must be on it to find what is left.
            tables = [
                f'[mcp_servers.{name}]\ncommand = "{command}"  # mine\nargs = ["{script}"]\n'
                f'env_vars = ["{MARKER_VARIABLE}"]\n{wait}'
                for name in servers
            ]
            text = "# my servers\n" + "\n".join(tables)
        self.config.parent.mkdir(exist_ok=True)
        self.config.write_text(text)
        return self.config.read_bytes()

    def sub(self, *words: str, check: bool = True, stdin: str = "") -> subprocess.CompletedProcess[str]:
        if words[0] == "import" and self.config.name == ".mcp.json":
            words = (*words, "--scope", "project")  # the repository's file, which others would have too
        done = subprocess.run(
            [SUB, *words],
            env=self.env(),
            cwd=self.project,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert not check or done.returncode == 0, done.stdout + done.stderr
        return done

    def env(self) -> dict[str, str]:
        base = programs.base_env(self.home)
        base["PATH"] = f"{os.path.dirname(SUB)}:{base['PATH']}"  # a repository's file names `sub` without its place
        return {**base, **self.variables, MARKER_VARIABLE: self.marker}

    def start(
        self, model: ModelServer, *, before: tuple[str, ...] = (), tools: tuple[str, ...] = (), patient: bool = True
    ) -> subprocess.Popen[bytes]:
        """The client, as always. `before`: what stands before its name on the command line."""
        program = str(self.cli_dir / backend_for(self.kind).program)
        if self.kind == "claude_code":
            env = programs.claude_env(model.url)
            command = [program, "-p", "Ask the box.", "--allowedTools", *tools]
        else:
            env = programs.codex_env()
            command = [program, "exec", *programs.codex_args(model.url), "Ask the box."]
        for name in () if patient else PATIENCE:
            env.pop(name, None)
        return subprocess.Popen(
            [*before, *command],
            env={**self.env(), **env},
            cwd=self.project,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )

    def run(self, model: ModelServer, *servers: str, before: tuple[str, ...] = (), patient: bool = True) -> str:
        tools = tuple(f"mcp__{server}__{tool}" for server in servers for tool in ("echo", "fail"))
        process = self.start(model, before=before, tools=tools, patient=patient)
        try:
            output, _ = process.communicate(timeout=90)
        finally:
            process.kill()
        assert process.returncode == 0, output.decode(errors="replace")
        return output.decode(errors="replace")

    def calls(self, count: int) -> list[dict[str, Any]]:
        """The calls in the ledger, once there are so many."""

        def look() -> list[dict[str, Any]] | None:
            done = self.sub("query", "--json", check=False)
            found = [json.loads(line) for line in done.stdout.splitlines()]
            return found if len(found) >= count else None

        found = wait_for(look, what=f"{count} calls in the ledger")
        assert found is not None
        return found

    def runs(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.sub("runs", "--json").stdout.splitlines()]

    def assert_nothing_left(self, within: float = 5.0) -> None:
        """Of the client and its servers. The ledger daemon belongs to no run and may stay."""

        def gone() -> bool:
            return all("ledgerd --foreground" in command_line(pid) for pid in processes_with(self.marker))

        wait_for(gone, within, what="the end of " + ", ".join(map(command_line, processes_with(self.marker))))

    def client_process(self, started: subprocess.Popen[bytes]) -> int:
        """The client itself: `codex` from npm is a launcher in front of it."""
        if self.kind == "claude_code":
            return started.pid
        below = [pid for pid in descendants(started.pid) if "codex" in command_line(pid).split(" ")[0]]
        return below[0] if below else started.pid

    def clean_up(self) -> None:
        kill_marked(self.marker)
        pid_file = self.sub_home / "ledgerd.pid"
        if pid_file.is_file() and pid_file.read_text().strip():
            try:
                os.kill(int(pid_file.read_text()), 15)
            except ProcessLookupError:
                pass
