"""Runs behind real shims that a person promotes calls of, from a terminal of their own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness.driver import Agent, Message
from harness.fake_server import fake_server
from harness.shim import isolated_env, shim_command
from harness.waiting import wait_for

SERVER = "store"


class Promoting:
    """One home. `policy`: YAML of the user's policy."""

    def __init__(self, tmp_path: Path, policy: str) -> None:
        self.tmp_path = tmp_path
        self.env = isolated_env(tmp_path)
        self.policy = tmp_path / "sub" / "policy.yaml"
        self.policy.parent.mkdir(mode=0o700, exist_ok=True)
        self.policy.write_text(policy)

    def agent(self, run_id: str, tools: dict[str, Any] | None = None, server: str = SERVER) -> Agent:
        command = shim_command(server, fake_server(tools=tools or {"*": {}}))
        return Agent(command, env={**self.env, "SUB_RUN_ID": run_id}, cwd=self.tmp_path)

    def sub(self, *words: str, stdin: str | None = None, **env: str) -> subprocess.CompletedProcess[str]:
        """Asked again as long as the daemon, which may just be starting, has not taken everything in."""
        return wait_for(
            lambda: self._sub(words, stdin, env),
            what="the ledger to be up to date",
            enough=lambda done: "Ask again in a moment" not in done.stderr,
        )

    def _sub(self, words: Sequence[str], stdin: str | None, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "subluminal", *words],
            env={**self.env, "PYTHONUTF8": "1", **env},
            cwd=self.tmp_path,
            input=stdin or "",
            capture_output=True,
            encoding="utf-8",
            timeout=60,
            check=False,
        )

    def promote(self, call_id: str, *words: str, **env: str) -> dict[str, Any]:
        done = self.sub("promote", call_id, "--json", *words, **env)
        assert done.returncode == 0, done.stderr
        return dict(json.loads(done.stdout))

    def refused_promote(self, call_id: str, *words: str, code: int = 1, **env: str) -> str:
        done = self.sub("promote", call_id, *words, **env)
        assert done.returncode == code and not done.stdout, done.stdout + done.stderr
        return done.stderr

    def calls(self, run_id: str) -> list[dict[str, Any]]:
        """Of the ledger, oldest first."""
        done = self.sub("query", "--run", run_id, "--limit", "0", "--json")
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in reversed(done.stdout.splitlines())]


def refusal(reply: Message) -> dict[str, Any]:
    assert "error" in reply, reply
    return dict(reply["error"]["data"]["subluminal"])


def wait_until_let_through(agent: Agent, tool: str, args: dict[str, Any]) -> None:
    """Within the second that a change of policies takes."""
    wait_for(lambda: "result" in agent.call(tool, args), what="the promote in force", meanwhile=agent.settle)


def bundle(*rules: str, mode: str = "guardrails") -> str:
    """A policy in block style, of rules as flow mappings."""
    head = f"policy_id: mine\nversion: '1.4'\nmode: {mode}\ndefaults: {{decision_on_error: BLOCK}}\nselectors: {{}}\n"
    return head + "rules:\n" + "".join(f"  - {rule}\n" for rule in rules)
