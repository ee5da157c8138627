"""`sub kill`, and a policy that ends a run: the agent ends soon, and nothing of the run is left."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.fake_server import fake_server
from harness.processes import MARKER_VARIABLE, assert_no_processes, kill_marked, new_marker
from harness.shim import isolated_env
from harness.waiting import GENEROUS_S, wait_for
from subluminal.runs.kill import WAIT_S
from subluminal.runs.launch import EXIT_TERMINATED

SUB = [sys.executable, "-m", "subluminal"]
# An agent with one server behind a shim. Says "ready", then calls a tool whenever it gets a line.
AGENT = """
import json, os, signal, subprocess, sys
if os.environ.get("STUBBORN"):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
server = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
def ask(number, method, params):
    request = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
    server.stdin.write(json.dumps(request).encode() + b"\\n")
    server.stdin.flush()
    return server.stdout.readline()
ask(0, "initialize", {"protocolVersion": "2025-06-18", "capabilities": {}})
os.write(1, b"ready\\n")
number = 0
while os.read(0, 100):
    number += 1
    os.write(1, ask(number, "tools/call", {"name": "echo", "arguments": {"n": number}}))
while True:
    signal.pause()
"""
STUBBORN: dict[str, Any] = {
    "ignore": ["SIGINT", "SIGTERM", "SIGHUP", "EOF"],
    "grandchildren": {"count": 1, "ignore_signals": True, "setsid": True},
}
TERMINATE = {
    "policy_id": "p",
    "version": "1",
    "mode": "guardrails",
    "defaults": {"decision_on_error": "BLOCK"},
    "selectors": {},
    "rules": [
        {
            "rule_id": "stop",
            "kind": "budget",
            "enabled": True,
            "severity": "critical",
            "match": {"tool_name": {"glob": ["echo"]}},
            "effect": {"budget": {"scope": "run", "limit_calls": 0, "on_exceed": "TERMINATE_RUN"}},
        }
    ],
}


class Desk:
    def __init__(self, tmp_path: Path) -> None:
        self.home = tmp_path / "sub"
        self.home.mkdir(mode=0o700)
        (self.home / "ledgerd.pid").mkdir()  # keeps the daemon away, so that journals can be read
        self.cwd = tmp_path
        self.marker = new_marker()
        self.env = {**isolated_env(tmp_path), MARKER_VARIABLE: self.marker}
        (tmp_path / "agent.py").write_text(AGENT)

    def agent(self, run_id: str, *options: str, **env: str) -> subprocess.Popen[bytes]:
        shim = [*SUB, "shim", "--server-name", "box", "--", *fake_server(**STUBBORN if env else {})]
        process = subprocess.Popen(
            [*SUB, "run", "--run-id", run_id, *options, "--", sys.executable, "agent.py", *shim],
            env={**self.env, **env},
            cwd=self.cwd,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        return process

    def kill(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*SUB, "kill", *words], env=self.env, capture_output=True, text=True, timeout=30)

    def sub(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*SUB, *words], env=self.env, capture_output=True, text=True, timeout=60)

    def events(self) -> list[dict[str, Any]]:
        paths = (self.home / "spool").glob("*.jsonl")
        return [json.loads(line) for path in paths for line in path.read_bytes().splitlines()]


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    place = Desk(tmp_path)
    yield place
    kill_marked(place.marker)


@pytest.mark.parametrize("env", [{}, {"STUBBORN": "1"}], ids=["willing", "stubborn"])
def test_it_ends_agent_shim_and_server_and_says_why(desk: Desk, env: dict[str, str]) -> None:
    process = desk.agent("run-one", **env)
    done = desk.kill("run-one", "--reason", "it loops")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "stopped run-one\n")
    assert_no_processes(desk.marker)
    _, err = process.communicate(timeout=GENEROUS_S)
    assert process.returncode == EXIT_TERMINATED
    assert b"it loops" in err
    [end] = [e for e in desk.events() if e["type"] == "run_end" and e["run"]["status"] == "TERMINATED"][-1:]
    assert end["run_id"] == "run-one"
    assert not list((desk.home / "run").glob("*.json"))


def test_a_policy_that_terminates_the_run_ends_the_agent_too(desk: Desk) -> None:
    (desk.cwd / "policy.json").write_text(json.dumps(TERMINATE))
    process = desk.agent("run-one", "--policy", "policy.json")
    _, err = process.communicate(b"go\n", timeout=GENEROUS_S)
    assert process.returncode == EXIT_TERMINATED
    assert b"terminated" in err
    [decision] = [event["decision"] for event in desk.events() if event["type"] == "tool_call_decision"]
    assert (decision["action"], decision["rule_id"]) == ("TERMINATE_RUN", "stop")
    assert_no_processes(desk.marker)


def test_a_run_that_was_stopped_at_the_keyboard_is_woken_to_end(desk: Desk) -> None:
    process = desk.agent("run-one")
    process.send_signal(signal.SIGSTOP)
    assert desk.kill("run-one").returncode == 0
    assert_no_processes(desk.marker)
    process.communicate(timeout=GENEROUS_S)


def test_other_runs_go_on(desk: Desk) -> None:
    first, second = desk.agent("run-one"), desk.agent("run-two")
    assert desk.kill("run-two").returncode == 0
    assert second.wait(GENEROUS_S) == EXIT_TERMINATED
    assert first.poll() is None
    assert first.stdin is not None and first.stdout is not None
    first.stdin.write(b"go\n")
    first.stdin.flush()
    assert "result" in json.loads(first.stdout.readline())
    assert desk.kill("--all", "--json").returncode == 0
    assert first.wait(GENEROUS_S) == EXIT_TERMINATED
    assert_no_processes(desk.marker)


def test_a_run_of_the_same_id_in_another_home_goes_on(desk: Desk, tmp_path: Path) -> None:
    process = desk.agent("run-one")
    (tmp_path / "elsewhere").mkdir()
    other = Desk(tmp_path / "elsewhere")
    theirs = other.agent("run-one")
    try:
        assert desk.kill("run-one").stderr == "stopped run-one\n"
        assert process.wait(GENEROUS_S) == EXIT_TERMINATED
        assert_no_processes(desk.marker)
        assert theirs.stdin is not None and theirs.stdout is not None
        theirs.stdin.write(b"go\n")
        theirs.stdin.flush()
        assert "result" in json.loads(theirs.stdout.readline()), "its agent and its server are as they were"
    finally:
        kill_marked(other.marker)


def test_last_is_the_run_used_last_and_a_beginning_will_do(desk: Desk) -> None:
    for name in ("alpha-1", "alpha-2"):
        desk.agent(name)
    ambiguous = desk.kill("alpha")
    assert ambiguous.returncode == 2 and "alpha-1" in ambiguous.stderr and "alpha-2" in ambiguous.stderr
    assert json.loads(desk.kill("alpha-1", "--json").stdout)["killed"] == ["alpha-1"]
    assert json.loads(desk.kill("last", "--json").stdout)["killed"]


def test_a_run_that_is_not_known_is_said_so(desk: Desk) -> None:
    done = desk.kill("nothing-of-the-kind")
    assert done.returncode == 1 and "nothing-of-the-kind" in done.stderr
    for everything in ("--all", "last", "last~3"):
        done = desk.kill(everything)
        assert done.returncode == 1 and "There is no run to stop" in done.stderr
    assert desk.kill().returncode == 2
    assert desk.kill("x", "--all").returncode == 2


def test_a_run_without_sub_run_can_call_nothing_more(desk: Desk) -> None:
    shim = [*SUB, "shim", "--server-name", "box", "--", *fake_server()]
    process = subprocess.Popen(
        [sys.executable, "agent.py", *shim],
        env={**desk.env, "SUB_RUN_ID": "loose"},
        cwd=desk.cwd,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdin is not None and process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    begin = time.monotonic()
    assert desk.kill("loose", "--reason", "no more").returncode == 0
    assert time.monotonic() - begin < WAIT_S, "there is no keeper to wait for"
    process.stdin.write(b"go\n")
    process.stdin.flush()
    error = json.loads(process.stdout.readline())["error"]
    assert error["code"] == -32084 and "no more" in error["message"]
    assert process.poll() is None
    process.kill()
    process.wait()
    wait_for(lambda: [e for e in desk.events() if e["type"] == "run_end"], what="the end of the shim")


def test_the_order_and_its_reason_are_in_the_timeline_though_no_call_follows(desk: Desk) -> None:
    (desk.home / "ledgerd.pid").rmdir()
    process = desk.agent("run-one", "--agent-id", "fixer")
    wait_for(lambda: "run-one" in desk.sub("runs", "--json").stdout, what="the run in the ledger")
    assert desk.kill("run-one", "--reason", "it loops").returncode == 0
    assert process.wait(GENEROUS_S) == EXIT_TERMINATED
    wait_for(lambda: "TERMINATED" in desk.sub("runs", "--json").stdout, what="the end of the run")
    shown = desk.sub("show", "run-one").stdout
    assert "by the operator: it loops" in shown and "fixer" in shown
    again = desk.kill("last")
    assert (again.returncode, again.stderr) == (1, "run-one had ended before: there was nothing to stop\n")
