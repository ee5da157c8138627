"""Streams recorded from the real CLIs map to the events stored beside them, however the bytes are cut.

`tests/clients/record_streams.py` records them anew.
"""

from __future__ import annotations

import random

import msgspec
import pytest

from harness import places
from subluminal.agents import claude_code, codex
from subluminal.agents.base import Mapper
from subluminal.contracts.agent_event import AgentEvent

FIXTURES = places.FIXTURES / "agent_streams"
NAMES = sorted(path.name.removesuffix(".events.jsonl") for path in FIXTURES.glob("*.events.jsonl"))
SITUATIONS = {
    "normal",
    "tool_call",
    "denied_tool",
    "tool_error",
    "api_error",
    "interrupted",
    "server_died",
    "model_died",
}


def mapper_of(name: str) -> Mapper:
    return claude_code.Mapper() if name.startswith("claude_code.") else codex.Mapper()


def stream_of(name: str) -> bytes:
    return (FIXTURES / f"{name}.jsonl").read_bytes()


def golden_of(name: str) -> list[AgentEvent]:
    lines = (FIXTURES / f"{name}.events.jsonl").read_bytes().splitlines()
    return [msgspec.json.decode(line, type=AgentEvent) for line in lines]


def test_every_situation_was_recorded_with_both_clients() -> None:
    for client in ("claude_code", "codex"):
        assert {f"{client}.{situation}" for situation in SITUATIONS} <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_recorded_stream_maps_to_its_golden_events(name: str) -> None:
    mapper = mapper_of(name)
    assert mapper.feed(stream_of(name)) + mapper.finish() == golden_of(name)


@pytest.mark.parametrize("name", NAMES)
def test_partial_lines_make_no_difference(name: str) -> None:
    chance = random.Random(7)
    stream, mapper = stream_of(name), mapper_of(name)
    events: list[AgentEvent] = []
    while stream:
        cut = chance.randint(1, 400)
        events += mapper.feed(stream[:cut])
        stream = stream[cut:]
    assert events + mapper.finish() == golden_of(name)


@pytest.mark.parametrize("name", NAMES)
def test_garbage_between_the_lines_adds_errors_and_changes_nothing_else(name: str) -> None:
    garbage = b"\xff\x00 (node:12) Warning: key=sk-garbage\n"
    mapper = mapper_of(name)
    events = mapper.feed(b"".join(garbage + line for line in stream_of(name).splitlines(keepends=True)))
    errors = [event for event in events if event.message == f"a line of {len(garbage) - 1} bytes is not JSON"]
    assert [event for event in events if event not in errors] == golden_of(name)
    assert len(errors) == len(stream_of(name).splitlines())
    assert "sk-garbage" not in repr(events)


def test_no_tool_input_or_output_is_in_any_event() -> None:
    events = [event for name in NAMES for event in mapper_of(name).feed(stream_of(name))]
    told = [event for event in events if event.kind in ("ToolCall", "ToolResult")]
    assert len(told) > len(NAMES) / 2, "the recordings have tools in them"
    for event in told:
        assert set(event.data) <= {
            *("phase", "id", "name", "item_type", "server_name", "tool_name", "status"),
            *("bytes_in", "bytes_out", "exit_code", "parent_tool_use_id"),
        }
        assert (event.text, event.message) == (None, None)


@pytest.mark.parametrize("name", [name for name in NAMES if name.split(".")[1] in ("tool_error", "denied_tool")])
def test_a_tool_that_failed_or_was_denied_is_a_failed_result_of_a_run_that_went_on(name: str) -> None:
    mapper = mapper_of(name)
    events = mapper.feed(stream_of(name))
    [result] = [event for event in events if event.kind == "ToolResult"]
    assert (result.data["phase"], result.data["status"]) == ("fail", "failed")
    assert (mapper.failure, mapper.final_text) == (None, "The box has answered. Goodbye.")


@pytest.mark.parametrize("name", [name for name in NAMES if name.split(".")[1] in ("api_error", "model_died")])
def test_a_model_that_cannot_be_reached_is_an_error_and_a_failure(name: str) -> None:
    mapper = mapper_of(name)
    events = mapper.feed(stream_of(name))
    assert events[-1].kind == "Error"
    assert mapper.failure is not None


def test_partial_messages_tell_each_text_once() -> None:
    golden = golden_of("claude_code.partial_messages")
    texts = [event.text or "" for event in golden if event.kind == "TextOutput"]
    assert len(texts) > 2
    assert "".join(texts) == "I will ask the box.The box has answered. Goodbye."
