"""From a client's own configuration to governed calls, with the real clients and nothing set up beforehand."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from clients.adopter import SUB, Adopter
from clients.models import Stall, ToolCall
from clients.scenarios import GOODBYE, model_for

pytestmark = [pytest.mark.clients, pytest.mark.timeout(240)]
POLICY = """
policy_id: team
version: "1"
mode: guardrails
defaults: {decision_on_error: BLOCK}
selectors: {}
rules:
  - rule_id: not-today
    kind: deny
    enabled: true
    severity: warn
    match: {server_name: {glob: ["box"]}, tool_name: {glob: ["echo"]}}
    effect:
      action: REJECT_WITH_HINT
      message: The box is closed on Sundays
      hint_text: Ask the crate instead
"""
STARTS = 10
BUSY = 2.0


def call(server: str, text: str = "hello") -> ToolCall:
    return ToolCall("echo", {"text": text}, server=server)


@pytest.fixture(params=["claude_code", "codex"])
def user(request: pytest.FixtureRequest, cli_dir: Path, home: Path) -> Iterator[Adopter]:
    adopter = Adopter(request.param, cli_dir, home)
    yield adopter
    adopter.clean_up()


class Tail:
    """`sub tail --json` in another window."""

    def __init__(self, user: Adopter) -> None:
        self.process = subprocess.Popen(
            [SUB, "tail", "--json"],
            env=user.env(),
            cwd=user.project,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self.first: tuple[float, dict[str, object]] | None = None
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            event = json.loads(line)
            if self.first is None and event["state"] == "started":
                self.first = (time.monotonic(), event)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self._thread.join(5)


@pytest.mark.contract("IMP-001", "IMP-002", "EVT-006")
def test_from_import_to_the_first_call_on_screen_and_back(user: Adopter) -> None:
    original = user.configure("box")
    begin = time.monotonic()
    user.sub("import", user.client)
    tail = Tail(user)
    with model_for(user.kind, (call("box"), GOODBYE)) as model:
        user.run(model, "box")
    [output] = model.tool_outputs()
    assert "echo: hello" in output
    [recorded] = user.calls(1)
    assert (recorded["server_name"], recorded["tool_name"]) == ("box", "echo")
    [run] = user.runs()
    assert (run["run_id"], run["client"]) == (recorded["run_id"], user.client)
    tail.close()
    assert tail.first is not None, "the call was not seen on sub tail"
    seconds = tail.first[0] - begin
    print(f"{user.client}: {seconds:.1f} s from import to the first tool_call_start on sub tail")
    assert seconds < 120
    user.assert_nothing_left()
    user.sub("restore", user.client)
    assert user.config.read_bytes() == original


def test_a_file_that_the_client_has_rewritten_gets_its_entries_back(user: Adopter) -> None:
    if user.kind != "claude_code":
        pytest.skip("Codex does not rewrite its file in a run")
    user.config = user.home / ".claude.json"
    user.configure("box")
    entry = json.loads(user.config.read_bytes())["mcpServers"]["box"]
    user.sub("import", "claude")
    with model_for(user.kind, (call("box"), GOODBYE)) as model:
        user.run(model, "box")
    rewritten = json.loads(user.config.read_bytes())
    assert len(rewritten) > 1, "Claude Code adds keys of its own"
    user.sub("restore", "claude")
    restored = json.loads(user.config.read_bytes())
    assert restored["mcpServers"]["box"]["command"] == entry["command"]
    assert restored["mcpServers"]["box"]["args"] == entry["args"]
    assert {k: v for k, v in restored.items() if k != "mcpServers"} == {
        k: v for k, v in rewritten.items() if k != "mcpServers"
    }


def test_two_servers_of_one_session_are_one_run(user: Adopter) -> None:
    user.configure("box", "crate")
    user.sub("import", user.client)
    with model_for(user.kind, (call("box"), call("crate"), GOODBYE)) as model:
        user.run(model, "box", "crate")
    recorded = user.calls(2)
    assert {each["server_name"] for each in recorded} == {"box", "crate"}
    assert len({each["run_id"] for each in recorded}) == 1
    [run] = user.runs()
    assert run["calls_total"] == 2


@pytest.mark.contract("EVT-004")
def test_under_sub_run_everything_belongs_to_the_run_that_was_named(user: Adopter) -> None:
    user.configure("box")
    user.sub("import", user.client)
    with model_for(user.kind, (call("box"), GOODBYE)) as model:
        user.run(model, "box", before=(SUB, "run", "--run-id", "run-of-mine", "--agent-id", "tester", "--"))
    [recorded] = user.calls(1)
    assert recorded["run_id"] == "run-of-mine"
    [run] = user.runs()
    assert (run["run_id"], run["agent_id"], run["calls_total"]) == ("run-of-mine", "tester", 1)
    assert run["status"] == "SUCCEEDED"
    user.assert_nothing_left()


def test_the_model_reads_why_a_call_was_refused_and_what_to_do(user: Adopter) -> None:
    user.configure("box")
    user.sub("import", user.client)
    (user.sub_home / "policy.yaml").write_text(POLICY)
    with model_for(user.kind, (call("box"), GOODBYE)) as model:
        user.run(model, "box")
    shown = json.dumps(model.requests[-1])
    assert "The box is closed on Sundays" in shown
    assert "Ask the crate instead" in shown
    [recorded] = user.calls(1)
    assert recorded["decision"] == "REJECT_WITH_HINT"


@pytest.mark.parametrize("ending", ["exit", "SIGTERM", "SIGKILL"])
def test_however_the_client_ends_no_process_is_left(user: Adopter, ending: str) -> None:
    user.configure("box", "crate")
    user.sub("import", user.client)
    turns = (call("box"), GOODBYE) if ending == "exit" else (call("box"), Stall())
    with model_for(user.kind, turns) as model:
        process = user.start(model, tools=("mcp__box__echo",))
        model.wait_for_requests(2, timeout=60)
        if ending != "exit":
            os.kill(user.client_process(process), getattr(signal, ending))
        process.communicate(timeout=60)
    user.assert_nothing_left()
    assert user.calls(1)[0]["tool_name"] == "echo"


def test_the_first_request_offers_the_tools_of_three_imported_servers_every_time(user: Adopter) -> None:
    servers = ("box", "crate", "chest")
    user.configure(*servers, patient=False)
    user.sub("import", user.client)
    complete = 0
    for number in range(1, STARTS + 1):
        complete += _offers_all(user, servers)
        load, cores = os.getloadavg()[0], os.cpu_count() or 1
        # Clients wait about a second and then go on without: on a crowded machine that is missed without us as well.
        if complete < number and load > BUSY * cores:
            pytest.skip(f"too busy here to judge: load {load:.0f} on {cores} cores, {complete} of {number} complete")
    assert complete == STARTS


def _offers_all(user: Adopter, servers: tuple[str, ...]) -> bool:
    """Whether the client, started as a user starts it, has the tools of all servers ready for its first request."""
    with model_for(user.kind, (GOODBYE,)) as model:
        user.run(model, *servers, patient=False)
    offered = model.tools_offered(0)
    return all(any(server in name and name.endswith("echo") for name in offered) for server in servers)
