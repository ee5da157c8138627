"""Doors that are not MCP: what was decided is with the sink before anybody hears of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.in_process import POLICY, isolate
from subluminal.contracts.digest import sha256_hex
from subluminal.contracts.toolcall import ToolCall
from subluminal.producer.asking import ask, settle
from subluminal.producer.runtime import Runtime


def words(code: int, message: str, data: dict[str, Any]) -> tuple[str, int]:
    return message, len(message)


def call(tool: str) -> ToolCall:
    return ToolCall("notes", tool, b"{}", 2, "http")


@pytest.fixture
def opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    events = isolate(tmp_path, monkeypatch)
    runtime = Runtime(POLICY)
    with runtime as producer:
        yield events, producer
    runtime.close()


def test_an_allowed_call_is_on_record_when_its_caller_hears_of_it(opened: Any) -> None:
    events, producer = opened
    record, refused = ask(producer, call("look"), 1, 1, words)
    assert refused is None
    assert events.types()[-2:] == ["tool_call_start", "tool_call_decision"]
    settle(producer, record, "OK", 2, 2, b'{"seen":1}', latency_ms=1)
    producer.hand_over()
    (end,) = events.events_of("tool_call_end")
    assert (end["status"], end["bytes_out"], end["preview"]["result_preview"]) == ("OK", 10, '{"seen":1}')


def test_a_refused_call_has_ended_and_its_words_are_made_before_the_record_is_handed_over(opened: Any) -> None:
    events, producer = opened
    producer.state.terminate("STOP", "stopped by the operator")
    seen: list[list[str]] = []

    def told(code: int, message: str, data: dict[str, Any]) -> tuple[str, int]:
        seen.append(events.types())
        assert data["subluminal"]["action"] == "TERMINATE_RUN"
        return words(code, message, data)

    record, refused = ask(producer, call("look"), 1, 1, told)
    assert refused is not None and "stopped by the operator" in refused
    assert "tool_call_start" not in seen[0]
    (end,) = events.events_of("tool_call_end")
    assert (end["error"]["class"], end["bytes_out"]) == ("policy_block", len(refused))
    assert record.settled


def test_a_result_that_is_larger_than_what_is_inspected_is_told_by_its_hash(opened: Any) -> None:
    events, producer = opened
    record, _ = ask(producer, call("look"), 1, 1, words)
    result = b'"' + b"x" * 100 + b'"'
    settle(producer, record, "OK", 2, 2, result, latency_ms=1, max_inspect_bytes=50)
    producer.hand_over()
    (end,) = events.events_of("tool_call_end")
    assert end["result_stream_hash"] == sha256_hex(result)
    assert (end["bytes_out"], end["preview"]) == (102, {"truncated": True, "result_preview": "[TRUNCATED]"})
