"""A run that is recorded with its results, and then replayed: real shims, a real ledger, and no daemon."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from harness.command_line import SUB, stored
from harness.driver import Agent, Message
from harness.shim import isolated_env, shim_command, write_policy
from harness.sink import EventFile

Call = tuple[str, dict[str, Any]]


class Replayed(NamedTuple):
    """`stderr`: what a person was told."""

    replies: list[Message]
    report: dict[str, Any]
    stderr: str


class Recording:
    """One home, in which runs of one server are recorded and replayed."""

    def __init__(self, tmp_path: Path, server: Sequence[str], *, name: str = "box", **environ: str) -> None:
        self.tmp_path = tmp_path
        self.home = tmp_path / "sub"
        self.server = server
        self.name = name
        self.env = isolated_env(tmp_path, **{"SUB_RECORD_RESULTS": "all", **environ})
        self._count = 0

    def record(self, *calls: Call, policy: dict[str, Any] | None = None, keep: bool = True) -> list[Message]:
        """A live run; its events are in the ledger afterwards, unless `keep` is false."""
        self._count += 1
        events = EventFile(self.tmp_path / f"events-{self._count}.jsonl")
        path = None if policy is None else write_policy(self.tmp_path, policy)
        command = shim_command(self.name, self.server, policy=path, events=events.argument)
        env = {**self.env, "SUB_RUN_ID": f"run-{self._count}", "SUB_AGENT_ID": "tester"}
        replies = converse(command, env, self.tmp_path, calls)
        events.wait_type("run_end")
        self.events = events
        if keep:
            stored(self.home, (self.tmp_path / f"events-{self._count}.jsonl").read_bytes().splitlines())
        return replies

    @property
    def run_id(self) -> str:
        return f"run-{self._count}"

    def replay(
        self, *calls: Call, options: Sequence[str] = (), after: Sequence[str] = (), run: str = "last"
    ) -> Replayed:
        report = self.tmp_path / f"report-{len(list(self.tmp_path.glob('report-*')))}.json"
        words = [*SUB, "replay", run, "--serve", self.name, "--report", str(report), *options]
        with Agent([*words, *(["--", *after] if after else [])], env=self.env, cwd=self.tmp_path) as agent:
            replies = _talk(agent, calls)
            return Replayed(replies, json.loads(report.read_text()), agent.stderr)

    def sub(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "subluminal", *words]
        return subprocess.run(
            command, env=self.env, cwd=self.tmp_path, capture_output=True, text=True, timeout=60, check=False
        )

    @property
    def results(self) -> list[Path]:
        return sorted((self.home / "results").rglob("*.results"))

    def decisions(self) -> list[tuple[str, str | None, str]]:
        """Of the run that was recorded last, in its order."""
        found = [event["decision"] for event in self.events.events_of("tool_call_decision")]
        return [(each["action"], each["rule_id"], each["explain"]["reason_code"]) for each in found]


def converse(command: Sequence[str], env: dict[str, str], cwd: Path, calls: Sequence[Call]) -> list[Message]:
    with Agent(list(command), env=env, cwd=cwd) as agent:
        return _talk(agent, calls)


def _talk(agent: Agent, calls: Sequence[Call]) -> list[Message]:
    """The list and the calls, one after another; ids are the same each time, and so are the answers."""
    agent.initialize()
    replies = [agent.request("tools/list")]
    replies += [agent.call(tool, arguments) for tool, arguments in calls]
    agent.finish()
    return replies
