"""One call is told as one, as real shims and servers record it: refused on a later leg, or seen by two doors."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.command_line import run_sub, stored
from harness.fake_server import fake_server
from harness.headless import NO_DELETE, bundle_of
from harness.shim import Shim
from harness.sink import EventFile

ERA = {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}


def query(home: Path, *options: str) -> list[dict[str, Any]]:
    done = run_sub(home, "query", "--json", "--no-sync", *options)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_a_call_refused_on_its_second_leg_is_a_refused_call_wherever_it_is_looked_for(tmp_path: Path) -> None:
    steps = [{"result": {"resultType": "input_required", "inputRequests": {}, "requestState": "s1"}}, {}]
    server = fake_server(tools={"delete_all": {"sequence": steps}, "look": {"is_error": "nothing there"}})
    shim = Shim(tmp_path, "box", server, policy=bundle_of(), env={"SUB_RUN_ID": "run-1"})
    with shim.start() as agent:
        agent.initialize()
        assert "result" in agent.call("look", {})
        assert agent.call("delete_all", {}, _meta=ERA)["result"]["resultType"] == "input_required"
        assert shim.policy is not None
        draft = tmp_path / "draft.json"
        draft.write_text(json.dumps({**NO_DELETE, "version": "2"}))
        draft.replace(shim.policy)
        shim.events.wait_for(lambda e: e["type"] == "policy_loaded" and e["policy"]["policy_version"] == "2")
        assert agent.call("delete_all", {}, _meta=ERA, requestState="s1")["error"]["code"] == -32081
        agent.finish()
    end = shim.events.wait_type("run_end")
    home = tmp_path / "ledger"
    stored(home, [line.rstrip() for line in shim.events.lines()])

    (refused,) = query(home, "--decision", "BLOCK")
    assert (refused["tool_name"], refused["rule_id"], refused["status"]) == ("delete_all", "no-delete", "ERROR")
    assert [call["tool_name"] for call in query(home, "--decision", "ALLOW")] == ["look"]
    assert [call["tool_name"] for call in query(home, "--status", "ERROR")] == ["look"]
    run = json.loads(run_sub(home, "show", "run-1", "--json", "--no-sync").stdout)
    assert {name: run[name] for name in end["run"]["summary"] if name in run} == {
        name: value for name, value in end["run"]["summary"].items() if name != "duration_ms"
    }
    assert (run["calls_blocked"], run["errors_total"]) == (1, 1)
    tailed = run_sub(home, "tail", "--no-follow", "--json", "--decision", "BLOCK")
    assert [json.loads(line)["call_id"] for line in tailed.stdout.splitlines()] == [refused["call_id"]]
    assert run_sub(home, "verify", "run-1").returncode == 0


def test_a_call_that_a_shim_and_the_server_itself_saw_is_told_once_with_both_doors(tmp_path: Path) -> None:
    pytest.importorskip("mcp.server.mcpserver", reason="mcp 2.x is not installed")
    inside = EventFile(tmp_path / "inside.jsonl")
    program = (
        "import os\n"
        f"os.environ['SUB_EVENTS'] = {inside.argument!r}\n"
        "from mcp.server.mcpserver import MCPServer\n"
        "from subluminal.adapters.in_process import protect\n"
        "server = MCPServer('notes', log_level='ERROR')\n"
        "@server.tool()\n"
        "def look(n: int) -> str:\n"
        "    return str(n)\n"
        "@server.tool()\n"
        "def delete_note(n: int) -> str:\n"
        "    return str(n)\n"
        f"protect(server, policy={str(tmp_path / 'inside.json')!r})\n"
        "server.run('stdio')\n"
    )
    (tmp_path / "inside.json").write_text(json.dumps(NO_DELETE))
    shim = Shim(tmp_path, "notes", [sys.executable, "-c", program], policy=bundle_of(), env={"SUB_RUN_ID": "run-1"})
    with shim.start() as agent:
        agent.initialize()
        agent.call("look", {"n": 1}, _meta={"claudecode/toolUseId": "toolu_1"})
        agent.call("delete_note", {"n": 2}, _meta={"claudecode/toolUseId": "toolu_2"})
        agent.call("look", {"n": 1})
        agent.finish()
    shim.events.wait_type("run_end")
    inside.wait_type("run_end")
    home = tmp_path / "ledger"
    stored(home, [line.rstrip() for line in (*shim.events.lines(), *inside.lines())])

    asked = query(home)
    assert sorted(call["tool_use_id"] or "" for call in asked) == ["", "", "toolu_1", "toolu_2"], "without an id: never"
    assert [call["decision"] for call in asked if call["tool_use_id"] == "toolu_2"] == ["BLOCK"], "the strictest stands"
    assert [call["tool_use_id"] for call in query(home, "--decision", "ALLOW", "--tool", "delete_note")] == []
    assert [len(query(home, "--limit", str(limit))) for limit in (1, 2, 3, 4, 5)] == [1, 2, 3, 4, 4]
    timeline = json.loads(run_sub(home, "show", "run-1", "--json", "--no-sync").stdout)["timeline"]
    calls = [item for item in timeline if item["kind"] == "call"]
    doors = {"mcp_stdio", "in_process"}
    named = {call["tool_use_id"]: call for call in calls if call["tool_use_id"]}
    assert [call["tool_name"] for call in calls if not call["tool_use_id"]] == ["look", "look"], "without an id: never"
    assert len(calls) == 4
    for call in named.values():
        assert {door["transport"] for door in call["doors"]} == doors
    assert (named["toolu_1"]["decision"], named["toolu_2"]["decision"]) == ("ALLOW", "BLOCK")
    text = run_sub(home, "show", "run-1", "--no-sync").stdout
    assert "notes/delete_note" in text and text.count("notes/delete_note") == 1
    assert "seen by mcp_stdio (ALLOW), in_process (BLOCK)" in text
    outer = next(door for door in named["toolu_2"]["doors"] if door["transport"] == "mcp_stdio")
    described = run_sub(home, "show", outer["call_id"], "--no-sync").stdout
    assert "mcp_stdio (ALLOW), in_process (BLOCK)" in described


@pytest.mark.parametrize("module", ["tail.command", "record.show_run", "record.show_call"])
def test_telling_of_calls_imports_no_event_types(module: str) -> None:
    script = (
        "import sys; import subluminal.ledger.read.timeline, subluminal.ledger.read.description;"
        f" import subluminal.cli.{module}; print({{'msgspec', 'click', 'asyncio'}} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
