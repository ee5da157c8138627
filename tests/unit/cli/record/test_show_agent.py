"""`sub show` of an agent's run: its own words between the calls that its shims recorded, each told once."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from harness import places
from harness.command_line import SUB, run_sub, stored
from harness.fake_server import fake_server
from harness.ledger import EventMaker, sub_environment
from harness.shim import Shim
from harness.sink import Spool
from harness.waiting import wait_for

STREAMS = places.FIXTURES / "agent_streams"
# The agent, its stream, and what it puts into `_meta` of the call that the stream speaks of.
AGENTS = {
    "claude": ("claude_code.tool_call.jsonl", {"claudecode/toolUseId": "toolu_0001"}),
    "codex": ("codex.tool_call.jsonl", {"callId": "call_9", "itemId": "item_2", "threadId": "t-1"}),
}


def agent_program(place: Path, name: str, stream: str) -> Path:
    """A program called like the agent that prints a stream recorded from the real one."""
    place.mkdir()
    program = place / name
    program.write_text(f"#!{sys.executable} -S\nprint(open({str(STREAMS / stream)!r}).read(), end='')\n")
    program.chmod(0o755)
    return place


@pytest.mark.parametrize("name", AGENTS)
def test_what_the_agent_said_and_what_its_shim_recorded_are_one_story(tmp_path: Path, name: str) -> None:
    stream, meta = AGENTS[name]
    home = tmp_path / "sub"
    programs = agent_program(tmp_path / "bin", name, stream)
    identity = {"SUB_RUN_ID": "run-told", "SUB_AGENT_ID": "teller"}
    shim = Shim(tmp_path, "box", fake_server(tools={"echo": {}}), events=Spool(home / "spool"), env=identity)
    with shim.start() as client:
        client.initialize()
        assert "result" in client.call("echo", {"text": "hello"}, _meta=meta)
        client.finish()
    environment = sub_environment(home, **identity)
    environment["PATH"] = f"{programs}:{environment['PATH']}"
    done = subprocess.run(
        [*SUB, "agent", "run", name, "--", "Ask the box"], env=environment, capture_output=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert run_sub(home, "ledgerd").returncode == 0  # the shim has started one already, or this does
    try:
        wait_for(lambda: not list((home / "spool").glob("*.jsonl")), what="the spool emptied")
        text = run_sub(home, "show", "run-told").stdout
        timeline = json.loads(run_sub(home, "show", "run-told", "--json").stdout)["timeline"]
        verified = run_sub(home, "verify", "run-told")
    finally:
        run_sub(home, "ledgerd", "--stop")
    assert text.count("box/echo") == 1 and "uses " not in text
    assert text.index("I will ask the box.") < text.index("The box has answered. Goodbye.")
    assert "completion SUCCEEDED" in text
    call = next(item for item in timeline if item["kind"] == "call")
    reported = [item for item in timeline if item["kind"] == "agent_event" and item["agent"]["kind"].startswith("Tool")]
    assert [item["call_id"] for item in reported] == [call["call_id"]] * 2
    assert verified.returncode == 0, verified.stdout


def test_a_run_of_which_only_the_agent_told_says_politely_that_its_policy_is_not_known(tmp_path: Path) -> None:
    agent = EventMaker("run-1", "agent-1")
    said = {"agent_kind": "codex", "kind": "TextOutput", "text": "Nothing to do."}
    stored(tmp_path / "sub", [agent.event("agent_event", agent=said), agent.run_end()])
    shown = run_sub(tmp_path / "sub", "show", "run-1", "--no-sync")
    assert shown.returncode == 0 and "None" not in shown.stdout
    assert "policy    unknown: no shim has reported the start of this run" in shown.stdout
    assert "says       Nothing to do." in shown.stdout


def test_an_id_that_another_thread_uses_too_is_not_taken_for_the_same_call(tmp_path: Path) -> None:
    shim, agent = EventMaker("run-1", "shim-1"), EventMaker("run-1", "agent-1")
    start = json.loads(shim.start("git_push", "git"))
    start["call"]["call_context"] = {"itemId": "item_2", "threadId": "t-1"}
    told = [
        {"phase": "start", "id": "item_2", "name": "read", "server_name": "fs", "tool_name": "read"},
        {"phase": "start", "id": "item_2", "name": "git_push", "server_name": "git", "tool_name": "git_push"},
        {"phase": "start", "id": "t-1", "name": "spawn"},
    ]
    lines = [
        agent.event("agent_event", agent={"agent_kind": "codex", "kind": "ToolCall", "data": data}) for data in told
    ]
    stored(tmp_path / "sub", [json.dumps(start).encode(), shim.decision(), shim.end(), *lines])
    text = run_sub(tmp_path / "sub", "show", "run-1", "--no-sync").stdout
    assert "uses read" in text and "uses spawn" in text and "uses git_push" not in text
