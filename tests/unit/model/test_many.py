"""Requests with more in them than anybody has: each part is looked at while others wait, so that they are not read."""

from __future__ import annotations

import json
from typing import Any

import pytest

from harness.effort import growth
from subluminal.contracts.members import MAX_PARTS, MAX_TOOLS
from subluminal.model.anthropic.api import API as ANTHROPIC
from subluminal.model.responses.api import API as RESPONSES
from subluminal.model.words import Api, ModelFault

RESULT = {"type": "tool_result", "tool_use_id": "t", "content": "subluminal_refused__"}
OUTPUT = {"type": "function_call_output", "call_id": "c", "output": ""}
TOOL = {"type": "x"}
APIS = {"messages": ANTHROPIC, "input": RESPONSES}


def body(**parts: list[Any]) -> bytes:
    """The last element of each list as often as its length says: encoded once."""
    texts = [f'"{key}":[{",".join([json.dumps(part[0])] * len(part))}]' for key, part in parts.items()]
    return f"{{{','.join(texts)}}}".encode()


@pytest.mark.parametrize(
    "sent",
    [
        {"messages": [{"role": "user", "content": [RESULT]}] * (MAX_PARTS + 1)},
        {"messages": [{"role": "user", "content": [RESULT] * (MAX_PARTS + 1)}]},
        {"input": [OUTPUT] * (MAX_PARTS + 1)},
        {"messages": [{}], "tools": [TOOL] * (MAX_TOOLS + 1)},
        {"messages": [{}], "mcp_servers": [TOOL] * (MAX_TOOLS + 1)},
        {"input": [{}], "tools": [TOOL] * (MAX_TOOLS + 1)},
        {"input": [{"type": "tool_search_output", "tools": [TOOL] * 50}] * (MAX_TOOLS // 50 + 1)},
    ],
    ids=lambda sent: "+".join(f"{len(part)} {key}" for key, part in sent.items()),
)
def test_more_than_anybody_has_is_not_read(sent: dict[str, list[Any]]) -> None:
    with pytest.raises(ModelFault, match="more than"):
        APIS[next(iter(sent))].read_request(body(**sent))


@pytest.mark.parametrize(("key", "api"), APIS.items())
def test_tools_are_taken_out_in_linear_time(key: str, api: Api) -> None:
    def taken_out(size: int) -> bytes:
        request = api.read_request(body(**{key: [{"role": "user", "content": "x"}]}, tools=[TOOL] * size))
        return request.without(request.offered)

    small = MAX_TOOLS // 8
    assert growth(taken_out, small, 8 * small, limit=2) < 2
