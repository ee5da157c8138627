"""Transcripts that Claude Code and Codex keep: old and new formats, sub-agents, compressed ones, and what is broken."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from subluminal.agents.lines import MAX_LINE_BYTES
from subluminal.agents.transcripts.found import default_places, transcript_files
from subluminal.agents.transcripts.reading import read_transcript
from subluminal.agents.transcripts.seen import MAX_TEXT, SeenRun, Unread

AT = "2026-01-31T12:00:00.000Z"


def assistant(block: dict[str, Any], **more: Any) -> dict[str, Any]:
    message = {"id": "m1", "role": "assistant", "content": [block]}
    return {"type": "assistant", "cwd": "/w/app", "sessionId": "s1", "timestamp": AT, "message": message, **more}


def result(use_id: str, **more: Any) -> dict[str, Any]:
    block = {"type": "tool_result", "tool_use_id": use_id, "content": "x", **more}
    return {"type": "user", "cwd": "/w/app", "sessionId": "s1", "message": {"role": "user", "content": [block]}}


def use(use_id: str, name: str, **given: Any) -> dict[str, Any]:
    return assistant({"type": "tool_use", "id": use_id, "name": name, "input": given})


def item(**payload: Any) -> dict[str, Any]:
    return {"timestamp": AT, "type": "response_item", "payload": payload}


def function(call_id: str, name: str, arguments: dict[str, Any], **more: Any) -> dict[str, Any]:
    return item(type="function_call", name=name, arguments=json.dumps(arguments), call_id=call_id, **more)


META = {"type": "session_meta", "payload": {"id": "h1", "cwd": "/w/app", "cli_version": "0.166.0"}}


def written(path: Path, lines: list[Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n" for line in lines))
    return path


def read(path: Path) -> tuple[SeenRun, Unread]:
    unread = Unread()
    (file,) = transcript_files(str(path))
    run = read_transcript(file, unread)
    assert run is not None, unread.files
    return run, unread


def told(run: SeenRun) -> list[tuple[str, str, bool | None]]:
    return [(call.server_name, call.tool_name, call.ok) for call in run.calls]


def test_parallel_calls_of_claude_are_paired_with_results_in_any_order(tmp_path: Path) -> None:
    lines = [
        {"type": "queue-operation", "operation": "enqueue", "sessionId": "s1"},
        {"type": "user", "cwd": "/w/app", "message": {"role": "user", "content": "go"}},
        use("t1", "mcp__fs__read_file", path="/w/app/a"),
        use("t2", "mcp__fs__read_file", path="/etc/x"),
        result("t2", is_error=True),
        result("t1"),
        use("t3", "Bash", command="ls"),
        {**result("t3", is_error=False), "toolUseResult": {"stdout": "a"}},
        {"type": "last-prompt", "sessionId": "s1"},
    ]
    run, unread = read(written(tmp_path / "projects" / "-w-app" / "s1.jsonl", lines))
    assert told(run) == [("fs", "read_file", True), ("fs", "read_file", False), ("builtin", "Bash", True)]
    assert (run.run_id, run.origin) == ("s1", "claude")
    assert [call.args for call in run.calls] == [{"path": "/w/app/a"}, {"path": "/etc/x"}, {"command": "ls"}]
    assert {call.cwd for call in run.calls} == {"/w/app"} and run.calls[0].at_ms == 1_769_860_800_000
    assert (unread.lines, unread.calls, unread.files) == (0, 0, {})


def test_lines_that_repeat_whole_messages_are_no_calls(tmp_path: Path) -> None:
    blob = {"type": "api-request-blob", "message": {"content": [{"type": "tool_use", "id": "t9", "name": "Bash"}]}}
    attributed = {**use("t1", "Bash", command="ls"), "attributionMcpServer": "fs"}
    run, _ = read(written(tmp_path / "projects" / "p" / "s1.jsonl", [blob, attributed]))
    assert told(run) == [("builtin", "Bash", None)]


def test_what_we_refused_before_the_client_saw_it_is_no_call(tmp_path: Path) -> None:
    refused = use("t1", "subluminal_refused__Bash", refused="no", call={})
    of_server = use("t2", "mcp__box__subluminal_refused__echo", refused="no")
    run, _ = read(written(tmp_path / "projects" / "p" / "s1.jsonl", [refused, of_server, use("t3", "Read")]))
    assert told(run) == [("builtin", "Read", None)]


def test_calls_of_a_sub_agent_belong_to_the_session(tmp_path: Path) -> None:
    below = tmp_path / "projects" / "p" / "s1" / "subagents" / "agent-1.jsonl"
    run, _ = read(written(below, [{**use("t1", "Read", file_path="/w/app/a"), "isSidechain": True}]))
    assert run.run_id == "s1" and run.origin == "claude"


def test_codex_of_today_has_namespaces_and_says_how_calls_ended(tmp_path: Path) -> None:
    ended = {"type": "CommandExecution", "id": "c3", "exit_code": 1, "status": "completed"}
    failed = {"type": "McpToolCall", "id": "c2", "server": "fs", "tool": "read_file", "status": "failed"}
    lines = [
        META,
        {"type": "turn_context", "payload": {"model": "m", "cwd": "/w/app"}},
        function("c1", "read_file", {"path": "/w/app/a"}, namespace="mcp__fs"),
        function("c2", "read_file", {"path": "/x"}, namespace="mcp__fs"),
        {"type": "event_msg", "payload": {"type": "item_completed", "item": failed}},
        item(type="function_call_output", call_id="c1", output="Wall time: 0.01 seconds\nOutput:\nalpha"),
        item(type="function_call_output", call_id="c2", output=[{"type": "input_text", "text": "tool call error"}]),
        function("c3", "exec_command", {"cmd": "ls", "workdir": "src"}),
        {"type": "event_msg", "payload": {"type": "item_completed", "item": ended}},
        {"type": "event_msg", "payload": {"type": "task_complete"}},
    ]
    run, unread = read(written(tmp_path / "rollout-1.jsonl", lines))
    assert told(run) == [("fs", "read_file", True), ("fs", "read_file", False), ("builtin", "Bash", False)]
    assert run.calls[2].args == {"command": "ls"} and run.calls[2].cwd == "/w/app/src"
    assert unread.lines == 0 and run.run_id == "h1"


def test_codex_of_old_names_servers_in_the_tool_and_tells_failures_in_text(tmp_path: Path) -> None:
    shell = json.dumps({"output": "x", "metadata": {"exit_code": 2, "duration_seconds": 0.1}})
    lines = [
        META,
        function("c1", "mcp__fs__read_file", {"path": "a"}),
        item(type="function_call_output", call_id="c1", output="tool call error: no"),
        function("c2", "shell", {"command": ["bash", "-lc", "make test"]}),
        item(type="function_call_output", call_id="c2", output=shell),
        item(type="custom_tool_call", name="apply_patch", call_id="c3",
             input="*** Begin Patch\n*** Add File: a.txt\n+x\n*** End Patch"),
        item(type="custom_tool_call_output", call_id="c3", output=json.dumps({"metadata": {"exit_code": 0}})),
        item(type="local_shell_call", call_id="c4", action={"type": "exec", "command": ["ls", "-l"]}),
    ]  # fmt: skip
    run, _ = read(written(tmp_path / "rollout-1.jsonl", lines))
    assert told(run) == [
        ("fs", "read_file", False),
        ("builtin", "Bash", False),
        ("builtin", "apply_patch", True),
        ("builtin", "Bash", None),
    ]
    assert run.calls[1].args["command"] == "bash -lc 'make test'"
    assert run.calls[2].args["paths"] == ["/w/app/a.txt"]


def test_a_sub_agent_of_codex_belongs_to_the_thread_that_started_it(tmp_path: Path) -> None:
    source = {"subagent": {"thread_spawn": {"parent_thread_id": "h0"}}}
    meta = {"type": "session_meta", "payload": {"id": "h1", "cwd": "/w", "source": source}}
    run, _ = read(written(tmp_path / "rollout-1.jsonl", [meta, function("c1", "exec_command", {"cmd": "ls"})]))
    assert run.run_id == "h0"


def test_a_compressed_transcript_is_read_as_the_plain_one(tmp_path: Path) -> None:
    zstandard = pytest.importorskip("zstandard")
    plain = written(tmp_path / "rollout-1.jsonl", [META, function("c1", "exec_command", {"cmd": "ls"})])
    packed = tmp_path / "rollout-2.jsonl.zst"
    packed.write_bytes(zstandard.ZstdCompressor().compress(plain.read_bytes()))
    assert told(read(packed)[0]) == told(read(plain)[0])
    packed.write_bytes(packed.read_bytes()[:-4] + b"oops")
    unread = Unread()
    (file,) = transcript_files(str(packed))
    assert read_transcript(file, unread) is None and "damaged" in unread.files[str(packed)]


def test_without_the_library_a_compressed_transcript_is_a_sentence(tmp_path: Path) -> None:
    packed = written(tmp_path / "rollout-2.jsonl.zst", [b"\x28\xb5\x2f\xfd"])
    code = (
        "import sys; sys.modules['zstandard'] = None\n"
        "from subluminal.agents.transcripts.found import transcript_files\n"
        "from subluminal.agents.transcripts.reading import read_transcript\n"
        "from subluminal.agents.transcripts.seen import Unread\n"
        "unread = Unread(); read_transcript(transcript_files(sys.argv[1])[0], unread); print(unread.files)"
    )
    found = subprocess.run([sys.executable, "-c", code, str(packed)], capture_output=True, text=True, check=True)
    assert "the extra `transcripts`" in found.stdout


def test_torn_hostile_and_unknown_lines_are_counted_and_the_rest_is_read(tmp_path: Path) -> None:
    good = use("t1", "Read", file_path="a")
    deep = b'{"type":"assistant","message":{"content":[{"type":"tool_use","input":' + b"[" * 200_000 + b"\n"
    half = json.dumps(use("t3", "Bash", command="ls")).encode()[:-20]
    odd = b'{"type":"assistant","message":{"content":[{"type":"tool_use","id":7}]}}\n'
    lines = [b'\xff\xfe not json "tool_use"\n', deep, odd, good, {"type": "tool_use-of-tomorrow"}, half]
    run, unread = read(written(tmp_path / "projects" / "p" / "s.jsonl", lines))
    assert told(run) == [("builtin", "Read", None)]
    assert unread.lines == 4


def test_a_line_beyond_the_bound_is_passed_over_in_bounded_memory(tmp_path: Path) -> None:
    long = b'{"type":"assistant","tool_use":"' + b"x" * (MAX_LINE_BYTES + 10) + b'"}\n'
    run, unread = read(written(tmp_path / "projects" / "p" / "s.jsonl", [long, use("t1", "Read")]))
    assert len(run.calls) == 1 and unread.lines == 1


def test_long_texts_are_cut_and_their_size_is_kept(tmp_path: Path) -> None:
    call = use("t1", "Write", file_path="a", content="x" * 100_000)
    run, _ = read(written(tmp_path / "projects" / "p" / "s.jsonl", [call]))
    assert run.calls[0].cut and len(run.calls[0].args["content"]) == MAX_TEXT and run.calls[0].size > 100_000


def test_foreign_files_are_named_with_the_reason(tmp_path: Path) -> None:
    foreign = written(tmp_path / "notes.jsonl", [{"hello": "world"}])
    binary = written(tmp_path / "rollout-x.jsonl", [b"\x00\x01\x02" * 100])
    empty = written(tmp_path / "empty.jsonl", [])
    unread = Unread()
    assert [read_transcript(file, unread) for file in transcript_files(str(tmp_path))] == [None, None, None]
    assert set(unread.files) == {str(foreign), str(binary), str(empty)}


def test_the_clients_own_places_are_found_by_their_variables(tmp_path: Path) -> None:
    for place in ("c/projects", "x/sessions", "h/.claude/projects", "h/.codex/archived_sessions"):
        (tmp_path / place).mkdir(parents=True)
    home = {"HOME": str(tmp_path / "h")}
    assert list(default_places(home).values()) == ["claude", "codex"]
    moved = {**home, "CLAUDE_CONFIG_DIR": str(tmp_path / "c"), "CODEX_HOME": str(tmp_path / "x")}
    assert list(default_places(moved)) == [str(tmp_path / "c" / "projects"), str(tmp_path / "x" / "sessions")]
    assert list(default_places(moved, "codex")) == [str(tmp_path / "x" / "sessions")]
