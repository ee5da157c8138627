"""Answers that are one JSON object."""

from __future__ import annotations

import json

import pytest

from harness.responses_api import USAGE, compact, function_call, message, passed, refuse, refuse_all, response
from subluminal.model.words import ModelFault

ECHO = function_call("echo", '{"text": "hi"}', 1)
READ = function_call("read", "{}", 2)
WHOLE = json.dumps(response([message("x"), ECHO, READ], usage=USAGE), indent=2).encode() + b"\n"


def test_what_is_allowed_passes_byte_for_byte() -> None:
    result = passed(WHOLE, streamed=False)
    assert result.out == WHOLE
    assert [e.name for e in result.emitted] == ["echo", "read"]
    assert result.usage[0].input_tokens == 110


def test_only_what_is_refused_changes() -> None:
    result = passed([WHOLE[:100], WHOLE[100:]], refuse("echo"), streamed=False)
    first, call, other = json.loads(result.out)["output"]
    assert (first, other) == (message("x"), READ)
    assert call["name"] == "subluminal_refused__echo"
    start, end = WHOLE.index(b'"status": "completed",\n      "arguments"'), WHOLE.index(b'"id": "fc_2"')
    assert result.out.startswith(WHOLE[:start])
    assert result.out.endswith(WHOLE[end:])


def test_the_same_call_twice_is_judged_twice() -> None:
    result = passed(compact(response([ECHO, ECHO])), refuse_all, streamed=False)
    assert result.faults == [None, "another call has its call_id"]
    assert [item["name"] for item in json.loads(result.out)["output"]] == ["subluminal_refused__echo"] * 2


def test_two_calls_under_one_id_are_judged_apart() -> None:
    result = passed(compact(response([ECHO, {**READ, "call_id": "call_1"}])), refuse_all, streamed=False)
    assert result.faults == [None, "another call has its call_id"]
    names = [item["name"] for item in json.loads(result.out)["output"]]
    assert names == ["subluminal_refused__echo", "subluminal_refused__read"]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b" \n",
        b'{"error":{"message":"no"}}',
        b'{"object":"list","data":[]}',
        compact({"id": "r", "object": "response", "status": "queued", "output": []}),
        compact({"id": "r", "object": "response", "output": None}),
        compact({"id": "c", "object": "response.compaction", "output": [message("x"), {"type": "compaction"}]}),
    ],
)
def test_what_has_no_calls_passes(body: bytes) -> None:
    assert passed(body, streamed=False).out == body


@pytest.mark.parametrize(
    "body",
    [
        b"<html>",
        b"[]",
        WHOLE[:-10],
        WHOLE + WHOLE,
        b'{"output":[],"output":[]}',
        b'{"output":[],"Output":[%b]}' % compact(ECHO),
        b'{"output":{"type":"function_call"}}',
        b'{"output":[{"type":"message","type":"function_call"}]}',
    ],
)
def test_what_nobody_can_read_for_sure_does_not_pass(body: bytes) -> None:
    with pytest.raises(ModelFault):
        passed(body, streamed=False)


def test_more_than_is_held_does_not_pass() -> None:
    with pytest.raises(ModelFault, match="larger than is held"):
        passed([b"{" * (1 << 20)] * 6, streamed=False, max_call_bytes=1_000)


def test_a_large_call_is_judged_by_its_name() -> None:
    large = function_call("write", json.dumps({"text": "x" * 3_000}), 0)
    body = compact(response([large]))
    (emitted,) = passed(body, streamed=False, max_call_bytes=1_000).emitted
    assert (emitted.name, emitted.arguments) == ("write", b"{}")
    assert emitted.too_large
