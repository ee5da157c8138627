"""Running `sub shim` in a test: its command line, and an environment in which nothing of the machine shows through.

setup = Shim(tmp_path, "linear", fake_server(tools={...}), policy={...})    # or ["--url", "http://..."]
with setup.start() as agent:
    agent.initialize()
    agent.call("echo")
setup.events.wait_type("run_end")
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from harness.driver import Agent, Message
from harness.sink import EventFile, Sink

FIXTURE_POLICIES = Path(__file__).resolve().parent.parent / "fixtures" / "policies"
KEPT_VARIABLES = ("PATH", "LANG", "LC_ALL", "TZ", "SUB_CORE")


def shim_command(
    server_name: str,
    server_argv: Sequence[str],
    *,
    policy: str | os.PathLike[str] | None = None,
    events: str | None = None,
    client: str | None = None,
) -> list[str]:
    command = [sys.executable, "-m", "subluminal", "shim", "--server-name", server_name]
    for flag, value in (("--client", client), ("--policy", policy), ("--events", events)):
        if value is not None:
            command += [flag, os.fspath(value)]
    return [*command, *([] if server_argv[0].startswith("--url") else ["--"]), *server_argv]


def isolated_env(tmp_path: Path, **more: str) -> dict[str, str]:
    """HOME and SUB_HOME below `tmp_path`; of the person who runs the tests no SUB_* but SUB_CORE, and no other."""
    home = tmp_path / "home"
    home.mkdir(exist_ok=True)
    env = {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ}
    return {**env, "HOME": str(home), "SUB_HOME": str(tmp_path / "sub"), "TMPDIR": str(tmp_path), **more}


def write_policy(tmp_path: Path, policy: dict[str, Any] | str | os.PathLike[str]) -> Path:
    """A bundle given as a dict is written as JSON; a bare file name is taken from tests/fixtures/policies."""
    if isinstance(policy, dict):
        path = tmp_path / "policy.json"
        path.write_text(json.dumps(policy), encoding="utf-8")
        return path
    path = Path(policy)
    return path if path.is_absolute() else FIXTURE_POLICIES / path


def load_policy(name: str) -> dict[str, Any]:
    """A bundle of tests/fixtures/policies, for a test that varies it."""
    bundle: dict[str, Any] = yaml.safe_load((FIXTURE_POLICIES / name).read_text(encoding="utf-8"))
    return bundle


class Shim:
    """One shim to be: command, environment and where its events go. `start()` gives the agent that talks to it."""

    def __init__(
        self,
        tmp_path: Path,
        server_name: str,
        server_argv: Sequence[str],
        *,
        policy: dict[str, Any] | str | os.PathLike[str] | None = None,
        events: Sink | None = None,
        client: str | None = None,
        env: dict[str, str] | None = None,
    ) -> None:
        self.tmp_path = tmp_path
        self.events: Sink = EventFile(tmp_path / f"events-{server_name}.jsonl") if events is None else events
        self.policy = None if policy is None else write_policy(tmp_path, policy)
        self.command = shim_command(
            server_name, server_argv, policy=self.policy, events=self.events.argument, client=client
        )
        self.env = isolated_env(tmp_path, **(env or {}))

    def start(self, **options: Any) -> Agent:
        return Agent(self.command, env=self.env, cwd=self.tmp_path, **options)

    def run(self, *calls: tuple[str, Any]) -> list[Message]:
        """A whole session: initialize, the calls one after another, close, and every event written."""
        with self.start() as agent:
            agent.initialize()
            replies = [agent.call(tool, args) for tool, args in calls]
            agent.finish()
        self.events.wait_type("run_end")
        return replies
