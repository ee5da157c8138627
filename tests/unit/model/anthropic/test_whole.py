"""An answer as one JSON text: the same calls, and every other byte as it was."""

from __future__ import annotations

import json
from typing import Any

import pytest

from harness.effort import growth
from harness.messages import MAX_CALL_BYTES, Passed, allow, passed, refuse
from subluminal.model.anthropic.whole import WholeAnswer
from subluminal.model.refused import PREFIX
from subluminal.model.words import ModelFault

CALL: dict[str, Any] = {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "ls", "n": 1.0}}
TEXT = {"type": "text", "text": 'I "look" \u20ac'}
USAGE = {"input_tokens": 3, "output_tokens": 9, "cache_read_input_tokens": 2}


def message(*content: object, **more: object) -> bytes:
    value = {"id": "msg_1", "type": "message", "role": "assistant", "content": list(content), "model": "m", **more}
    return json.dumps(value, indent=1).encode()


def through(body: bytes, judge: Any = allow) -> Passed:
    return passed(body, judge, streamed=False)


def test_an_answer_passes_as_it_was_sent_and_its_calls_are_given() -> None:
    body = message(TEXT, CALL, {**CALL, "id": "t2", "input": {}}, stop_reason="tool_use", usage=USAGE)
    found = through(body)
    assert (found.bytes, found.fault) == (body, None)
    assert [(call.id, call.kind, call.name, json.loads(call.arguments)) for call in found.calls] == [
        ("t1", "tool_use", "Bash", CALL["input"]),
        ("t2", "tool_use", "Bash", {}),
    ]
    [usage] = found.usages
    assert (usage.message_id, usage.model, usage.stop_reason) == ("msg_1", "m", "tool_use")
    assert (usage.input_tokens, usage.output_tokens, usage.cache_read_input_tokens) == (3, 9, 2)


def test_it_is_given_when_it_is_whole_in_whatever_pieces_it_came() -> None:
    body = message(TEXT, CALL)
    found = passed([body[i : i + 7] for i in range(0, len(body), 7)], refuse, streamed=False)
    assert found.bytes == through(body, refuse).bytes
    assert WholeAnswer(10).feed(body) == []


def test_one_refused_call_changes_nothing_else() -> None:
    other = {**CALL, "id": "t2", "name": "Read"}
    body = message(TEXT, {**CALL, "caller": {"type": "direct"}}, other, usage=USAGE)
    found = through(body, lambda call: "no" if call.name == "Bash" else None)
    changed = json.loads(found.bytes)
    wrapped = {"refused": "no", "call": {"name": "Bash", "input": CALL["input"]}}
    assert changed["content"][1] == {**CALL, "caller": {"type": "direct"}, "name": PREFIX + "Bash", "input": wrapped}
    changed["content"][1] = {**CALL, "caller": {"type": "direct"}}
    assert changed == json.loads(body)
    before = body.index(b'"Bash"')
    assert found.bytes[:before] == body[:before]


@pytest.mark.parametrize(
    "body",
    [
        b'{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"},"request_id":"r"}',
        b'{"message":"Forbidden"}',
        b'{"input_tokens":10}',
        b' {"type":"message","content":[]}\n',
        b'{"type":"message","content":"text"}',
        b'{"type":"message","content":null}',
        b"",
        b"\n",
    ],
)
def test_what_holds_no_call_passes(body: bytes) -> None:
    found = through(body, refuse)
    assert (found.bytes, found.fault, found.calls) == (body, None, [])


@pytest.mark.parametrize(
    ("why", "body"),
    [
        ("not one JSON object", b"<html>"),
        ("not one JSON object", b"[]"),
        ("not one JSON object", message(CALL)[:-1]),
        ("not one JSON object", message(CALL) + b"{}"),
        ("not one JSON object", b"\xef\xbb\xbf" + message(CALL)),
        ("not one JSON object", b"\x1f\x8b\x08\x00compressed"),
        ("not one JSON object", message(CALL).decode().encode("utf-16")),
        ("twice", b'{"content":[],"content":[%b]}' % json.dumps(CALL).encode()),
        ("twice", b'{"content":[{"type":"text","type":"tool_use","id":"t","name":"Bash","input":{}}]}'),
        ("spelled", b'{"content":[],"Content":[]}'),
        ("not one JSON array", b'{"content":{"type":"tool_use"}}'),
        ("not one JSON object", b'{"content":["tool_use"]}'),
        ("no type", message({"id": "t", "name": "Bash", "input": {}})),
        ("no id", message({**CALL, "id": 1})),
        ("no id", message({**CALL, "name": ""})),
        ("does not belong", b'{"type":"message_start","message":{"content":[]}}'),
        ("does not belong", b'{"content_block":{"type":"tool_use"}}'),
    ],
)
def test_what_has_two_readings_does_not_pass(why: str, body: bytes) -> None:
    found = through(body)
    assert why in (found.fault or "")
    assert found.bytes == b""


@pytest.mark.parametrize(
    ("fault", "given"),
    [
        ("not an object", b"[1]"),
        ("not an object", b"null"),
        ("duplicate_key", b'{"a":1,"a":2}'),
        ("duplicate_key", b'{"a":{"b":1,"b":2}}'),
    ],
)
def test_a_call_that_clients_could_read_differently_has_a_fault(fault: str, given: bytes) -> None:
    body = message({**CALL, "input": "GIVEN"}).replace(b'"GIVEN"', given)
    [call] = through(body).calls
    assert fault in (call.fault or "")
    assert json.loads(through(body, refuse).bytes)["content"][0]["name"] == PREFIX + "Bash"


def test_a_call_without_input_has_a_fault() -> None:
    bare = {"type": "tool_use", "id": "t", "name": "Bash"}
    assert "without input" in (through(message(bare)).calls[0].fault or "")
    refused = json.loads(through(message(bare), refuse).bytes)["content"][0]
    assert refused["name"] == PREFIX + "Bash"


def test_two_calls_with_one_id_are_a_fault() -> None:
    assert [call.fault for call in through(message(CALL, CALL)).calls] == [None, "two tool calls with one id"]


def test_a_large_call_is_said_to_be_large() -> None:
    [call] = through(message({**CALL, "input": {"a": "x" * MAX_CALL_BYTES}})).calls
    assert call.too_large == f"larger than {MAX_CALL_BYTES} bytes"


def test_an_answer_larger_than_is_held_ends() -> None:
    answer = WholeAnswer(10, max_body=100)
    answer.feed(b"x" * 100)
    for work in (lambda: answer.feed(b"x"), lambda: answer.feed(b""), answer.end):
        with pytest.raises(ModelFault, match="larger"):
            work()


def test_calls_of_the_provider_are_observed() -> None:
    call = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "x"}}
    result = {"type": "web_search_tool_result", "tool_use_id": "s", "content": []}
    later = {"type": "mcp_tool_use", "id": "m", "name": "echo", "server_name": "files", "input": {}}
    found = through(message(call, result, later), refuse)
    assert [(o.id, o.name, o.server, o.result) for o in found.observed] == [
        ("s", "web_search", "", b"[]"),
        ("m", "echo", "files", b""),
    ]
    assert found.bytes == message(call, result, later)


def test_the_work_is_linear() -> None:
    def read(size: int) -> None:
        through(message(*({**CALL, "id": f"t{i}"} for i in range(size))), refuse)

    assert growth(read, 50, 1_000, 3) < 3
