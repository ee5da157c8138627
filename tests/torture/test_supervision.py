"""Nothing outlives its agent: every way a session can end x every kind of server, with real processes.

A client gives almost no grace, and a process killed with SIGKILL can do nothing any more. After each ending, within
GRACE_S, no process of the tree may be alive: not the shim, not its watchdog, not the server, not what the server
started. And what the agent had an answer to must be in the event stream.
"""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.client import ClientProcess
from harness.driver import Agent
from harness.fake_server import fake_server
from harness.processes import assert_no_processes, is_alive
from harness.shim import Shim
from harness.waiting import while_passing

GRACE_S = 5.0
SEED = 20260728

IGNORES_EVERYTHING = {"ignore": ["SIGINT", "SIGTERM", "SIGHUP", "EOF"]}
SERVERS: dict[str, dict[str, Any]] = {
    "cooperative": {},
    "ignores signals and EOF": IGNORES_EVERYTHING,
    "forks stubborn grandchildren": {"grandchildren": {"count": 2, "ignore_signals": True}},
}


def send(number: int) -> Callable[[Agent], None]:
    return lambda agent: agent.signal(number)


def as_claude_code(agent: Agent) -> None:
    """SIGINT, SIGTERM 100 ms later, SIGKILL 400 ms after that; to the direct child only, stdin still open."""
    agent.signal(signal.SIGINT)
    agent.settle(0.1)
    agent.signal(signal.SIGTERM)
    agent.settle(0.4)
    agent.signal(signal.SIGKILL)


def as_codex(agent: Agent) -> None:
    """SIGTERM to the group and EOF, SIGKILL to the group a moment later."""
    agent.signal_group(signal.SIGTERM)
    agent.close_stdin()
    agent.settle(0.005)
    if is_alive(agent.pid):
        agent.signal_group(signal.SIGKILL)


def as_sdk(agent: Agent) -> None:
    """EOF, SIGTERM to the group after 2 s, SIGKILL to it after 2 s more."""
    agent.close_stdin()
    for number in (signal.SIGTERM, signal.SIGKILL):
        for _ in while_passing(2):
            if not is_alive(agent.pid):
                return
            agent.settle(0.02)
        agent.signal_group(number)


ENDINGS: dict[str, Callable[[Agent], None]] = {
    "EOF": Agent.close_stdin,
    "SIGINT": send(signal.SIGINT),
    "SIGTERM": send(signal.SIGTERM),
    "SIGHUP": send(signal.SIGHUP),
    "SIGKILL": send(signal.SIGKILL),
    "SIGKILL to the group": lambda agent: agent.signal_group(signal.SIGKILL),
    "as Claude Code does": as_claude_code,
    "as Codex does": as_codex,
    "as the SDKs do": as_sdk,
}

every_server = pytest.mark.parametrize("script", SERVERS.values(), ids=SERVERS.keys())


def make_shim(tmp_path: Path, script: dict[str, Any]) -> tuple[Shim, Path]:
    pid_file = tmp_path / "pids"
    tools = {"echo": {}, "slow": {"never": True}}
    return Shim(tmp_path, "linear", fake_server(tools=tools, pid_file=str(pid_file), **script)), pid_file


def server_pids(pid_file: Path, script: dict[str, Any]) -> list[int]:
    pids = [int(line.split()[1]) for line in pid_file.read_text().splitlines()]
    assert len(pids) == 1 + script.get("grandchildren", {}).get("count", 0)
    assert all(map(is_alive, pids))
    return pids


@every_server
@pytest.mark.parametrize("ending", ENDINGS.values(), ids=ENDINGS.keys())
def test_nothing_is_left_of_the_tree(tmp_path: Path, ending: Callable[[Agent], None], script: dict[str, Any]) -> None:
    setup, pid_file = make_shim(tmp_path, script)
    with setup.start() as agent:
        agent.initialize()
        agent.call("echo")
        agent.start_call("slow")
        setup.events.wait_count(lambda event: event["type"] == "tool_call_decision", 2)
        pids = server_pids(pid_file, script)
        ending(agent)
        agent.wait_exit(GRACE_S)
        assert_no_processes(agent.marker, within=GRACE_S, pids=pids)
    starts = setup.events.events_of("tool_call_start")
    assert [start["call"]["tool_name"] for start in starts] == ["echo", "slow"]
    for start in starts:
        recorded = [event["type"] for event in setup.events.of_call(start["call"]["call_id"])]
        assert recorded[:2] == ["tool_call_start", "tool_call_decision"]


@every_server
@pytest.mark.parametrize("to_group", [False, True], ids=["the client", "its whole group"])
def test_a_client_that_is_killed_takes_everything_with_it(
    tmp_path: Path, to_group: bool, script: dict[str, Any]
) -> None:
    setup, pid_file = make_shim(tmp_path, script)
    with ClientProcess(setup.command, setup.env, tmp_path) as client:
        pids = server_pids(pid_file, script)
        (client.signal_group if to_group else client.signal)(signal.SIGKILL)
        assert client.process.wait(GRACE_S) == -signal.SIGKILL
        assert_no_processes(client.marker, within=GRACE_S, pids=[client.server_pid, *pids])


def test_a_shim_killed_at_any_instant_of_its_start_leaves_nothing(tmp_path: Path) -> None:
    """The hard window is between starting the server and having a watchdog over it."""
    rng = random.Random(SEED)
    setup, _ = make_shim(tmp_path, IGNORES_EVERYTHING)
    for attempt in range(25):
        delay = rng.uniform(0, 0.12)
        with setup.start() as agent:
            agent.settle(delay)
            agent.signal_group(signal.SIGKILL)
            agent.wait_exit(GRACE_S)
            try:
                assert_no_processes(agent.marker, within=GRACE_S)
            except AssertionError as error:
                error.add_note(f"seed {SEED}, attempt {attempt}, killed after {delay * 1000:.2f} ms")
                raise


def test_the_server_may_be_killed_without_any_harm_to_the_shim(tmp_path: Path) -> None:
    setup, pid_file = make_shim(tmp_path, {"grandchildren": {"count": 2}})
    with setup.start() as agent:
        agent.initialize()
        agent.start_call("slow")
        server = int(pid_file.read_text().split()[1])
        os.kill(server, signal.SIGKILL)
        assert agent.wait_exit(GRACE_S) != 0
        assert_no_processes(agent.marker, within=GRACE_S)
        assert "Traceback" not in agent.stderr
    assert setup.events.wait_type("run_end")["run"]["status"] == "FAILED"
