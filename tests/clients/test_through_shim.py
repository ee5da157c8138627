"""The whole way with real clients: `sub agent run`, the client, `sub shim`, the server, and the record of it all."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from clients import programs
from clients.models import ModelServer, ToolCall, Turn
from clients.scenarios import BOX, ECHO, GOODBYE, backend_for, model_for
from harness.ledger import ledgerd, spool_of
from harness.processes import MARKER_VARIABLE, kill_marked, new_marker
from harness.waiting import wait_for

pytestmark = [pytest.mark.clients, pytest.mark.timeout(180)]
NAMES = {"claude_code": "claude", "codex": "codex"}
POLICY = """
policy_id: team
version: "1"
mode: guardrails
defaults: {decision_on_error: BLOCK}
selectors: {}
rules:
  - rule_id: no-echo
    kind: deny
    enabled: true
    severity: critical
    match: {tool_name: {glob: ["ec*"]}}
    effect: {action: BLOCK, message: The box is not to be asked today}
"""


class Desk:
    """A user who runs one of the clients through Subluminal."""

    def __init__(self, kind: str, cli_dir: Path, home: Path) -> None:
        self.kind, self.cli_dir, self.home = kind, cli_dir, home
        self.sub_home = home / ".subluminal"
        self.sub_home.mkdir(mode=0o700)
        self.marker = new_marker()

    def run(self, *turns: Turn) -> tuple[list[dict[str, Any]], ModelServer]:
        with model_for(self.kind, turns) as model:
            done = subprocess.run(
                [
                    *(sys.executable, "-m", "subluminal", "agent", "run", NAMES[self.kind], "--json"),
                    *(
                        "--program",
                        str(self.cli_dir / backend_for(self.kind).program),
                        "--cwd",
                        str(self.home / "project"),
                    ),
                    *("--agent-id", "tester", *self._options(model), "--", "Ask the box."),
                ],
                env=self._env(model),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=120,
                check=False,
            )
        assert done.returncode == 0, done.stderr.decode()
        return [json.loads(line) for line in done.stdout.splitlines()], model

    def _env(self, model: ModelServer) -> dict[str, str]:
        extra = programs.claude_env(model.url) if self.kind == "claude_code" else programs.codex_env()
        mine = {MARKER_VARIABLE: self.marker, "SUB_HOME": str(self.sub_home)}
        return {**programs.base_env(self.home), **extra, **mine}

    def _options(self, model: ModelServer) -> Iterator[str]:
        shim = [sys.executable, "-m", "subluminal", "shim", "--server-name", BOX, "--client", NAMES[self.kind]]
        command = [*shim, "--", sys.executable, str(programs.ECHO_SERVER)]
        if self.kind == "claude_code":
            options = programs.claude_mcp_args(command)
        else:
            # No env_vars: the shim must find its run although Codex scrubs its environment.
            options = [*programs.codex_args(model.url), *programs.codex_mcp_args(command)]
        for option in options:
            yield from ("-a", option)

    def recorded(self) -> list[dict[str, Any]]:
        paths = spool_of(self.sub_home).glob("*.jsonl")
        return [json.loads(line) for path in paths for line in path.read_bytes().splitlines()]


@pytest.fixture(params=["claude_code", "codex"])
def desk(request: pytest.FixtureRequest, cli_dir: Path, home: Path) -> Iterator[Desk]:
    place = Desk(request.param, cli_dir, home)
    # Holding the place of the daemon keeps the journals where they can be looked at.
    (place.sub_home / "ledgerd.pid").mkdir()
    yield place
    kill_marked(place.marker)


def test_a_call_passes_through_and_everything_recorded_belongs_to_one_run(desk: Desk) -> None:
    events, model = desk.run(ECHO, GOODBYE)
    [output] = model.tool_outputs()
    assert "echo: hello" in output
    assert events[-1]["completion"]["final_text"] == GOODBYE.text
    recorded = desk.recorded()
    assert {(line["run_id"], line["agent_id"], line["client"]) for line in recorded} == {
        (recorded[0]["run_id"], "tester", NAMES[desk.kind])
    }
    kinds = [line["type"] for line in recorded]
    assert {"agent_event", "tool_call_start", "tool_call_decision", "tool_call_end", "run_end"} <= set(kinds)
    [start] = [line["call"] for line in recorded if line["type"] == "tool_call_start"]
    assert (start["server_name"], start["tool_name"]) == (BOX, "echo")


def test_a_refused_call_is_explained_to_the_model_and_told_as_failed(desk: Desk) -> None:
    (desk.sub_home / "policy.yaml").write_text(POLICY)
    events, model = desk.run(ECHO, GOODBYE)
    [output] = model.tool_outputs()
    assert "The box is not to be asked today" in output
    [result] = [event["data"] for event in events if event.get("kind") == "ToolResult"]
    assert (result["tool_name"], result["status"]) == ("echo", "failed")
    [decision] = [line["decision"] for line in desk.recorded() if line["type"] == "tool_call_decision"]
    assert (decision["action"], decision["rule_id"]) == ("BLOCK", "no-echo")


def test_a_tool_that_fails_behind_the_shim_fails_as_without_it(desk: Desk) -> None:
    events, model = desk.run(ToolCall("fail", {"text": "x"}, server=BOX), GOODBYE)
    [output] = model.tool_outputs()
    assert "fail: x" in output
    [result] = [event["data"] for event in events if event.get("kind") == "ToolResult"]
    assert result["phase"] == "fail"


def test_the_ledger_holds_the_run_with_the_status_of_the_agent(desk: Desk) -> None:
    (desk.sub_home / "ledgerd.pid").rmdir()
    with ledgerd(desk.sub_home):
        desk.run(ECHO, GOODBYE)

        def ended() -> tuple[str, int] | None:
            with closing(sqlite3.connect(desk.sub_home / "ledger.db")) as database:
                rows = database.execute("SELECT status, calls_total FROM runs WHERE ended_at IS NOT NULL").fetchall()
            return rows[0] if len(rows) == 1 else None

        assert wait_for(ended, what="the end of the run in the ledger") == ("SUCCEEDED", 1)
