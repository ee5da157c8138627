"""A recorded run as a server: the same answers and decisions, and nobody is started."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.fake_server import fake_server
from harness.replaying import Recording

TOOLS: dict[str, Any] = {
    "echo": {"echo_args": True, "annotations": {"readOnlyHint": True}},
    "write": {"echo_args": True, "annotations": {"readOnlyHint": False}},
    "bad": {"is_error": "no"},
    "err": {"error": {"code": -32000, "message": "x"}},
    "count": {"sequence": [{"result": {"content": [], "n": 1}}, {"result": {"content": [], "n": 2}}]},
}
CALLS = [
    ("echo", {"a": 1, "text": "é"}),
    ("bad", {}),
    ("err", {}),
    ("count", {}),
    ("write", {"path": "x"}),
    ("count", {}),
    ("echo", {"a": 1, "text": "é"}),
]


def policy(*rules: dict[str, Any], mode: str = "guardrails") -> dict[str, Any]:
    defaults = {"decision_on_error": "BLOCK"}
    return {"policy_id": "p", "version": "1", "mode": mode, "defaults": defaults, "selectors": {}, "rules": list(rules)}


def deny(rule_id: str, **match: Any) -> dict[str, Any]:
    effect = {"action": "BLOCK", "reason_code": "NO", "message": "Refused."}
    return {"rule_id": rule_id, "kind": "deny", "match": match, "effect": effect}


NO_WRITES = deny("no-writes", risk_class=["write_like"])
TWICE = {
    "rule_id": "twice",
    "kind": "budget",
    "match": {"tool_name": {"glob": ["count"]}},
    "effect": {"budget": {"scope": "run", "limit_calls": 1, "on_exceed": "REJECT_WITH_HINT"}},
}


@pytest.fixture
def recording(tmp_path: Path) -> Recording:
    started = tmp_path / "started"
    return Recording(tmp_path, fake_server(tools=TOOLS, pid_file=str(started), executed=str(tmp_path / "executed")))


def test_the_same_calls_have_the_same_answers_and_nothing_is_started(recording: Recording, tmp_path: Path) -> None:
    live = recording.record(*CALLS)
    left = {name: (tmp_path / name).read_bytes() for name in ("started", "executed")}
    home = _content(recording.home)
    again = recording.replay(*CALLS)
    assert again.replies == live
    assert (again.report["same"], again.report["calls"]["same"]) == (True, len(CALLS))
    assert {name: (tmp_path / name).read_bytes() for name in left} == left
    assert _content(recording.home) == home
    assert "all as on record" in again.stderr
    assert not list(tmp_path.glob("sub-replay-*")), "its own directory goes with it"


def test_two_replays_give_the_same_bytes(recording: Recording, tmp_path: Path) -> None:
    recording.record(*CALLS)
    other = [*CALLS[:3], ("echo", {"a": 2}), ("nothing", {})]
    told = [recording.replay(*other).stderr for _ in range(2)]
    first, second = (path.read_bytes() for path in sorted(tmp_path.glob("report-*")))
    assert (first, told[0]) == (second, told[1])
    assert b"differs" in told[0].encode() and json.loads(first)["calls"]["other_calls"] == 2


def test_decisions_are_those_of_the_record_and_another_policy_decides_otherwise(
    recording: Recording, tmp_path: Path
) -> None:
    bundle = policy(NO_WRITES, TWICE)
    recording.record(*CALLS, policy=bundle)
    was = recording.decisions()
    assert [action for action, _, _ in was] == ["ALLOW"] * 4 + ["BLOCK", "REJECT_WITH_HINT", "ALLOW"]
    same = tmp_path / "policy.json"
    report = recording.replay(*CALLS, options=["--policy", str(same)]).report
    assert report["same"] and report["calls"]["same"] == len(CALLS)
    other = tmp_path / "other.json"
    other.write_text(json.dumps(policy(NO_WRITES)))
    report = recording.replay(*CALLS, options=["--policy", str(other)]).report
    (changed,) = report["other_decisions"]
    assert (changed["tool_name"], changed["was"]["action"], changed["now"]["action"]) == (
        "count",
        "REJECT_WITH_HINT",
        "ALLOW",
    )
    assert report["unanswered"] == [
        {**{name: changed[name] for name in ("call_id", "server_name", "tool_name")}, "state": "refused_then"}
    ]


def test_the_policies_are_those_in_force_here_and_who_acts_is_who_acted_then(
    recording: Recording, tmp_path: Path
) -> None:
    recording.record(*CALLS)
    named = tmp_path / "named.json"
    named.write_text(json.dumps({**policy(NO_WRITES), "selectors": {"agent_id": ["tester"]}}))
    recording.env |= {"SUB_POLICY": str(named), "SUB_AGENT_ID": "somebody else"}
    report = recording.replay(*CALLS).report
    assert [each["now"]["rule_id"] for each in report["other_decisions"]] == ["no-writes"]
    del recording.env["SUB_POLICY"]
    (recording.home / "policy.yaml").write_text(json.dumps(policy(TWICE)))
    report = recording.replay(*CALLS).report
    assert [each["now"]["rule_id"] for each in report["other_decisions"]] == ["twice"]


def test_a_change_found_without_an_agent_is_what_a_live_run_then_does(recording: Recording, tmp_path: Path) -> None:
    recording.record(*CALLS)
    new = tmp_path / "new.json"
    new.write_text(json.dumps(policy(NO_WRITES, TWICE)))
    found = recording.sub("replay", "last", "--policy", str(new), "--json")
    assert found.returncode == 1, found.stderr
    timeline = [call["now"] for call in json.loads(found.stdout)["timeline"]]
    assert recording.sub("replay", "last", "--policy", str(new), "--json").stdout == found.stdout
    recording.record(*CALLS, policy=json.loads(new.read_text()))
    assert [(now["action"], now["rule_id"], now["reason_code"]) for now in timeline] == recording.decisions()


def test_windows_see_the_times_of_the_record(recording: Recording, tmp_path: Path) -> None:
    """Two calls that were a second apart are so again, however fast they come."""
    dedupe = {
        "rule_id": "once",
        "kind": "dedupe",
        "match": {"tool_name": {"glob": ["echo"]}},
        "effect": {"dedupe": {"scope": "run", "window_ms": 60_000, "key": "args_hash", "on_duplicate": "BLOCK"}},
    }
    recording.record(("echo", {"a": 1}), ("echo", {"a": 1}), keep=False)
    lines = (tmp_path / "events-1.jsonl").read_bytes().splitlines()
    starts = [number for number, line in enumerate(lines) if b'"tool_call_start"' in line]
    for number, line in enumerate(lines):
        event = json.loads(line)
        if number >= starts[1]:
            event["ts"] = f"{int(event['ts'][:4]) + 1}{event['ts'][4:]}"  # a year later
        lines[number] = json.dumps(event).encode()
    from harness.command_line import stored

    stored(recording.home, lines)
    path = tmp_path / "dedupe.json"
    path.write_text(json.dumps(policy(dedupe)))
    report = recording.replay(("echo", {"a": 1}), ("echo", {"a": 1}), options=["--policy", str(path)]).report
    assert report["same"], report
    path.write_text(path.read_text().replace("60000", str(1 << 36)))
    report = recording.replay(("echo", {"a": 1}), ("echo", {"a": 1}), options=["--policy", str(path)]).report
    assert [each["now"]["rule_id"] for each in report["other_decisions"]] == ["once"]


def test_a_miss_is_refused_with_the_nearest_call_or_passed_on_by_choice(recording: Recording, tmp_path: Path) -> None:
    recording.record(("echo", {"a": 1}))
    executed = (tmp_path / "executed").read_text()
    missed = recording.replay(("echo", {"a": 2}))
    assert "it differs in a" in missed.replies[1]["error"]["message"]
    assert (tmp_path / "executed").read_text() == executed
    passed = recording.replay(
        ("echo", {"a": 1}), ("echo", {"a": 2}), options=["--on-miss", "pass"], after=recording.server
    )
    assert [reply["result"]["content"][0]["text"] for reply in passed.replies[1:]] == ['{"a": 1}', '{"a": 2}']
    assert len((tmp_path / "executed").read_text().splitlines()) == len(executed.splitlines()) + 1
    assert passed.report["calls"]["other_calls"] == 1
    gone = recording.replay(("echo", {"a": 2}), options=["--on-miss", "pass"], after=["/no/such/server"])
    assert "could not be asked" in gone.replies[1]["error"]["message"]


def test_members_that_differ_each_time_are_left_out_by_name(recording: Recording) -> None:
    recording.record(("echo", {"a": 1, "nonce": "x"}))
    report = recording.replay(("echo", {"a": 1, "nonce": "y"}), options=["--ignore", "nonce"]).report
    assert (report["same"], report["calls"]["ignoring"]) == (True, 1)
    report = recording.replay(
        ("echo", {"a": 1, "nonce": "x"}), ("echo", {"a": 1, "nonce": "x"}), options=["--repeat-last"]
    ).report
    assert (report["same"], report["calls"]["repeated"], report["calls"]["other_calls"]) == (False, 1, 0)


def test_an_agent_that_starts_its_servers_through_shims_starts_none(recording: Recording, tmp_path: Path) -> None:
    recording.record(*CALLS)
    started = (tmp_path / "started").read_text()
    agent = tmp_path / "agent.py"
    calls = json.dumps([*CALLS, ("echo", {"a": 5})])
    shim = json.dumps([sys.executable, "-m", "subluminal", "shim", "--server-name", "box", "--", *recording.server])
    agent.write_text(
        "import json, subprocess\n"
        f"process = subprocess.Popen(json.loads({shim!r}), stdin=-1, stdout=-1)\n"
        "def ask(id, method, params):\n"
        "    line = json.dumps({'jsonrpc': '2.0', 'id': id, 'method': method, 'params': params})\n"
        "    process.stdin.write(line.encode() + b'\\n'); process.stdin.flush()\n"
        "    return json.loads(process.stdout.readline())\n"
        "ask(0, 'initialize', {'protocolVersion': '2025-06-18'})\n"
        "ask('l', 'tools/list', {})\n"
        f"for number, (name, arguments) in enumerate(json.loads({calls!r}), 1):\n"
        "    ask(number, 'tools/call', {'name': name, 'arguments': arguments})\n"
        "process.stdin.close(); process.wait()\n"
    )
    done = recording.sub("replay", "last", "--json", "--", sys.executable, str(agent))
    report = json.loads(done.stdout)
    assert (done.returncode, report["agent_exit"], report["calls"]["same"]) == (1, 0, len(CALLS)), done.stderr
    assert [each["nearest"]["keys"] for each in report["other_calls"]] == [["a", "text"]]
    assert report["builtin"] == {"recorded": 0, "hooks": False, "refused": 0, "ran": 0}
    assert (tmp_path / "started").read_text() == started
    told = recording.sub("replay", "last", "--", sys.executable, str(agent))
    assert "no hooks of ours told of the agent's own tools: what it ran itself really ran" in told.stdout


def test_an_entry_of_a_client_cannot_turn_its_server_into_a_replay(recording: Recording, tmp_path: Path) -> None:
    """Else whoever wrote the entry could send calls past the policy: nothing is started at all."""
    recording.record(("echo", {"a": 1}))
    started = (tmp_path / "started").read_text()
    command = [sys.executable, "-m", "subluminal", "shim", "--server-name", "box", "--", *recording.server]
    done = subprocess.run(
        command, env={**recording.env, "SUB_REPLAY": str(tmp_path)}, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (2, "") and "is not the client's own" in done.stderr
    assert (tmp_path / "started").read_text() == started


def _content(home: Path) -> dict[Path, bytes]:
    """Every file, without those that SQLite makes to read beside a writer."""
    files = [path for path in home.rglob("*") if path.is_file() and not path.name.startswith("ledger.db-")]
    return {path: path.read_bytes() for path in files}
