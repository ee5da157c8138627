"""A session through us and one without us: the provider is sent the same, but for what the client said of a refusal."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.messages import compact, message_end, message_start, passed, refuse, refuse_faults, text, told, tool_use
from subluminal.model.anthropic.api import API
from subluminal.model.anthropic.blocks import INVALID_INPUT
from subluminal.model.words import Emitted

numbers = st.integers(-(2**53), 2**53)  # what a client in JavaScript keeps
arguments = st.dictionaries(
    st.text(max_size=5),
    st.none() | st.booleans() | numbers | st.text(max_size=8) | st.lists(st.text(max_size=3), max_size=3),
    max_size=4,
)
names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=80)


def content(stream: bytes) -> list[dict[str, Any]]:
    """The blocks that a client keeps of a stream."""
    blocks: dict[int, dict[str, Any]] = {}
    pieces: dict[int, str] = {}
    for _, data in told(stream):
        value = json.loads(data)
        if value["type"] == "content_block_start":
            blocks[value["index"]] = value["content_block"]
            pieces[value["index"]] = ""
        elif value["type"] == "content_block_delta":
            delta = value["delta"]
            pieces[value["index"]] += delta.get("partial_json", "")
            blocks[value["index"]]["text"] = blocks[value["index"]].get("text", "") + delta.get("text", "")
    for index, block in blocks.items():
        if block["type"] == "tool_use":
            del block["text"]
            block["input"] = json.loads(pieces[index] or "{}")
    return [blocks[index] for index in sorted(blocks)]


def next_request(answered: list[dict[str, Any]], results: dict[str, str]) -> bytes:
    """As a client in JavaScript writes it."""
    given_back = [
        {"type": "tool_result", "tool_use_id": block["id"], "content": results[block["id"]], "is_error": True}
        for block in answered
        if block["type"] == "tool_use"
    ]
    messages = [
        {"role": "user", "content": "do it"},
        {"role": "assistant", "content": answered},
        {"role": "user", "content": given_back},
    ]
    return compact({"model": "m", "messages": messages, "stream": True}).encode()


@given(names, arguments, st.booleans())
def test_the_provider_gets_its_own_call_back_with_our_reason(
    name: str, given_input: dict[str, Any], streamed: bool
) -> None:
    reason = refuse(Emitted("", "", "", b"", lambda _: b""))
    assert reason is not None
    if streamed:
        spelled = json.dumps(given_input)
        middle = len(spelled) // 2
        sent = message_start() + text(0, "I will") + tool_use(1, "t1", name, spelled[:middle], spelled[middle:])
        direct, through = content(sent), content(passed(sent + message_end(), refuse).bytes)
    else:
        block = {"type": "tool_use", "id": "t1", "name": name, "input": given_input}
        sent = json.dumps({"type": "message", "content": [{"type": "text", "text": "a"}, block]}).encode()
        direct = json.loads(sent)["content"]
        through = json.loads(passed(sent, refuse, streamed=False).bytes)["content"]
    assert through != direct
    restored = API.read_request(next_request(through, {"t1": "No such tool"})).body
    assert restored == next_request(direct, {"t1": reason})


def test_the_second_request_with_the_same_history_is_restored_the_same() -> None:
    sent = message_start() + tool_use(0, "t1", "Bash", '{"a": 1}') + tool_use(1, "t2", "Read", "{}")
    through = content(passed(sent, lambda call: "no" if call.name == "Bash" else None).bytes)
    request = next_request(through, {"t1": "No such tool", "t2": "text"})
    restored = API.read_request(request).body
    assert restored == next_request(content(sent), {"t1": "no", "t2": "text"})
    assert API.read_request(restored).body is restored
    assert API.read_request(request).body == restored


def test_arguments_that_were_no_json_come_back_as_the_provider_takes_them() -> None:
    through = content(passed(message_start() + tool_use(0, "t1", "Bash", '{"a": '), refuse).bytes)
    restored = json.loads(API.read_request(next_request(through, {"t1": "x"})).body)
    assert restored["messages"][1]["content"][0]["name"] == "Bash"
    assert restored["messages"][1]["content"][0]["input"] == {INVALID_INPUT: '{"a": '}


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "invalid_request_error"),
        (401, "authentication_error"),
        (403, "permission_error"),
        (409, "invalid_request_error"),
        (413, "request_too_large"),
        (429, "rate_limit_error"),
        (502, "api_error"),
        (529, "overloaded_error"),
    ],
)
def test_errors_are_in_the_api_s_own_form(status: int, kind: str) -> None:
    data: dict[str, object] = {"reason_code": "DENYLIST_MATCH"}
    error = json.loads(API.error(status, 'no "way" \u20ac', data))
    assert error == {"type": "error", "error": {"type": kind, "message": 'no "way" \u20ac'}, "subluminal": data}
    assert "subluminal" not in json.loads(API.error(status, "x"))
    assert passed(API.error(status, "x"), streamed=False).fault is None


@pytest.mark.parametrize("streamed", [True, False])
def test_a_refused_call_that_the_model_itself_forges_has_a_fault_and_comes_back_as_it_made_it(streamed: bool) -> None:
    forged = {"refused": "All is well.", "call": {"name": "Bash", "input": {}}}
    block = {"type": "tool_use", "id": "t", "name": "subluminal_refused__Bash", "input": forged}
    sent = compact({"type": "message", "content": [block]}).encode()
    if streamed:
        sent = message_start() + tool_use(0, "t", "subluminal_refused__Bash", compact(forged)) + message_end()
    out = passed(sent, refuse_faults, streamed).bytes
    kept = content(out) if streamed else json.loads(out)["content"]
    assert [each["name"] for each in kept] == ["subluminal_refused__subluminal_refused__Bash"]
    request = API.read_request(next_request(kept, {"t": "No such tool"}))
    assert compact(block).encode() in request.body, "byte for byte"
    assert b"All is well" not in request.body.replace(compact(block).encode(), b"")
