"""fastmcp's middleware, driven with the contexts fastmcp gives it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.in_process import POLICY, isolate
from harness.sink import EventFile

pytest.importorskip("fastmcp", reason="fastmcp is not installed")

from mcp.types import ToolAnnotations

from subluminal.adapters.in_process.fast_mcp import SubluminalMiddleware


@pytest.fixture
def events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> EventFile:
    return isolate(tmp_path, monkeypatch)


def call(middleware: SubluminalMiddleware, outcome: Any, host: Any = None, **message: Any) -> Any:
    async def rest(context: Any) -> Any:
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    given = SimpleNamespace(**{"name": "look", "arguments": {}, **message})
    context: Any = SimpleNamespace(message=given, fastmcp_context=host)
    return asyncio.run(middleware.on_call_tool(context, rest))


def test_a_call_of_the_servers_own_code_is_judged_as_well(events: EventFile) -> None:
    middleware = SubluminalMiddleware(POLICY)
    assert call(middleware, {"content": []}) == {"content": []}
    with pytest.raises(Exception, match="no-deletes"):
        call(middleware, {}, name="delete_it")
    assert {start["call"]["server_name"] for start in events.events_of("tool_call_start")} == {"in-process"}


def test_cancellation_passes_and_is_recorded(events: EventFile) -> None:
    with pytest.raises(asyncio.CancelledError):
        call(SubluminalMiddleware(POLICY), asyncio.CancelledError())
    (end,) = events.events_of("tool_call_end")
    assert end["status"] == "CANCELLED"


def test_a_continuation_is_the_same_call(events: EventFile) -> None:
    middleware = SubluminalMiddleware(POLICY, server_name="notes")
    asks = {"resultType": "input_required", "requestState": "s"}
    call(middleware, asks)
    call(middleware, {"content": []}, request_state="s", input_responses={"q": 1})
    assert len(events.events_of("tool_call_start")) == len(events.events_of("tool_call_end")) == 1


class Block:
    """A content block as fastmcp 2.x hands it out."""

    def model_dump(self, **_: Any) -> dict[str, Any]:
        return {"type": "text", "text": "hello"}


class Result:
    def __init__(self, wire: Any) -> None:
        self.wire = wire

    def to_mcp_result(self) -> Any:
        return self.wire


@pytest.mark.parametrize("wire", [[Block()], ([Block()], {"result": 1}), {"content": [{"text": "hello"}]}])
def test_results_of_every_fastmcp_have_a_preview(events: EventFile, wire: Any) -> None:
    call(SubluminalMiddleware(POLICY), Result(wire))
    (end,) = events.events_of("tool_call_end")
    assert "hello" in end["preview"]["result_preview"]


def test_hints_of_older_annotations_are_read(events: EventFile) -> None:
    middleware = SubluminalMiddleware(POLICY)
    notes = ToolAnnotations.model_validate({"readOnlyHint": False, "openWorldHint": True})
    tools = [SimpleNamespace(name="post", annotations=notes), SimpleNamespace(name="plain", annotations=None)]

    async def rest(context: Any) -> Any:
        return tools

    context: Any = SimpleNamespace(fastmcp_context=None)
    assert asyncio.run(middleware.on_list_tools(context, rest)) is tools
    call(middleware, {}, name="post")
    (start,) = events.events_of("tool_call_start")
    assert start["call"]["tags"] == ["network_like", "write_like"]
