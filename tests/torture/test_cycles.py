"""Started and stopped many times, the shim leaves no process, and no file but what a run is to leave."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

from harness.driver import Agent
from harness.fake_server import fake_server
from harness.processes import assert_no_processes
from harness.shim import isolated_env, shim_command
from harness.waiting import GENEROUS_S

CYCLES = int(os.environ.get("SUB_TEST_CYCLES", "30"))
POLICY = json.dumps(
    {
        "policy_id": "p",
        "version": "1",
        "mode": "guardrails",
        "defaults": {"decision_on_error": "BLOCK"},
        "selectors": {},
        "rules": [],
    }
)


def files(home: Path) -> list[str]:
    return sorted(str(path.relative_to(home)) for path in home.rglob("*") if path.is_file())


def cycle(tmp_path: Path, number: int, env: dict[str, str]) -> Agent:
    """One session; every third is killed, every third signalled, every third ends politely."""
    command = shim_command("echo", fake_server(), events=f"file:{tmp_path}/events.jsonl")
    with Agent(command, env, tmp_path) as agent:
        agent.initialize()
        agent.call("echo", {"n": number})
        if number % 3 == 0:
            agent.finish()
        else:
            agent.signal(signal.SIGKILL if number % 3 == 1 else signal.SIGTERM)
            agent.wait_exit()
        assert_no_processes(agent.marker)
    return agent


def test_many_starts_and_stops_leave_nothing(tmp_path: Path) -> None:
    env = isolated_env(tmp_path, SUB_POLICY_JSON=POLICY)
    home = tmp_path / "sub"
    cycle(tmp_path, 0, env)
    after_one = files(home)
    for number in range(1, CYCLES):
        cycle(tmp_path, number, env)
    assert files(home) == after_one, "all of one client: one run, one state file"
    assert [name for name in after_one if name.endswith((".new", ".bad", ".tmp"))] == []
    leftovers = [path.name for path in tmp_path.iterdir() if path.name not in ("home", "sub", "events.jsonl")]
    assert leftovers == []
    assert files(tmp_path / "home") == []


def test_the_state_of_runs_that_are_over_is_cleared_by_later_shims(tmp_path: Path) -> None:
    home = tmp_path / "sub"
    for run in range(3):
        cycle(tmp_path, 0, isolated_env(tmp_path, SUB_RUN_ID=f"run-{run}"))
    states = sorted((home / "run").glob("*.state"))
    assert len(states) == 3
    long_ago = time.time() - 3 * 24 * 3600
    for path in states[:2]:
        os.utime(path, (long_ago, long_ago))
    cycle(tmp_path, 0, isolated_env(tmp_path, SUB_RUN_ID="run-new"))
    assert len(list((home / "run").glob("*.state"))) == 2


def test_journals_go_once_the_ledger_has_them_and_the_daemon_goes_when_idle(tmp_path: Path) -> None:
    cycles = 3
    env = isolated_env(tmp_path, SUB_RUN_ID="r", SUB_LEDGER_IDLE_S="1", HARNESS_MARKER=f"cycles-{os.getpid()}")
    home = tmp_path / "sub"
    for number in range(cycles):
        with Agent(shim_command("echo", fake_server()), env, tmp_path) as agent:
            agent.initialize()
            agent.call("echo", {"n": number})
            agent.close_stdin()
            agent.process.wait(GENEROUS_S)
            if number == cycles - 1:
                assert_no_processes(agent.marker, within=20)
    left = [name for name in files(home) if name.startswith("spool/")]
    assert left == [], "the ledger has every event of a journal that is gone"
    assert (home / "ledger.db").stat().st_size > 0
