"""Recorded runs of real servers, replayed: the same answers and decisions, nobody started, no file touched; and a
change of policy that a replay finds is what a live run then does.

Two runs by default; REPLAY_RUNS=20 for all, as `make test-servers` has it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.command_line import SUB
from harness.driver import Agent
from harness.processes import descendants
from harness.real_servers import DATABASE, FILESYSTEM, GIT
from harness.replaying import Call, Recording

RUNS = int(os.environ.get("REPLAY_RUNS", "2"))
KINDS = ("filesystem", "git", "database", "time")
POLICY: dict[str, Any] = {
    "policy_id": "stricter",
    "version": "1",
    "mode": "guardrails",
    "defaults": {"decision_on_error": "BLOCK"},
    "selectors": {},
    "rules": [
        {
            "rule_id": "no-writing",
            "kind": "deny",
            "match": {"tool_name": {"glob": ["write_file", "git_commit", "write_query", "create_table"]}},
            "effect": {"action": "BLOCK", "reason_code": "READ_ONLY", "message": "Only look."},
        },
        {
            "rule_id": "few",
            "kind": "budget",
            "match": {},
            "effect": {"budget": {"scope": "run", "limit_calls": 4, "on_exceed": "REJECT_WITH_HINT"}},
        },
    ],
}


def scene(kind: str, number: int, work: Path) -> tuple[list[str], list[Call]]:
    """A server at work in a directory, and what an agent asks of it; every run asks something else."""
    if kind == "filesystem":
        (work / "a.txt").write_text(f"one {number}\n")
        path = str(work / f"made-{number}.txt")
        return FILESYSTEM.command(work), [
            ("list_directory", {"path": str(work)}),
            ("read_text_file", {"path": str(work / "a.txt")}),
            ("write_file", {"path": path, "content": f"text {number}\n"}),
            ("read_text_file", {"path": path}),
            ("read_text_file", {"path": "/etc/no-such-file"}),
        ]
    if kind == "git":
        git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main"]
        (work / "file.txt").write_text(f"one {number}\n")
        for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "first"]):
            subprocess.run([*git, *words], cwd=work, check=True)
        (work / "file.txt").write_text("other\n")
        place = {"repo_path": str(work)}
        return GIT.command(), [
            ("git_status", place),
            ("git_diff_unstaged", place),
            ("git_log", {**place, "max_count": 1 + number % 3}),
            ("git_commit", {**place, "message": f"run {number}"}),
            ("git_show", {**place, "revision": "no-such-revision"}),
        ]
    if kind == "database":
        return DATABASE.command("--db-path", work / "test.db"), [
            ("create_table", {"query": f"CREATE TABLE t{number} (n INTEGER)"}),
            ("write_query", {"query": f"INSERT INTO t{number} VALUES ({number})"}),
            ("read_query", {"query": f"SELECT n FROM t{number}"}),
            ("list_tables", {}),
            ("read_query", {"query": "SELECT broken FROM nothing"}),
        ]
    zone = {"source_timezone": "Europe/Berlin", "target_timezone": "Asia/Tokyo"}
    return [sys.executable, "-m", "mcp_server_time", "--local-timezone", "UTC"], [
        ("convert_time", {**zone, "time": f"{number % 24:02}:30"}),
        ("get_current_time", {"timezone": "UTC"}),
        ("get_current_time", {"timezone": "UTC"}),
        ("convert_time", {**zone, "time": "never"}),
        ("no_such_tool", {}),
    ]


def missing(kind: str) -> str:
    return {"filesystem": FILESYSTEM.missing, "database": DATABASE.missing, "git": GIT.missing}.get(kind, "")


def touched(work: Path) -> dict[str, tuple[int, int, bytes]]:
    """Every file with its inode, its time and its bytes."""
    files = [path for path in sorted(work.rglob("*")) if path.is_file()]
    return {str(path): (path.stat().st_ino, path.stat().st_mtime_ns, path.read_bytes()) for path in files}


@pytest.fixture(params=range(RUNS))
def recorded(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Recording, list[Call], Path, Path]]:
    number: int = request.param
    kind = KINDS[number % len(KINDS)]
    if why := missing(kind):
        pytest.skip(why)
    work = tmp_path / "work"
    work.mkdir()
    server, calls = scene(kind, number, work)
    before = tmp_path / "before"
    shutil.copytree(work, before)
    yield Recording(tmp_path, server, name=kind), calls, work, before


def test_a_run_of_a_real_server_is_replayed_and_a_change_found_is_what_happens_then(
    recorded: tuple[Recording, list[Call], Path, Path], tmp_path: Path
) -> None:
    recording, calls, work, before = recorded
    live = recording.record(*calls)
    shutil.rmtree(work)
    shutil.copytree(before, work)  # what the calls made is gone: who carried them out would make it again
    left = touched(work)

    report = tmp_path / "first.json"
    command = [*SUB, "replay", "last", "--serve", recording.name, "--report", str(report)]
    with Agent(command, env=recording.env, cwd=tmp_path) as agent:
        agent.initialize()
        replies = [agent.request("tools/list")]
        for tool, arguments in calls:
            replies.append(agent.call(tool, arguments))
            assert descendants(agent.process.pid) == [], "nobody is started"
        agent.finish()
    assert replies == live
    assert json.loads(report.read_text())["same"]
    assert touched(work) == left, "no file is touched"

    new = tmp_path / "new.json"
    new.write_text(json.dumps(POLICY))
    found = json.loads(recording.sub("replay", "last", "--policy", str(new), "--json").stdout)
    as_if = [call["now"] for call in found["timeline"]]
    served = recording.replay(*calls, options=["--policy", str(new)]).report
    assert touched(work) == left
    changed = {each["call_id"]: each["now"] for each in served["other_decisions"]}
    assert changed == {each["call_id"]: each["now"] for each in found["timeline"] if each["now"] != each["was"]}
    recording.record(*calls, policy=POLICY)
    assert [(now["action"], now["rule_id"], now["reason_code"]) for now in as_if] == recording.decisions()
