"""A developer whose client asks its model through our door: for a run (`sub run --model-api`), or one that stands."""

from __future__ import annotations

import json
import select
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from clients import programs
from clients.adopter import SUB
from clients.hooked import ALLOWED, BOX, Hooked, Session
from clients.models import ModelServer, ToolCall, Turn
from clients.scenarios import model_for
from harness.processes import MARKER_VARIABLE, command_line, processes_with
from harness.waiting import GENEROUS_S

PREFIX = "subluminal_refused__"
UNDER_RUN = (SUB, "run", "--model-api", "--")


class Door:
    """`sub proxy messages`, standing."""

    def __init__(self, user: Doored, upstream: str) -> None:
        self.process = subprocess.Popen(
            [SUB, "proxy", "messages", "--json", "--listen", "127.0.0.1:0", "--upstream", upstream],
            env=user.env(),
            cwd=user.home,  # not the client's directory
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], GENEROUS_S)
        assert ready, "the door says nothing"
        self.url = "http://" + json.loads(self.process.stdout.readline())["listening"]
        self.said = ""

    def close(self) -> None:
        self.process.terminate()
        rest, said = self.process.communicate(timeout=30)
        self.said = rest + said


class Doored(Hooked):
    """`way`: "run" for a door that is there for the run, "proxy" for one that stands, "direct" for none."""

    def __init__(self, kind: str, cli_dir: Path, home: Path, way: str = "run") -> None:
        super().__init__(kind, cli_dir, home)
        self.way = way
        self.said = ""  # what a standing door printed
        self.key = "dummy"
        self.is_imported = False
        self.run_options: tuple[str, ...] = ()
        self.again = False
        self.prompt = "Begin."
        self.own_provider = False  # Codex: the one that it comes with, at another address

    def govern(self, policy: str) -> None:
        """A policy and nothing else: neither hooks nor shims."""
        self.sub_home.mkdir(mode=0o700, exist_ok=True)
        (self.sub_home / "policy.yaml").write_text(policy)

    def adopt(self, policy: str) -> None:
        super().adopt(policy)
        self.is_imported = True

    def command_at(self, url: str, *options: str) -> tuple[list[str], dict[str, str]]:
        """The client, told to ask at `url`. `again`: it goes on with its last session."""
        say = self.prompt
        if self.kind == "claude_code":
            tools = [] if self.is_imported else self._box()
            words = [str(self.cli_dir / "claude"), "-p", "--output-format=json", *options, *tools]
            allowed = ["--allowedTools", ",".join(ALLOWED)]
            words += ["--continue"] if self.again else []
            return [*words, *allowed, "--", say], {**programs.claude_env(url), "ANTHROPIC_API_KEY": self.key}
        words = [str(self.cli_dir / "codex"), "exec", "--dangerously-bypass-approvals-and-sandbox"]
        tools = [] if self.is_imported else programs.codex_mcp_args(env_vars=(MARKER_VARIABLE,))
        told = programs.codex_args(url)
        if self.own_provider:
            told = [*told, "-c", 'model_provider="openai"', "-c", f'openai_base_url="{url}/v1"']
        keys = {"FAKE_MODEL_KEY": self.key, "CODEX_API_KEY": self.key}
        goes_on = ["resume", "--last"] if self.again else []
        return [*words, *told, *tools, *options, *goes_on, say], keys

    @staticmethod
    def _box() -> list[str]:
        return programs.claude_mcp_args()[: -len(("--allowedTools", "echo", "fail", "refuse"))]

    @contextmanager
    def started(
        self, model: ModelServer, *options: str, env: dict[str, str] | None = None
    ) -> Iterator[subprocess.Popen[str]]:
        """The client at work, its door beside it."""
        door = Door(self, model.url) if self.way == "proxy" else None
        command, extra = self.command_at(door.url if door else model.url, *options)
        process = subprocess.Popen(
            [*((*UNDER_RUN[:-1], *self.run_options, "--") if self.way == "run" else ()), *command],
            env={**self.env(), **extra, **(env or {})},
            cwd=self.project,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,  # of its own, as in a terminal
        )
        self.standing = door
        try:
            yield process
        finally:
            process.kill()
            process.wait()
            if door is not None:
                door.close()
                self.said = door.said

    def talk(
        self,
        *turns: Turn,
        options: tuple[str, ...] = (),
        env: dict[str, str] | None = None,
        usage: dict[str, Any] | None = None,
        agents: tuple[Turn, ...] = (),
    ) -> Session:
        with model_for(self.kind, turns) as model:
            model.agent_turns += agents
            model.usage = usage or {}
            model.numbered_from = 100 if self.again else 0
            with self.started(model, *options, env=env) as process:
                output, _ = process.communicate(timeout=100)
            return Session(model, output, process.returncode)

    # -- what a model sees of its own calls ---------------------------------------------------------------------------

    def as_written(self, call: ToolCall) -> tuple[str, Any]:
        """A call as `ModelServer.tool_calls` has it where nobody has changed it."""
        if self.kind == "claude_code":
            return f"mcp__{call.server}__{call.tool}" if call.server else call.tool, call.arguments
        name = f"mcp__{call.server}.{call.tool}" if call.server else call.tool
        return name, call.arguments if isinstance(call.arguments, str) else json.dumps(call.arguments)

    def carried_out(self) -> list[dict[str, Any]]:
        """Calls in the ledger, without the definitions of tools that the provider would run: Codex offers a search."""
        return [call for call in self.query() if call["server_name"] != "provider"]

    # -- processes ----------------------------------------------------------------------------------------------------

    @property
    def doors(self) -> list[int]:
        return [pid for pid in processes_with(self.marker) if " proxy messages" in command_line(pid)]


def everything_below(directory: Path) -> bytes:
    """All that any file there holds."""
    return b"\0".join(path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file())


__all__ = ["BOX", "PREFIX", "SUB", "UNDER_RUN", "Door", "Doored", "Session", "everything_below"]
