"""A developer whose client asks Subluminal's hooks: everything installed by `sub import --hooks`, nothing by hand."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

from clients import programs
from clients.adopter import SUB, Adopter
from clients.models import ModelServer, ToolCall, Turn
from clients.scenarios import model_for
from harness.processes import command_line, processes_with
from harness.waiting import wait_for

BOX = programs.SERVER_NAME
# Claude Code asks nobody before these; hooks are asked all the same.
ALLOWED = ("Bash", "Write", "Edit", "Read", "WebFetch", "Agent", "Task", f"mcp__{BOX}__echo", f"mcp__{BOX}__fail")


class Session:
    """One run of the client: what it printed, how it ended, and what its model was shown."""

    def __init__(self, model: ModelServer, output: str, code: int) -> None:
        self.model, self.output, self.code = model, output, code

    @property
    def results(self) -> list[str]:
        """What the model was shown as the outcome of its calls."""
        return self.model.tool_outputs()


class Hooked(Adopter):
    def __init__(self, kind: str, cli_dir: Path, home: Path) -> None:
        super().__init__(kind, cli_dir, home)
        self.config = home / (".claude.json" if kind == "claude_code" else ".codex/config.toml")
        self.hooks = home / (".claude/settings.json" if kind == "claude_code" else ".codex/hooks.json")

    def adopt(self, policy: str) -> None:
        """A server of the user's own, a policy, and the import of both servers and hooks."""
        self.configure(BOX)
        self.sub_home.mkdir(mode=0o700, exist_ok=True)
        (self.sub_home / "policy.yaml").write_text(policy)
        self.sub("import", self.client, "--hooks")

    def command(self, model: ModelServer, *options: str) -> tuple[list[str], dict[str, str]]:
        if self.kind == "claude_code":
            words = [str(self.cli_dir / "claude"), "-p", "--output-format=json", *options]
            return [*words, "--allowedTools", ",".join(ALLOWED), "--", "Begin."], programs.claude_env(model.url)
        words = [str(self.cli_dir / "codex"), "exec", "--dangerously-bypass-approvals-and-sandbox"]
        return [*words, *programs.codex_args(model.url), *options, "Begin."], programs.codex_env()

    def begin(
        self, model: ModelServer, *options: str, under: tuple[str, ...] = (), env: dict[str, str] | None = None
    ) -> subprocess.Popen[str]:
        command, extra = self.command(model, *options)
        return subprocess.Popen(
            [*under, *command],
            env={**self.env(), **extra, **(env or {})},
            cwd=self.project,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def session(
        self,
        *turns: Turn,
        options: tuple[str, ...] = (),
        under: tuple[str, ...] = (),
        env: dict[str, str] | None = None,
        agents: tuple[Turn, ...] = (),
    ) -> Session:
        with model_for(self.kind, turns) as model:
            model.agent_turns += agents
            process = self.begin(model, *options, under=under, env=env)
            try:
                output, _ = process.communicate(timeout=100)
            finally:
                process.kill()
                process.wait()
            return Session(model, output, process.returncode)

    # -- the calls that a model makes, in the words of each client -------------------------------------------------

    def shell(self, line: str, **more: Any) -> ToolCall:
        if self.kind == "claude_code":
            return ToolCall("Bash", {"command": line, "description": "a line", **more})
        return ToolCall("exec_command", {"cmd": line, **more})

    def write(self, path: Path, text: str = "written\n") -> ToolCall:
        if self.kind == "claude_code":
            return ToolCall("Write", {"file_path": str(path), "content": text})
        lines = "".join(f"+{line}\n" for line in text.splitlines())
        return ToolCall("apply_patch", f"*** Begin Patch\n*** Add File: {path}\n{lines}*** End Patch")

    def echo(self, text: str = "hello") -> ToolCall:
        return ToolCall("echo", {"text": text}, server=BOX)

    @property
    def with_patches(self) -> tuple[str, ...]:
        """Options of a client that offers its model the tool by which it writes."""
        return () if self.kind == "claude_code" else ("-c", 'model="gpt-5.5"')

    @property
    def write_name(self) -> str:
        return "Write" if self.kind == "claude_code" else "apply_patch"

    # -- what was recorded --------------------------------------------------------------------------------------------

    def query(self, *words: str) -> list[dict[str, Any]]:
        """Calls in their order, once whoever recorded them has ended."""
        wait_for(self.runs, what="the end of the run", enough=lambda runs: runs and _are_over(runs))
        done = self.sub("query", "--json", *words)
        return [json.loads(line) for line in done.stdout.splitlines()][::-1]

    def events(self, kind: str) -> list[dict[str, Any]]:
        done = self.sub("tail", "--events", "--no-follow", "-n", "10000", "--type", kind)
        return [json.loads(line) for line in done.stdout.splitlines()]

    def findings(self, env: dict[str, str] | None = None) -> set[str]:
        """The codes of what `sub doctor` finds of hooks, notes left out."""
        done = subprocess.run(
            [SUB, "doctor", "--json"],
            env={**self.env(), **(env or {})},
            cwd=self.project,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        found: list[dict[str, str]] = json.loads(done.stdout)["findings"]
        return {each["code"] for each in found if each["area"] == "hooks" and each["level"] != "note"}

    # -- the judge --------------------------------------------------------------------------------------------------

    @property
    def judges(self) -> list[int]:
        return [pid for pid in processes_with(self.marker) if "subluminal.adapters.hook.start" in command_line(pid)]

    def kill_judge(self) -> None:
        for pid in self.judges:
            os.kill(pid, signal.SIGKILL)
        wait_for(lambda: not self.judges, what="the death of the judge")


def _are_over(runs: list[dict[str, Any]]) -> bool:
    return all(run["status"] != "RUNNING" for run in runs)


def recorded(calls: list[dict[str, Any]]) -> list[tuple[str, str, str, str]]:
    return [(call["server_name"], call["tool_name"], call["decision"], call["status"]) for call in calls]


__all__ = ["SUB", "Hooked", "Session", "recorded"]
