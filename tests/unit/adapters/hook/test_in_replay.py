"""Hooks in a replay: the client's own tools are refused, whatever policies say, and calls of servers are not theirs."""

from __future__ import annotations

from pathlib import Path

from harness.hooks import HookClient


def test_own_tools_are_refused_and_calls_of_servers_are_left_to_who_answers_them(tmp_path: Path) -> None:
    with HookClient(tmp_path, env={"SUB_RUN_ID": "run-1", "SUB_REPLAY": str(tmp_path)}) as client:
        assert "replay of a recorded one" in client.before("Bash", {"command": "ls"}).reason
        assert client.before("mcp__box__echo", {"text": "x"}).reason == ""
    client.events.wait_type("run_end")
    (decided,) = client.events.events_of("tool_call_decision")
    assert (decided["call"]["server_name"], decided["decision"]["explain"]["reason_code"]) == ("builtin", "REPLAYED")
