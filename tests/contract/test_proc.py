"""PROC: the shim, its server and whatever that server started end together, with real signals to real processes."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from harness.client import ClientProcess
from harness.driver import Agent
from harness.fake_server import fake_server
from harness.processes import assert_no_processes, is_alive, is_zombie
from harness.shim import Shim

GRACE_S = 5.0
STUBBORN = {"ignore": ["SIGINT", "SIGTERM", "SIGHUP", "EOF"]}
SERVERS: dict[str, dict[str, Any]] = {
    "cooperative": {},
    "stubborn": STUBBORN,
    "with stubborn grandchildren": {**STUBBORN, "grandchildren": {"count": 2}},
}
every_server = pytest.mark.parametrize("script", SERVERS.values(), ids=SERVERS.keys())


def server_pids(pid_file: Path) -> list[int]:
    return [int(line.split()[1]) for line in pid_file.read_text().splitlines()]


def wait_until_judged(setup: Shim, calls: int) -> None:
    """Written is not yet read: only the event says that the shim has the call in its hands."""
    setup.events.wait_count(lambda event: event["type"] == "tool_call_decision", calls)


def setup_for(tmp_path: Path, script: dict[str, Any]) -> tuple[Shim, Path]:
    pid_file = tmp_path / "pids"
    tools = {"echo": {}, "slow": {"never": True}}
    return Shim(tmp_path, "linear", fake_server(tools=tools, pid_file=str(pid_file), **script)), pid_file


@contextmanager
def in_the_middle_of_a_call(tmp_path: Path, script: dict[str, Any]) -> Iterator[Agent]:
    """Inside, end the session. Nothing of it is left then, and the record says that it was cut off."""
    setup, pid_file = setup_for(tmp_path, script)
    with setup.start() as agent:
        agent.initialize()
        agent.call("echo")
        agent.start_call("slow")
        wait_until_judged(setup, 2)
        pids = server_pids(pid_file)
        assert all(map(is_alive, pids))
        yield agent
        agent.wait_exit(GRACE_S)
        assert_no_processes(agent.marker, within=GRACE_S, pids=pids)
        assert "Traceback" not in agent.stderr
    assert setup.events.wait_type("run_end")["run"]["status"] == "CANCELLED"
    assert [end["status"] for end in setup.events.events_of("tool_call_end")] == ["OK", "CANCELLED"]


@pytest.mark.contract("PROC-001")
@every_server
def test_sigint_to_the_shim_ends_the_whole_tree(tmp_path: Path, script: dict[str, Any]) -> None:
    with in_the_middle_of_a_call(tmp_path, script) as agent:
        agent.signal(signal.SIGINT)


@pytest.mark.contract("PROC-001")
@every_server
@pytest.mark.parametrize("to_group", [False, True], ids=["to the agent", "to the agent's group"])
def test_sigint_to_the_agent_ends_the_whole_tree(tmp_path: Path, script: dict[str, Any], to_group: bool) -> None:
    setup, pid_file = setup_for(tmp_path, script)
    with ClientProcess(setup.command, setup.env, tmp_path) as client:
        pids = server_pids(pid_file)
        assert is_alive(client.server_pid) and all(map(is_alive, pids))
        (client.signal_group if to_group else client.signal)(signal.SIGINT)
        assert client.process.wait(GRACE_S) == -signal.SIGINT
        assert_no_processes(client.marker, within=GRACE_S, pids=[client.server_pid, *pids])
    setup.events.wait_type("run_end")


@pytest.mark.contract("PROC-001")
def test_the_shim_reaps_its_server_while_the_agent_still_lives(tmp_path: Path) -> None:
    setup, pid_file = setup_for(tmp_path, {})
    with setup.start() as agent:
        agent.initialize()
        (server,) = server_pids(pid_file)
        agent.signal(signal.SIGINT)
        agent.wait_exit(GRACE_S)
        assert not is_alive(server) and not is_zombie(server)
        assert not is_zombie(agent.pid)


@pytest.mark.contract("PROC-002")
@every_server
def test_eof_on_stdin_ends_shim_and_server(tmp_path: Path, script: dict[str, Any]) -> None:
    with in_the_middle_of_a_call(tmp_path, script) as agent:
        agent.close_stdin()


@pytest.mark.contract("PROC-002")
def test_after_eof_a_cooperative_server_ends_the_shim_cleanly(tmp_path: Path) -> None:
    setup = Shim(tmp_path, "linear", fake_server())
    with setup.start() as agent:
        agent.initialize()
        agent.call("echo")
        assert agent.finish(GRACE_S) == 0
    assert setup.events.wait_type("run_end")["run"]["status"] == "SUCCEEDED"


@pytest.mark.contract("PROC-002")
def test_replies_already_under_way_at_eof_still_arrive(tmp_path: Path) -> None:
    """A script that pipes its requests in and closes the pipe still wants the answers."""
    setup = Shim(tmp_path, "linear", fake_server(tools={"echo": {}}))
    with setup.start() as agent:
        ids = [agent.start_call("echo", {"n": number}, wait=False) for number in range(20)]
        agent.send_raw(b"")
        agent.close_stdin()
        assert all("result" in reply for reply in agent.replies(ids))
        agent.wait_exit(GRACE_S)


@pytest.mark.contract("PROC-003")
@pytest.mark.parametrize(
    "crash",
    [{"exit": 3}, {"exit": 0}, {"signal": "SIGSEGV"}, {"signal": "SIGKILL"}, {"exit": 1, "when": "partial"}],
    ids=["exit 3", "exit 0", "segfault", "killed", "in the middle of a reply"],
)
def test_a_server_that_dies_in_a_call_ends_it_with_an_error(tmp_path: Path, crash: dict[str, Any]) -> None:
    setup = Shim(tmp_path, "linear", fake_server(tools={"echo": {}, "slow": {"never": True}, "die": {"crash": crash}}))
    with setup.start() as agent:
        agent.initialize()
        agent.call("echo")
        agent.start_call("slow")
        agent.start_call("die")
        agent.wait_exit(GRACE_S)
        assert_no_processes(agent.marker, within=GRACE_S)
        assert "Traceback" not in agent.stderr
    run = setup.events.wait_type("run_end")["run"]
    assert run["status"] == "FAILED"
    ends = setup.events.events_of("tool_call_end")
    assert [end["status"] for end in ends] == ["OK", "ERROR", "ERROR"]
    assert {end["error"]["class"] for end in ends[1:]} == {"transport"}
    assert run["summary"]["errors_total"] == 2


@pytest.mark.contract("PROC-003")
def test_a_server_that_cannot_start_is_reported_at_once(tmp_path: Path) -> None:
    setup = Shim(tmp_path, "linear", ["/nonexistent/tool-server"])
    with setup.start() as agent:
        assert agent.wait_exit(GRACE_S) != 0
        assert "/nonexistent/tool-server" in agent.stderr
        assert "Traceback" not in agent.stderr


@pytest.mark.contract("PROC-003")
def test_a_server_that_only_closes_its_stdout_does_not_hang_the_agent(tmp_path: Path) -> None:
    setup = Shim(tmp_path, "linear", fake_server(tools={"shut": {"close_stdout": True}}, ignore=["EOF"]))
    with setup.start() as agent:
        agent.initialize()
        agent.start_call("shut")
        agent.pump_until(lambda: agent.stdout_closed, GRACE_S, "the end of the shim's stdout")
    assert setup.events.wait_type("tool_call_end")["status"] == "ERROR"
