"""Codex's stream, line by line: the mapping table and the traps."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from subluminal.agents.codex import Mapper
from subluminal.contracts.agent_event import AgentEvent

TOOLS = ["command_execution", "file_change", "mcp_tool_call", "web_search", "collab_tool_call"]


def events(*lines: Any) -> list[AgentEvent]:
    mapper = Mapper()
    data = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    return mapper.feed(data) + mapper.finish()


def item(phase: str, kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": f"item.{phase}", "item": {"id": "i1", "type": kind, **fields}}


@pytest.mark.parametrize("native", ["thread.started", "turn.started", "turn.completed"])
def test_the_frame_of_a_turn_is_status(native: str) -> None:
    [event] = events({"type": native, "thread_id": "t"})
    assert (event.kind, event.channel, event.message) == ("Status", "status", native)


def test_a_completed_turn_tells_its_usage() -> None:
    [event] = events({"type": "turn.completed", "usage": {"input_tokens": 3, "details": {"x": 1}}})
    assert event.data == {"usage": {"input_tokens": 3}}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ({"type": "turn.failed", "error": {"message": "no credit"}}, "turn.failed: no credit"),
        ({"type": "turn.failed"}, "turn.failed"),
        ({"type": "error", "message": "retrying"}, "error: retrying"),
        (item("completed", "error", message="a warning"), "a warning"),
        (item("completed", "error"), "item error"),
    ],
)
def test_failures_are_errors_with_a_message(line: Any, message: str) -> None:
    [event] = events(line)
    assert (event.kind, event.channel, event.message) == ("Error", "error", message)


def test_only_the_end_of_the_turn_decides_whether_the_run_failed() -> None:
    mapper = Mapper()
    mapper.feed(json.dumps({"type": "error", "message": "retrying"}).encode() + b"\n")
    mapper.feed(json.dumps(item("completed", "error", message="warning")).encode() + b"\n")
    assert mapper.failure is None
    mapper.feed(json.dumps({"type": "turn.failed"}).encode() + b"\n")
    assert mapper.failure == "turn.failed"
    mapper.feed(json.dumps({"type": "turn.completed"}).encode() + b"\n")
    assert mapper.failure is None


@pytest.mark.parametrize("kind", ["agent_message", "reasoning"])
def test_messages_and_reasoning_are_text(kind: str) -> None:
    [event] = events(item("completed", kind, text="words"))
    assert (event.kind, event.channel, event.text, event.message) == ("TextOutput", "assistant", "words", None)


def test_reasoning_is_marked_and_is_not_the_final_text() -> None:
    mapper = Mapper()
    mapper.feed(json.dumps(item("completed", "agent_message", text="answer")).encode() + b"\n")
    [event] = mapper.feed(json.dumps(item("completed", "reasoning", text="thoughts")).encode() + b"\n")
    assert event.data == {"item_type": "reasoning"}
    assert mapper.final_text == "answer"


def test_a_text_that_grows_by_updates_is_told_once() -> None:
    lines = [
        item("started", "agent_message", text=""),
        item("updated", "agent_message", text="Hel"),
        item("updated", "agent_message", text="Hello"),
        item("completed", "agent_message", text="Hello!"),
    ]
    assert [event.text for event in events(*lines)] == ["Hel", "lo", "!"]


def test_a_text_that_was_rewritten_by_an_update_is_told_anew_but_not_twice() -> None:
    lines = [
        item("updated", "agent_message", text="Hello"),
        item("updated", "agent_message", text="Bye"),
        item("completed", "agent_message", text="Bye."),
    ]
    assert [event.text for event in events(*lines)] == ["Hello", "Bye", "."]


@pytest.mark.parametrize("kind", TOOLS)
@pytest.mark.parametrize(
    ("phase", "status", "event_kind", "told_phase"),
    [
        ("started", "in_progress", "ToolCall", "start"),
        ("updated", "in_progress", "ToolCall", "delta"),
        ("completed", "completed", "ToolResult", "complete"),
        ("completed", "failed", "ToolResult", "fail"),
        ("completed", "declined", "ToolResult", "fail"),
    ],
)
def test_tool_items_are_calls_and_then_results(
    kind: str, phase: str, status: str, event_kind: str, told_phase: str
) -> None:
    [event] = events(item(phase, kind, status=status))
    assert (event.kind, event.channel) == (event_kind, "tool")
    assert event.data == {"phase": told_phase, "id": "i1", "name": kind, "item_type": kind, "status": status}


def test_tool_events_carry_metadata_only() -> None:
    mcp = {"server": "fs", "tool": "read", "arguments": {"path": "secret"}, "result": None, "error": None}
    shell = {"command": "cat secret", "aggregated_output": "secret", "exit_code": 3}
    call, result, shell_result = events(
        item("started", "mcp_tool_call", **mcp, status="in_progress"),
        item("completed", "mcp_tool_call", **{**mcp, "error": {"message": "secret"}}, status="failed"),
        item("completed", "command_execution", **shell, status="failed"),
    )
    assert call.data == {
        "phase": "start",
        "id": "i1",
        "name": "read",
        "item_type": "mcp_tool_call",
        "server_name": "fs",
        "tool_name": "read",
        "status": "in_progress",
        "bytes_in": 18,
    }
    assert result.data == {**call.data, "phase": "fail", "status": "failed", "bytes_out": 21}
    assert (shell_result.data["exit_code"], shell_result.data["bytes_in"], shell_result.data["bytes_out"]) == (3, 12, 8)
    assert "secret" not in repr((call, result, shell_result))


def test_a_todo_list_is_status() -> None:
    [event] = events(item("updated", "todo_list", items=[{"text": "secret", "completed": True}, {"text": "b"}]))
    assert (event.kind, event.channel, event.message) == ("Status", "status", "todo_list 1/2")
    assert event.data == {"completed": 1, "total": 2}


@pytest.mark.parametrize(
    "line",
    [{"type": "turn.paused"}, item("completed", "hologram"), {"type": "item.completed"}, {}, [], 5, {"type": []}],
)
def test_anything_else_is_unknown(line: Any) -> None:
    [event] = events(line)
    assert event.kind == "Unknown"
    assert set(event.data) <= {"type", "bytes"}


NAMES = st.sampled_from(
    ["type", "item", "error", "message", "id", "text", "status", "items", "result", "usage", "tool"]
)
WORDS = st.sampled_from(
    ["item.completed", "item.updated", "turn.failed", "agent_message", "error", "todo_list", *TOOLS]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | WORDS | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=5),
    max_leaves=20,
)


@given(lines=st.lists(VALUES | st.binary(max_size=30), max_size=6))
@settings(max_examples=150, derandomize=True, deadline=None)
def test_no_line_whatever_its_shape_crashes_the_mapper(lines: list[Any]) -> None:
    mapper = Mapper()
    for line in lines:
        raw = line.replace(b"\n", b"") if isinstance(line, bytes) else json.dumps(line).encode()
        mapper.feed(raw + b"\n")
    mapper.finish()
