"""Claude Code's stream, line by line: the mapping table and the traps."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from subluminal.agents.claude_code import Mapper
from subluminal.contracts.agent_event import AgentEvent


def events(*lines: Any) -> list[AgentEvent]:
    mapper = Mapper()
    data = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    return mapper.feed(data) + mapper.finish()


def summary(*lines: Any) -> list[tuple[str, str | None, str | None]]:
    return [(event.kind.value, event.channel, event.text or event.message) for event in events(*lines)]


def assistant(*blocks: dict[str, Any], message_id: str = "m1", **fields: Any) -> dict[str, Any]:
    return {"type": "assistant", "message": {"id": message_id, "content": list(blocks)}, **fields}


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


def stream(event_type: str, parent: str | None = None, **fields: Any) -> dict[str, Any]:
    return {"type": "stream_event", "event": {"type": event_type, **fields}, "parent_tool_use_id": parent}


def delta(value: str, index: int = 0, parent: str | None = None) -> dict[str, Any]:
    return stream("content_block_delta", parent, index=index, delta={"type": "text_delta", "text": value})


def started(message_id: str = "m1", parent: str | None = None) -> dict[str, Any]:
    return stream("message_start", parent, message={"id": message_id, "content": []})


def told(*lines: Any) -> list[str]:
    return [event.text or "" for event in events(*lines) if event.kind == "TextOutput"]


@pytest.mark.parametrize("subtype", ["init", "status", "compact_boundary", "never_heard_of"])
def test_system_lines_are_status(subtype: str) -> None:
    assert summary({"type": "system", "subtype": subtype}) == [("Status", "status", f"system {subtype}")]


def test_the_init_line_keeps_what_identifies_the_session_and_nothing_else() -> None:
    [event] = events(
        {
            "type": "system",
            "subtype": "init",
            "session_id": "s",
            "model": "m",
            "cwd": "/home/someone",
            "apiKeySource": "k",
            "tools": ["a"],
        }
    )
    assert event.data == {"session_id": "s", "model": "m"}


def test_blocks_of_an_assistant_message_become_events_in_order() -> None:
    line = assistant(
        text("hello"), {"type": "thinking", "thinking": "hm"}, {"type": "tool_use", "id": "t", "name": "Bash"}
    )
    assert summary(line) == [
        ("TextOutput", "assistant", "hello"),
        ("Unknown", "assistant", None),
        ("ToolCall", "tool", None),
    ]


def test_tool_events_carry_metadata_only() -> None:
    call, result = events(
        assistant({"type": "tool_use", "id": "t1", "name": "mcp__fs__read_file", "input": {"path": "secret-path"}}),
        {
            "type": "user",
            "message": {"content": [{"type": "tool_result", "tool_use_id": "t1", "content": "secret-content"}]},
            "tool_use_result": "secret-content",
        },
    )
    assert call.data == {
        "phase": "start",
        "id": "t1",
        "name": "mcp__fs__read_file",
        "server_name": "fs",
        "tool_name": "read_file",
        "status": "in_progress",
        "bytes_in": 23,
    }
    names = {name: call.data[name] for name in ("id", "name", "server_name", "tool_name")}
    assert result.data == {**names, "phase": "complete", "status": "completed", "bytes_out": 16}
    assert "secret" not in repr(call) + repr(result)


def test_a_failed_tool_result_says_so() -> None:
    [result] = events(
        {"type": "user", "message": {"content": [{"type": "tool_result", "tool_use_id": "t", "is_error": True}]}}
    )
    assert (result.kind, result.channel) == ("ToolResult", "tool")
    assert result.data == {"phase": "fail", "id": "t", "status": "failed"}


def test_a_result_is_judged_by_is_error_and_not_by_its_subtype() -> None:
    mapper = Mapper()
    good = {"type": "result", "subtype": "success", "is_error": False, "result": "answer", "num_turns": 2}
    [event] = mapper.feed(json.dumps(good).encode() + b"\n")
    assert (event.kind, event.message, event.data) == (
        "Status",
        "result success",
        {"subtype": "success", "num_turns": 2},
    )
    assert (mapper.final_text, mapper.failure) == ("answer", None)
    [event] = mapper.feed(json.dumps({**good, "is_error": True, "result": "API Error: 500"}).encode() + b"\n")
    assert (event.kind, event.channel, event.message) == ("Error", "error", "result failed: API Error: 500")
    assert mapper.failure == "error"
    [event] = mapper.feed(b'{"type":"result","subtype":"error_max_turns","is_error":true}\n')
    assert (event.kind, event.message, mapper.failure) == ("Error", "result error_max_turns", "error_max_turns")


@pytest.mark.parametrize(
    "line",
    [
        {"type": "rate_limit_event"},
        {"type": "tool_progress"},
        {"type": "tool_use_summary"},
        {"type": "assistant"},
        {"type": "user", "message": {"content": "the prompt"}},
        {"type": "stream_event"},
        {"type": 5},
        {},
        [],
        "text",
    ],
)
def test_anything_else_is_unknown_and_carries_no_content(line: Any) -> None:
    [event] = events(line)
    assert event.kind == "Unknown"
    assert (event.text, event.message) == (None, None)
    assert set(event.data) <= {"type", "bytes"}
    assert event.data["bytes"] == len(json.dumps(line))


def test_a_type_that_is_too_long_to_be_one_is_not_repeated() -> None:
    [event] = events({"type": "x" * 65})
    assert event.data == {"bytes": 77}


def test_a_streamed_text_is_not_told_again() -> None:
    assert told(started(), delta("Hel"), delta("lo"), assistant(text("Hello")), delta("Next", 1)) == [
        "Hel",
        "lo",
        "Next",
    ]


def test_the_end_of_a_text_that_was_streamed_in_part_is_still_told() -> None:
    assert told(started(), delta("Hel"), assistant(text("Hello"))) == ["Hel", "lo"]


def test_a_text_that_differs_from_what_was_streamed_is_told_whole() -> None:
    assert told(started(), delta("Hel"), assistant(text("Bye"))) == ["Hel", "Bye"]


def test_the_same_words_in_a_new_message_are_a_new_text() -> None:
    assert told(started(), delta("Hi"), assistant(text("Hi")), assistant(text("Hi"), message_id="m2")) == ["Hi", "Hi"]
    assert told(started(), delta("Hi"), assistant(text("Hi")), assistant(text("Hi"))) == ["Hi", "Hi"]


def test_subagents_that_stream_side_by_side_are_kept_apart() -> None:
    lines = [
        started("m1", "t1"),
        started("m2", "t2"),
        delta("one", parent="t1"),
        delta("two", parent="t2"),
        assistant(text("two"), message_id="m2", parent_tool_use_id="t2"),
        assistant(text("one"), message_id="m1", parent_tool_use_id="t1"),
    ]
    assert told(*lines) == ["one", "two"]
    assert [event.data for event in events(*lines) if event.kind == "TextOutput"] == [
        {"parent_tool_use_id": "t1", "delta": True},
        {"parent_tool_use_id": "t2", "delta": True},
    ]


def test_the_final_text_is_the_main_agents_own() -> None:
    mapper = Mapper()
    for line in (assistant(text("mine")), assistant(text("a helper's"), message_id="m2", parent_tool_use_id="t")):
        mapper.feed(json.dumps(line).encode() + b"\n")
    assert mapper.final_text == "mine"


def test_a_megabyte_text_is_split_and_joins_again() -> None:
    value = "é💖" * 200_000
    texts = told(assistant(text(value)))
    assert len(texts) > 10
    assert "".join(texts) == value


def test_garbage_between_lines_becomes_an_error_that_names_its_size() -> None:
    mapper = Mapper()
    line = json.dumps({"type": "system", "subtype": "init"}).encode()
    garbage = b"Warning: token sk-live-1234567890"
    first, error, last = mapper.feed(line + b"\n" + garbage + b"\n" + line + b"\n")
    assert first == last
    assert (error.kind, error.channel, error.message) == (
        "Error",
        "error",
        f"a line of {len(garbage)} bytes is not JSON",
    )
    assert "sk-live" not in repr(error)


def test_an_agent_that_invents_ids_without_end_cannot_fill_our_memory() -> None:
    mapper = Mapper()
    tracemalloc.start()
    try:
        for number in range(1500):
            huge = f"{number}-" + "x" * 20_000
            for line in (
                started(huge, parent=huge),
                stream("content_block_delta", huge, index=number, delta={"type": "text_delta", "text": "a"}),
                stream("content_block_delta", index=number, delta={"type": "text_delta", "text": "a"}),
                assistant({"type": "tool_use", "id": huge, "name": huge}),
                assistant({"type": "tool_use", "id": huge, "name": "n"}),
            ):
                mapper.feed(json.dumps(line).encode() + b"\n")
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 3_000_000


def test_an_id_too_long_to_keep_still_joins_a_call_to_its_result_and_deltas_to_their_text() -> None:
    huge = "x" * 5000
    lines = [
        assistant({"type": "tool_use", "id": huge, "name": "Bash"}),
        {"type": "user", "message": {"content": [{"type": "tool_result", "tool_use_id": huge}]}},
    ]
    assert events(*lines)[1].data["name"] == "Bash"
    assert told(started(huge), delta("Hi"), assistant(text("Hi"), message_id=huge)) == ["Hi"]


NAMES = st.sampled_from(
    ["type", "subtype", "message", "event", "content", "id", "index", "delta", "text", "is_error", "result", "name"]
)
WORDS = st.sampled_from(["assistant", "user", "system", "result", "stream_event", "text", "tool_use", "tool_result"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | WORDS | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=5),
    max_leaves=20,
)


@given(lines=st.lists(VALUES | st.binary(max_size=30), max_size=6))
@settings(max_examples=150, derandomize=True, deadline=None)
def test_no_line_whatever_its_shape_is_lost_or_crashes_the_mapper(lines: list[Any]) -> None:
    """What stands in no event is an empty line, or a message whose parts have been told or have no content."""
    mapper = Mapper()
    for line in lines:
        raw = line.replace(b"\n", b"") if isinstance(line, bytes) else json.dumps(line).encode()
        events = mapper.feed(raw + b"\n")
        known = isinstance(line, dict) and line.get("type") in ("assistant", "user", "stream_event")
        if raw.strip() and not known:
            assert len(events) >= 1, line
    assert mapper.finish() == []
