"""Real MCP servers, driven by the official client through the shim and without it: the same answers."""

from __future__ import annotations

import asyncio
import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.shim import isolated_env, shim_command
from harness.sink import EventFile

NEEDED = ("mcp", "mcp_server_time", "mcp_server_git")
MISSING = [name for name in NEEDED if importlib.util.find_spec(name) is None]
pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)} (make setup installs them)")

Calls = list[tuple[str, dict[str, Any]]]


async def _session(command: list[str], env: dict[str, str], cwd: Path, calls: Calls) -> list[Any]:
    from mcp import ClientSession, StdioServerParameters
    from mcp.client.stdio import stdio_client
    from mcp.shared.exceptions import MCPError

    parameters = StdioServerParameters(command=command[0], args=command[1:], env=env, cwd=cwd)
    async with stdio_client(parameters) as (read, write), ClientSession(read, write) as session:
        opened = await session.initialize()
        seen: list[Any] = [opened.model_dump(mode="json"), (await session.list_tools()).model_dump(mode="json")]
        for name, arguments in calls:
            try:
                seen.append((await session.call_tool(name, arguments)).model_dump(mode="json"))
            except MCPError as error:
                seen.append(str(error))
        return seen


def drive(command: list[str], env: dict[str, str], cwd: Path, calls: Calls) -> list[Any]:
    return asyncio.run(asyncio.wait_for(_session(command, env, cwd, calls), 60))


def compare(tmp_path: Path, server: list[str], calls: Calls) -> EventFile:
    env = isolated_env(tmp_path)
    events = EventFile(tmp_path / "events.jsonl")
    direct = drive(server, env, tmp_path, calls)
    through = drive(shim_command("real", server, events=events.argument), env, tmp_path, calls)
    assert through == direct
    events.wait_type("run_end")
    assert len(events.events_of("tool_call_end")) == len(calls)
    return events


def test_mcp_server_time_answers_the_same(tmp_path: Path) -> None:
    calls: Calls = [
        ("convert_time", {"source_timezone": "Europe/Berlin", "time": "12:30", "target_timezone": "Asia/Tokyo"}),
        ("convert_time", {"source_timezone": "Nowhere/None", "time": "12:30", "target_timezone": "Asia/Tokyo"}),
        ("no_such_tool", {}),
    ]
    server = [sys.executable, "-m", "mcp_server_time", "--local-timezone", "UTC"]
    events = compare(tmp_path, server, calls)
    assert [event["status"] for event in events.events_of("tool_call_end")] == ["OK", "ERROR", "ERROR"]


def test_mcp_server_git_answers_the_same(tmp_path: Path) -> None:
    repository = tmp_path / "repository"
    repository.mkdir()
    (repository / "file.txt").write_text("one\ntwo é\n")
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main"]
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "first"]):
        subprocess.run([*git, *command], cwd=repository, check=True)
    (repository / "file.txt").write_text("one\nthree\n")
    place = {"repo_path": str(repository)}
    calls: Calls = [
        ("git_status", place),
        ("git_diff_unstaged", place),
        ("git_log", {**place, "max_count": 5}),
        ("git_show", {**place, "revision": "no-such-revision"}),
    ]
    compare(tmp_path, [sys.executable, "-m", "mcp_server_git", "--repository", str(repository)], calls)
