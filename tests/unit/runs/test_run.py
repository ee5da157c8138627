"""Who a run is: what its processes are told, and what this process knows of it."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from subluminal.agents.base import RunRequest
from subluminal.agents.generic import Generic
from subluminal.contracts.agent_event import AgentEvent
from subluminal.contracts.errors import UsageError
from subluminal.contracts.vocabulary import IDENTITY_VARIABLES
from subluminal.host.identity import discover
from subluminal.host.run.listing import kill
from subluminal.host.run.registration import registered
from subluminal.host.run.state import SharedState
from subluminal.runs.agent import FollowedAgent
from subluminal.runs.command import run_command
from subluminal.runs.options import HeadlessOptions, RunOptions
from subluminal.runs.run import Run, run_environment


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in [name for name in os.environ if name.startswith("SUB_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("SUB_HOME", str(tmp_path / "sub"))
    monkeypatch.setenv("SUB_EVENTS", "none")
    return tmp_path / "sub"


def test_a_new_run_gets_an_id_and_an_enclosing_run_keeps_its_own() -> None:
    given = {"SUB_PRINCIPAL": "me", "OTHER": "x", "SUB_HOME": "/h"}
    fresh = run_environment(given, RunOptions(agent_id="reviewer"), "codex")
    assert fresh.pop("SUB_RUN_ID").startswith("run-")
    assert fresh == {**given, "SUB_AGENT_ID": "reviewer", "SUB_CLIENT": "codex"}
    inside = {"SUB_RUN_ID": "outer", "SUB_CLIENT": "codex", "SUB_HOME": "/h"}
    assert run_environment(inside, RunOptions(), "claude") == inside
    assert run_environment(inside, RunOptions(run_id="mine", client="claude"), "custom") == {
        "SUB_RUN_ID": "mine",
        "SUB_CLIENT": "claude",
        "SUB_HOME": "/h",
    }


def test_the_home_is_told_even_where_it_is_the_usual_one_for_tools_that_are_given_another_home() -> None:
    assert run_environment({"HOME": "/users/me"}, RunOptions(), "custom")["SUB_HOME"] == "/users/me/.subluminal"


def test_paths_are_told_so_that_they_hold_in_any_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "policy.yaml").touch()
    told = run_environment({"SUB_HOME": "sub"}, RunOptions(policy="policy.yaml"), "custom")
    assert (told["SUB_HOME"], told["SUB_POLICY"]) == (str(tmp_path / "sub"), str(tmp_path / "policy.yaml"))
    with pytest.raises(UsageError, match="no such file"):
        run_environment({}, RunOptions(policy="absent.yaml"), "custom")


def test_the_identity_of_the_run_is_the_one_its_shims_find() -> None:
    environ = run_environment({"CI": "1", "USER": "me"}, RunOptions(agent_id="reviewer"), "claude")
    run = Run(environ, RunOptions())
    scrubbed = {name: run.environ[name] for name in IDENTITY_VARIABLES}
    found = discover(scrubbed, "h")
    identity = run.identity
    assert (found.run_id, found.agent_id, found.client, found.env, found.principal) == (
        *(identity.run_id, "reviewer", "claude", "ci", "me"),
    )
    run.membership.leave()


def test_a_run_is_registered_while_its_command_runs_and_its_result_is_a_value(home: Path, tmp_path: Path) -> None:
    said: list[str] = []
    seen = tmp_path / "seen"
    outcome = run_command(["sh", "-c", f"ls $SUB_HOME/run > {seen}; exit 3"], RunOptions(run_id="r"), said.append)
    assert (outcome.code, outcome.status, said) == (3, "FAILED", [])
    assert f"{os.getpid()}.json" in seen.read_text()
    assert registered("r") == []


def test_a_run_that_is_terminated_ends_its_command_and_says_why() -> None:
    SharedState.open("r")
    kill("r", "OPERATOR", "enough")
    said: list[str] = []
    outcome = run_command(["sleep", "60"], RunOptions(run_id="r"), said.append)
    assert (outcome.code, outcome.status) == (125, "TERMINATED")
    assert said == ["sub: the run was terminated (OPERATOR): enough"]


def test_a_headless_run_comes_back_with_its_facts_and_the_verdict_on_them(tmp_path: Path) -> None:
    said: list[str] = []
    options = RunOptions(run_id="r", headless=HeadlessOptions(bundle=str(tmp_path / "trace"), strict=True))
    outcome = run_command(["true"], options, said.append)
    assert outcome.facts is not None and outcome.verdict is not None
    assert (outcome.code, outcome.status, outcome.problems) == (0, "SUCCEEDED", ())
    assert (outcome.facts.run_id, outcome.facts.counts.total, outcome.verdict.failed) == ("r", 0, False)
    assert (tmp_path / "trace" / "summary.json").exists()
    assert len(said) == 1 and "0 calls" in said[0]


def test_an_agent_is_followed_to_its_end_by_whoever_listens(tmp_path: Path) -> None:
    program = tmp_path / "agent"
    program.write_text("#!/bin/sh\necho $SUB_AGENT_ID $SUB_RUN_ID > seen\necho done\nexit 3\n")
    program.chmod(0o755)
    followed = FollowedAgent(
        Generic(), RunRequest("go", program=str(program), cwd=str(tmp_path)), agent_id="me", record=False
    )
    heard: list[AgentEvent] = []
    outcome = asyncio.run(followed.follow(heard.append))
    assert [event.message for event in heard] == ["line 1: 4 bytes"]
    assert (tmp_path / "seen").read_text().split() == ["me", followed.run_id]
    assert (outcome.code, outcome.completion.status, outcome.terminated) == (1, "FAILED", None)


def test_an_order_to_the_run_ends_the_agent_that_is_followed(tmp_path: Path) -> None:
    program = tmp_path / "agent"
    program.write_text("#!/bin/sh\necho begun\nsleep 60\n")
    program.chmod(0o755)
    followed = FollowedAgent(Generic(), RunRequest("do it", program=str(program)), record=False)
    outcome = asyncio.run(followed.follow(lambda _: bool(kill(followed.run_id, "OPERATOR", "enough"))))
    assert (outcome.code, outcome.completion.status, outcome.terminated) == (125, "CANCELLED", ("OPERATOR", "enough"))
