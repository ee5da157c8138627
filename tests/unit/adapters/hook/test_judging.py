"""What a client hears of its calls, and what the record says of them: real hook commands, a real judge."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from harness.command_line import SUB, run_sub, stored
from harness.fake_server import fake_server
from harness.hooks import HookClient
from harness.shim import Shim
from harness.sink import EventFile
from harness.waiting import wait_for

NO_RM: dict[str, Any] = {
    "rule_id": "no-rm",
    "kind": "deny",
    "match": {
        "server_name": {"glob": ["builtin"]},
        "tool_name": {"glob": ["Bash"]},
        "args": {"command": {"command": {"programs": ["rm"]}}},
    },
    "effect": {"action": "REJECT_WITH_HINT", "hint_text": "Move the file to the trash instead."},
}
NOT_IN_SECRETS: dict[str, Any] = {
    "rule_id": "not-there",
    "kind": "deny",
    "match": {
        "any_of": [
            {"args": {"path_within": {"file_path": ["secrets"]}}},
            {"args": {"path_within": {"paths": ["secrets"]}}},
        ]
    },
    "effect": {"action": "BLOCK"},
}


def bundle(*rules: dict[str, Any], mode: str = "guardrails", on_error: str = "BLOCK") -> dict[str, Any]:
    defaults = {"decision_on_error": on_error}
    head = {"policy_id": "hooks", "version": "1", "mode": mode, "defaults": defaults, "selectors": {}}
    return {**head, "rules": list(rules)}


def budget(calls: int, on_exceed: str = "BLOCK") -> dict[str, Any]:
    effect = {"budget": {"scope": "run", "limit_calls": calls, "on_exceed": on_exceed}}
    return {"rule_id": "budget", "kind": "budget", "match": {"tool_name": {"glob": ["*"]}}, "effect": effect}


@pytest.fixture(params=[True, False], ids=["C", "Python"])
def compiled(request: pytest.FixtureRequest) -> bool:
    chosen: bool = request.param
    return chosen


def ends(events: EventFile) -> list[tuple[str, str, str | None]]:
    """(tool, status, class of the error) of every call, in the order of their ends."""
    return [
        (end["call"]["tool_name"], end["status"], end.get("error", {}).get("class"))
        for end in events.events_of("tool_call_end")
    ]


def test_an_allowed_call_is_answered_with_nothing_and_recorded_with_its_end(tmp_path: Path, compiled: bool) -> None:
    given = {"command": "echo hello", "description": "greet"}
    with HookClient(tmp_path, policy=bundle(NO_RM), compiled=compiled) as client:
        told = client.before("Bash", given, "toolu_01")
        assert (told.code, told.stdout, told.stderr) == (0, "", "")
        response = {"stdout": "hello", "stderr": "", "interrupted": False}
        after = client.after("Bash", given, "toolu_01", response, duration_ms=12)
        assert (after.code, after.stdout, after.stderr) == (0, "", "")
    client.events.wait_type("run_end")
    (start,) = client.events.events_of("tool_call_start")
    call = start["call"]
    assert (call["server_name"], call["tool_name"], call["transport"]) == ("builtin", "Bash", "hook")
    assert json.loads(call["preview"]["args_preview"]) == given
    assert call["call_context"] == {"claudecode/toolUseId": "toolu_01"}
    (end,) = client.events.events_of("tool_call_end")
    assert (end["status"], end["latency_ms"]) == ("OK", 12)
    assert json.loads(end["preview"]["result_preview"]) == response
    assert client.events.types()[0] == "run_start" and client.events.types()[-1] == "run_end"


@pytest.mark.parametrize("name", ["claude", "codex"])
def test_a_refused_call_tells_the_model_why_and_what_to_do_and_is_closed_at_once(
    tmp_path: Path, compiled: bool, name: str
) -> None:
    with HookClient(tmp_path, client=name, policy=bundle(NO_RM), compiled=compiled) as client:
        reason = client.before("Bash", {"command": "cd /tmp && rm -rf x"}, "id-1").reason
        assert "no-rm" in reason and "Move the file to the trash instead." in reason
        assert ends(client.events) == [("Bash", "ERROR", "policy_block")], "before the client heard of it"
        assert client.before("Bash", {"command": "mv x trash"}, "id-2").reason == ""
    client.events.wait_type("run_end")
    (hint,) = client.events.events_of("hint_issued")
    assert hint["hint"]["hint_text"] == "Move the file to the trash instead."


def test_what_a_client_says_of_the_ends_of_calls_is_what_the_record_says(tmp_path: Path) -> None:
    with HookClient(tmp_path, policy=bundle(budget(100))) as client:
        for number in range(1, 8):
            assert client.before("Bash", {"command": f"work {number}"}, f"t{number}").reason == ""
        client.after("Bash", {"command": "work 1"}, "t1", {"stdout": "1", "backgroundTaskId": "b1"})
        client.hook("PostToolUseFailure", tool_name="Bash", tool_use_id="t2", error="Exit code 3\nno such file")
        client.hook("PostToolUseFailure", tool_name="Bash", tool_use_id="t3", error="", is_interrupt=True)
        client.after(
            "Bash", {"command": "work 4"}, "t4", {"isError": True, "content": [{"type": "text", "text": "no"}]}
        )
        batch = [{"tool_name": "Bash", "tool_use_id": name, "tool_response": "x"} for name in ("t1", "t5")]
        client.hook("PostToolBatch", tool_calls=batch)
        assert [status for _, status, _ in ends(client.events)] == ["OK", "ERROR", "CANCELLED", "ERROR", "CANCELLED"]
        client.hook("Stop", stop_hook_active=False)
        assert client.before("Bash", {"command": "work 8"}, "t8").reason == ""
        client.after("Bash", {"command": "work 6"}, "t6", "late: it was given up at the end of the turn")
    client.events.wait_type("run_end")
    assert [end[1:] for end in ends(client.events)] == [
        ("OK", None),
        ("ERROR", "upstream_error"),
        ("CANCELLED", "unknown"),
        ("ERROR", "upstream_error"),
        *[("CANCELLED", "unknown")] * 4,
    ]
    failed = client.events.events_of("tool_call_end")[1]
    assert failed["error"]["message"].startswith("Exit code 3")


def test_a_turn_that_ends_gives_up_its_own_calls_and_not_those_of_a_sub_agent(tmp_path: Path) -> None:
    with HookClient(tmp_path, policy=bundle(NO_RM)) as client:
        client.before("Read", {"file_path": "/a"}, "main")
        client.before("Read", {"file_path": "/b"}, "below", agent_id="agent-7", agent_type="Explore")
        assert client.before("Bash", {"command": "rm x"}, "r", agent_id="agent-7").reason, "denies hold for sub-agents"
        client.hook("Stop")
        assert ends(client.events)[-1][1] == "CANCELLED" and len(ends(client.events)) == 2
        client.after("Read", {"file_path": "/b"}, "below", "text", agent_id="agent-7")
    client.events.wait_type("run_end")
    assert ends(client.events)[-1] == ("Read", "OK", None)
    contexts = [start["call"]["call_context"] for start in client.events.events_of("tool_call_start")]
    assert [context.get("agent_id") for context in contexts] == [None, "agent-7", "agent-7"]


def test_relative_paths_start_where_the_call_says(tmp_path: Path) -> None:
    (tmp_path / "secrets").mkdir()
    (tmp_path / "below").mkdir()
    with HookClient(tmp_path, policy=bundle(NOT_IN_SECRETS)) as client:
        given = {"file_path": "../secrets/key"}
        assert client.before("Read", given, "a", cwd=str(tmp_path / "below")).reason
        assert client.before("Read", given, "b", cwd=str(tmp_path)).reason == ""
        assert client.before("Read", {"file_path": "key"}, "c", cwd=str(tmp_path / "secrets")).reason
        assert client.before("Read", {"file_path": "key"}, "d").reason == ""


PATCHES = [
    ("apply_patch", "*** Begin Patch\n*** Update File: src/a.py\n@@\n-x\n+y\n*** End Patch\n", False),
    ("apply_patch", "*** Begin Patch\n*** Add File: secrets/a\n+y\n*** End Patch", True),
    (
        "apply_patch",
        "*** Begin Patch\n*** Update File: a\n*** Move to: src/../secrets/b\n@@\n-x\n+y\n*** End Patch",
        True,
    ),
    ("apply_patch", "*** Begin Patch\n*** Add File: a\n+y\n", True),
    ("apply_patch", "diff --git a/x b/x", True),
    ("Bash", "apply_patch <<'EOF'\n*** Begin Patch\n*** Add File: a\n+y\n*** End Patch\nEOF", False),
    ("Bash", "cd secrets && apply_patch <<'EOF'\n*** Begin Patch\n*** Add File: a\n+y\n*** End Patch\nEOF", True),
    ("Bash", "cat p | apply_patch", True),
    ("Bash", "grep apply_patch README.md", False),
    ("Bash", "ls secrets", False),
]


def test_rules_see_the_files_of_a_patch_and_refuse_what_cannot_be_read(tmp_path: Path) -> None:
    with HookClient(tmp_path, client="codex", policy=bundle(NOT_IN_SECRETS)) as client:
        for number, (tool, text, refused) in enumerate(PATCHES):
            assert bool(client.before(tool, {"command": text}, f"call_{number}").reason) is refused, text


def test_two_hooks_that_ask_about_one_call_are_one_call(tmp_path: Path) -> None:
    with HookClient(tmp_path, policy=bundle(budget(2))) as client:
        payload = client.payload("PreToolUse", tool_name="Bash", tool_input={"command": "ls"}, tool_use_id="t1")
        assert [told.reason for told in client.at_once([payload, payload])] == ["", ""]
        assert client.before("Bash", {"command": "other"}, "t1").reason == "", "the id alone is not the call"
        refused = client.payload("PreToolUse", tool_name="Bash", tool_input={"command": "ls"}, tool_use_id="t3")
        assert len({told.reason for told in client.at_once([refused, refused])} - {""}) == 1
    client.events.wait_type("run_end")
    assert len(client.events.events_of("tool_call_start")) == 3


def test_twenty_parallel_first_hooks_start_one_judge_and_a_budget_is_exact(tmp_path: Path, compiled: bool) -> None:
    with HookClient(tmp_path, policy=bundle(budget(7)), compiled=compiled) as client:
        payloads = [
            client.payload("PreToolUse", tool_name="Bash", tool_input={"command": f"run {n}"}, tool_use_id=f"t{n}")
            for n in range(20)
        ]
        told = client.at_once(payloads)
        assert sum(each.reason == "" for each in told) == 7
        assert len(client.judges) == 1
    client.events.wait_type("run_end")
    assert len(client.events.events_of("run_start")) == 1
    assert len(client.events.events_of("tool_call_start")) == 20
    wait_for(lambda: client.judges, what="the end of the judge", enough=lambda found: not found)
    assert [name for name in os.listdir(client.home / "run") if name.endswith(".sock")] == []


def test_a_run_that_is_over_ends_the_turn_in_claude_and_refuses_every_call_in_codex(tmp_path: Path) -> None:
    for name in ("claude", "codex"):
        (place := tmp_path / name).mkdir()
        with HookClient(place, client=name, policy=bundle(budget(1, "TERMINATE_RUN"))) as client:
            assert client.before("Bash", {"command": "a"}, "t1").reason == ""
            assert client.before("Bash", {"command": "b"}, "t2").reason
            after = client.after("Bash", {"command": "a"}, "t1", "done")
            if name == "claude":
                said = json.loads(after.stdout)
                assert said["continue"] is False and "BUDGET_EXCEEDED" in said["stopReason"]
                assert set(said) == {"continue", "stopReason"}
                assert json.loads(client.hook("PostToolBatch", tool_calls=[]).stdout)["continue"] is False
            else:
                assert (after.code, after.stdout) == (0, "")
            assert client.before("Read", {"file_path": "x"}, "t3").reason
        assert client.events.wait_type("run_end")["run"]["status"] == "TERMINATED"


def test_a_kill_reaches_built_in_tools(tmp_path: Path) -> None:
    with HookClient(tmp_path, env={"SUB_RUN_ID": "run-1"}) as client:
        assert client.before("Bash", {"command": "a"}, "t1").reason == ""
        killed = run_sub(client.home, "kill", "run-1", "--reason", "enough of this")
        assert killed.returncode == 0, killed.stderr
        assert "enough of this" in client.before("Bash", {"command": "b"}, "t2").reason
        assert "enough of this" in json.loads(client.after("Bash", {"command": "a"}, "t1", "x").stdout)["stopReason"]


def test_a_budget_over_built_in_and_mcp_tools_is_exact_and_a_call_of_both_doors_is_charged_once(tmp_path: Path) -> None:
    policy = bundle(budget(4))
    env = {"SUB_RUN_ID": "run-1"}
    shim = Shim(tmp_path, "notes", fake_server(tools={"look": {}}), policy=policy, env=env)
    with HookClient(tmp_path, policy=policy, env=env) as client, shim.start() as agent:
        agent.initialize()
        agent.request("tools/list")

        def mcp(number: int) -> bool:
            """Through both doors, as the client does it."""
            given, name = {"n": number}, f"toolu_{number}"
            if client.before("mcp__notes__look", given, name).reason:
                return False
            reply = agent.call("look", given, _meta={"claudecode/toolUseId": name})
            assert "result" in reply, "what the hook let through, the shim lets through"
            client.after("mcp__notes__look", given, name, reply["result"])
            return True

        assert client.before("Bash", {"command": "ls"}, "b1").reason == ""
        assert [mcp(1), mcp(2)] == [True, True]
        assert "error" not in agent.call("look", {"n": 9}), "only the shim sees this one"
        assert client.before("Bash", {"command": "pwd"}, "b2").reason
        assert mcp(3) is False
        agent.finish()
    client.events.wait_type("run_end")
    shim.events.wait_type("run_end")
    home = tmp_path / "ledger"
    stored(home, [line.rstrip() for events in (client.events, shim.events) for line in events.lines()])
    shown = json.loads(run_sub(home, "show", "run-1", "--json", "--no-sync").stdout)
    calls = [item for item in shown["timeline"] if item["kind"] == "call"]
    told = sorted((call["tool_name"], call["decision"], len(call["doors"])) for call in calls)
    assert told == [
        ("Bash", "ALLOW", 1), ("Bash", "BLOCK", 1),
        ("look", "ALLOW", 1), ("look", "ALLOW", 2), ("look", "ALLOW", 2), ("look", "BLOCK", 1),
    ]  # fmt: skip
    rows = run_sub(home, "query", "--json", "--no-sync").stdout.splitlines()
    assert sorted((row["tool_name"], row["decision"]) for row in map(json.loads, rows)) == [each[:2] for each in told]


def test_settings_that_change_in_mid_session_are_refused_while_a_policy_is_enforced(tmp_path: Path) -> None:
    with HookClient(tmp_path, policy=bundle(NO_RM)) as client:
        said = json.loads(client.hook("ConfigChange", source="project_settings", file_path="x").stdout)
        assert said["decision"] == "block" and said["reason"]
        assert client.hook("ConfigChange", source="skills").stdout == ""
    client.events.wait_type("run_end")
    changes = [event["settings"] for event in client.events.events_of("settings_change")]
    assert changes == [{"source": "project_settings", "refused": True, "path": "x"}]
    (place := tmp_path / "observing").mkdir()
    with HookClient(place, policy=bundle(NO_RM, mode="observe")) as client:
        assert client.hook("ConfigChange", source="project_settings").stdout == ""
    client.events.wait_type("run_end")
    changes = [event["settings"] for event in client.events.events_of("settings_change")]
    assert changes == [{"source": "project_settings", "refused": False}]


def test_a_payload_that_can_be_read_in_two_ways_is_refused_in_the_words_of_hooks(tmp_path: Path) -> None:
    with HookClient(tmp_path, policy=bundle(NO_RM)) as client:
        payload = client.payload("PreToolUse", tool_name="Bash", tool_input={"command": "ls"}, tool_use_id="t1")
        twice = payload[:-1] + b',"tool_name":"Read"}'
        reason = client.raw("PreToolUse", twice).reason
    assert "can be read in more than one way" in reason and "JSON-RPC" not in reason


def test_a_policy_that_changes_is_in_force_at_the_next_call(tmp_path: Path) -> None:
    with HookClient(tmp_path, policy=bundle()) as client:
        assert client.before("Bash", {"command": "rm x"}, "t1").reason == ""
        draft = tmp_path / "draft.json"
        draft.write_text(json.dumps({**bundle(NO_RM), "version": "2"}))
        draft.replace(tmp_path / "policy.json")
        numbers = iter(range(2, 10_000))
        look = lambda: client.before("Bash", {"command": "rm x"}, f"t{next(numbers)}").reason  # noqa: E731
        assert "no-rm" in wait_for(look, what="the new policy")


def test_sub_run_ends_an_agent_whose_run_is_over_and_the_judge_ends_with_it(tmp_path: Path) -> None:
    below = (*SUB, "run", "--run-id", "run-9", "--agent-id", "tester", "--")
    with HookClient(tmp_path, client="codex", policy=bundle(budget(1, "TERMINATE_RUN")), below=below) as client:
        assert client.before("Bash", {"command": "a"}, "t1").reason == ""
        client.start("PreToolUse", client.payload("PreToolUse", tool_name="Bash", tool_input={}, tool_use_id="t2"))
        assert wait_for(client.process.poll, what="the end of the run", enough=lambda code: code is not None) == 125
        wait_for(lambda: client.judges, what="the end of the judge", enough=lambda found: not found)
    ended = {event["source"]["shim_id"]: event["run"]["status"] for event in client.events.events_of("run_end")}
    assert list(ended.values()) == ["TERMINATED", "TERMINATED"], "the judge's and the run's own"
    assert {(event["run_id"], event["agent_id"]) for event in client.events.events()} == {("run-9", "tester")}
    assert len(client.events.events_of("tool_call_end")) == 2
