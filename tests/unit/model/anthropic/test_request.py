"""What a request says, and what reaches the provider of it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.effort import growth
from harness.messages import compact
from subluminal.model.anthropic.api import API
from subluminal.model.refused import refused_name
from subluminal.model.words import ModelFault, Offered

BASH_TOOL = {"name": "Bash", "description": "d", "input_schema": {"type": "object"}}
SEARCH = {"type": "web_search_20250305", "name": "web_search", "max_uses": 5}
FILES = {"type": "url", "url": "https://files.example/mcp", "name": "files", "authorization_token": "tok-1"}
MAIL = {"type": "url", "url": "https://mail.example/mcp", "name": "mail"}


def body_of(spaced: bool = False, **members: object) -> bytes:
    value = {"model": "some-model", "max_tokens": 10, "messages": [], **members}
    if spaced:
        return json.dumps(value, indent=2, ensure_ascii=False).encode()
    return compact(value).encode()


def user(*blocks: object) -> dict[str, object]:
    return {"role": "user", "content": list(blocks)}


def assistant(*blocks: object) -> dict[str, object]:
    return {"role": "assistant", "content": list(blocks)}


def result(call_id: str, content: object = "ok", **more: object) -> dict[str, object]:
    return {"tool_use_id": call_id, "type": "tool_result", "content": content, **more}


def call(call_id: str, name: str, given_input: object, **more: object) -> dict[str, object]:
    return {"type": "tool_use", "id": call_id, "name": name, "input": given_input, **more}


def refused(call_id: str, name: str, given_input: object, reason: str = "no", **more: object) -> dict[str, object]:
    wrapped = {"refused": reason, "call": {"name": name, "input": given_input}}
    return call(call_id, refused_name(name), wrapped, **more)


def test_model_and_stream_are_read() -> None:
    request = API.read_request(body_of(stream=True))
    assert (request.model, request.streamed) == ("some-model", True)
    assert not API.read_request(body_of()).streamed
    assert not API.read_request(body_of(stream=None)).streamed


@pytest.mark.parametrize(
    ("why", "body"),
    [
        ("not one JSON object", b""),
        ("not one JSON object", b"[]"),
        ("not one JSON object", body_of() + b"x"),
        ("not one JSON object", b"\xef\xbb\xbf" + body_of()),
        ("not one JSON object", b'{"model":"\xff"}'),
        ("not one JSON object", b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"),
        ("twice", b'{"stream":true,"stream":false}'),
        ("twice", b'{"messages":[],"tools":[],"messages":[]}'),
        ("twice", b'{"tools":[{"type":"web_search_1","name":"x","type":"custom"}]}'),
        ("spelled", b'{"Tools":[]}'),
        ("spelled", b'{"tools":[{"Type":"web_search_1","name":"x"}]}'),
        ("neither true nor false", body_of(stream="true")),
        ("neither true nor false", body_of(stream=1)),
        ("not one JSON array", body_of(tools={})),
        ("not one JSON object", body_of(tools=["web_search"])),
        ("type is no text", body_of(tools=[{"type": 1, "name": "x"}])),
        ("without name or url", body_of(mcp_servers=[{"type": "url", "url": "https://x.example"}])),
        ("without name or url", body_of(mcp_servers=[{"type": "url", "name": "x"}])),
        ("twice", b'{"mcp_servers":[{"name":"a","url":"u","url":"v"}]}'),
    ],
)
def test_a_request_that_has_two_readings_is_a_fault(why: str, body: bytes) -> None:
    with pytest.raises(ModelFault, match=why):
        API.read_request(body)


# -- results --------------------------------------------------------------------------------------------------------


def test_every_result_is_told() -> None:
    blocks = [{"type": "text", "text": "first"}, {"type": "image"}, {"type": "text", "text": "second"}]
    body = body_of(
        messages=[
            {"role": "user", "content": "tool_result in text"},
            assistant(call("t1", "Bash", {})),
            user(result("t1", "some \u20ac text"), {"type": "text", "text": "on"}),
            user(result("t2", blocks, is_error=True), result("t3", "bad", is_error=True)),
            user(result("t4", is_error=False), {"type": "tool_result", "tool_use_id": "t5"}),
            assistant(result("t6")),
            user({"type": "tool_result"}, {"type": "tool_result", "tool_use_id": 7}),
        ]
    )
    found = API.read_request(body).results
    assert [(one.id, json.loads(one.content), one.failed) for one in found] == [
        ("t1", "some \u20ac text", None),
        ("t2", blocks, "first\nsecond"),
        ("t3", "bad", "bad"),
        ("t4", "ok", None),
        ("t5", None, None),
    ]


@pytest.mark.parametrize("messages", [None, "x", [1], [{"role": "user", "content": [1, "tool_result"]}], [[]]])
def test_messages_of_no_known_form_tell_nothing_and_pass(messages: object) -> None:
    body = body_of(messages=messages)
    request = API.read_request(body)
    assert request.results == []
    assert request.body is body


# -- tools of the provider ------------------------------------------------------------------------------------------


def test_tools_that_the_provider_runs_are_offered_and_those_of_the_client_are_not() -> None:
    kinds = ["web_search_20250305", "web_fetch_20250910", "code_execution_20250825", "tool_search_tool_regex_20251119"]
    own = ["custom", "bash_20250124", "text_editor_20250728", "computer_20250124", "memory_20250818", None]
    tools = [BASH_TOOL, *({"type": kind, "name": f"n{i}"} for i, kind in enumerate([*kinds, *own, "brand_new_1"]))]
    offered = API.read_request(body_of(tools=tools)).offered
    assert [tool.kind for tool in offered] == [*kinds, "brand_new_1"]
    assert offered[0].name == "n0"
    assert json.loads(offered[0].definition) == {"type": kinds[0], "name": "n0"}
    assert [(tool.server, tool.secrets) for tool in offered] == [("", [])] * 5


def test_connectors_are_offered_with_their_secrets_apart() -> None:
    keyed = {**MAIL, "headers": {"x-api-key": "key-1"}, "token": "key-2"}
    first, second = API.read_request(body_of(mcp_servers=[FILES, keyed])).offered
    assert (first.kind, first.name, first.server, first.secrets) == ("mcp_server", "", "files", ["tok-1"])
    assert (second.server, second.secrets) == ("mail", ["key-1", "key-2"])
    assert json.loads(first.definition) == FILES


@pytest.mark.parametrize("spaced", [False, True])
def test_what_is_refused_is_taken_out_and_nothing_else_moves(spaced: bool) -> None:
    toolset = {"type": "mcp_toolset", "mcp_server_name": "files", "default_config": {"enabled": True}}
    members: dict[str, Any] = {
        "tools": [SEARCH, BASH_TOOL, toolset, {**toolset, "mcp_server_name": "mail"}, {**SEARCH, "name": "again"}],
        "mcp_servers": [FILES, MAIL],
        "metadata": {"a": 1.0},
    }
    request = API.read_request(body_of(spaced, **members))
    search, again, files, mail = request.offered
    assert request.without([]) == request.body
    assert json.loads(request.without([search, files])) == json.loads(
        body_of(**{**members, "tools": [members["tools"][i] for i in (1, 3, 4)], "mcp_servers": [MAIL]})
    )
    nothing = json.loads(request.without([search, again, files, mail]))
    assert (nothing["tools"], nothing["mcp_servers"]) == ([BASH_TOOL], [])
    assert b'"metadata"' in request.without([search])
    tail = request.body[request.body.index(b'"metadata"') :]
    assert request.without([search, again, files]).endswith(tail)


def test_a_copy_of_what_was_offered_is_taken_out_as_well() -> None:
    request = API.read_request(body_of(tools=[SEARCH, BASH_TOOL]))
    [search] = request.offered
    same = Offered(search.kind, search.name, bytes(search.definition))
    assert json.loads(request.without([same]))["tools"] == [BASH_TOOL]


# -- restoring ------------------------------------------------------------------------------------------------------


def test_without_a_refused_call_the_body_is_the_same_object() -> None:
    for messages in ([], [assistant(call("t", "Bash", {}))], [user({"type": "text", "text": "subluminal_refused__"})]):
        body = body_of(messages=messages)
        assert API.read_request(body).body is body


@pytest.mark.parametrize("spaced", [False, True])
def test_a_refused_call_and_its_result_are_put_back_and_all_else_stays(spaced: bool) -> None:
    odd = {"big": 12345678901234567890, "one": 1.0, "text": "\u20ac \\u0041", "z": 1, "a": 2}
    cached = {"cache_control": {"type": "ephemeral"}}
    history = [
        user({"type": "text", "text": "do it"}),
        assistant({"type": "thinking", "thinking": "hm", "signature": "s"}, refused("t1", "Bash", odd, "no \u20ac"),
                  call("t2", "Read", {"x": 1})),
        user(result("t1", "No such tool", is_error=True, **cached), result("t2")),
        assistant(refused("t3", "Write", {}, **cached)),
        user({"type": "tool_result", "tool_use_id": "t3"}),
    ]  # fmt: skip
    original = [
        history[0],
        assistant({"type": "thinking", "thinking": "hm", "signature": "s"}, call("t1", "Bash", odd),
                  call("t2", "Read", {"x": 1})),
        user(result("t1", "no \u20ac", is_error=True, **cached), result("t2")),
        assistant(call("t3", "Write", {}, **cached)),
        user({"type": "tool_result", "tool_use_id": "t3", "content": "no", "is_error": True}),
    ]  # fmt: skip
    body = body_of(spaced, messages=history, tools=[SEARCH])
    request = API.read_request(body)
    assert json.loads(request.body) == json.loads(body_of(messages=original, tools=[SEARCH]))
    if not spaced:
        assert request.body == body_of(messages=original, tools=[SEARCH])
    assert [one.failed for one in request.results] == ["no \u20ac", None, "no"]
    assert json.loads(request.without(request.offered))["tools"] == []


def test_a_name_that_did_not_fit_is_put_back_whole() -> None:
    name = "mcp__some.server__" + "x" * 100
    body = body_of(messages=[assistant(refused("t1", name, {"a": 1})), user(result("t1"))])
    assert json.loads(API.read_request(body).body)["messages"][0]["content"] == [call("t1", name, {"a": 1})]


def test_a_type_that_was_changed_is_put_back() -> None:
    wrapped = {"refused": "no", "call": {"type": "shell_use", "name": "Bash", "input": {}}}
    body = body_of(messages=[assistant(call("t1", refused_name("Bash"), wrapped))])
    [block] = json.loads(API.read_request(body).body)["messages"][0]["content"]
    assert block == {"type": "shell_use", "id": "t1", "name": "Bash", "input": {}}


OURS = {"refused": "no", "call": {"name": "Bash", "input": {}}}


@pytest.mark.parametrize(
    "block",
    [
        call("t", refused_name("Bash"), {}),
        call("t", refused_name("Bash"), "text"),
        call("t", refused_name("Read"), OURS),
        call("t", "Bash", OURS),
        call("t", refused_name("Bash"), {**OURS, "more": 1}),
        call("t", refused_name("Bash"), {"refused": 1, "call": OURS["call"]}),
        call("t", refused_name("Bash"), {"refused": "no", "call": {"name": "Bash"}}),
        call("t", refused_name("Bash"), {"refused": "no", "call": {"name": "Bash", "input": [], "id": "x"}}),
        call("t", refused_name("Bash"), {"refused": "no", "call": {"name": "Bash", "input": []}}),
        call("t", refused_name("Bash"), {"refused": "no", "call": {"name": 1, "input": {}}}),
        {**call("t", refused_name("Bash"), OURS), "type": "server_tool_use"},
        {**call("t", refused_name("Bash"), OURS), "id": 1},
        {"type": "text", "text": json.dumps(call("t", refused_name("Bash"), OURS))},
    ],
)
def test_what_is_not_exactly_a_refused_call_stays(block: dict[str, object]) -> None:
    body = body_of(messages=[assistant(block), user(result("t", "client's words"))])
    assert API.read_request(body).body == body


def test_a_refused_call_in_another_place_than_an_assistant_s_message_stays() -> None:
    block = refused("t", "Bash", {})
    for messages in ([user(block)], [{"role": "system", "content": [block]}], [{"content": [block]}]):
        body = body_of(messages=messages)
        assert API.read_request(body).body == body


def test_only_the_message_that_follows_holds_the_result() -> None:
    body = body_of(
        messages=[assistant(refused("t", "Bash", {})), user({"type": "text", "text": "x"}), user(result("t", "mine"))]
    )
    assert json.loads(API.read_request(body).body)["messages"][2] == user(result("t", "mine"))


def test_a_history_with_two_readings_is_not_touched() -> None:
    block = json.dumps(refused("t", "Bash", {})).replace('"id": "t"', '"id": "u", "id": "t"')
    body = f'{{"messages":[{{"role":"assistant","content":[{block}]}}]}}'.encode()
    assert API.read_request(body).body == body


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
)


@given(st.lists(json_values, max_size=4), st.binary(max_size=4))
def test_whatever_stands_in_a_history_is_no_crash(blocks: list[object], noise: bytes) -> None:
    body = body_of(messages=[assistant(*blocks, refused("t", "Bash", {})), user(*blocks, result("t")), *blocks])
    assert json.loads(API.read_request(body).body)["messages"][0]["content"][-1] == call("t", "Bash", {})
    try:
        API.read_request(body + noise)
        API.read_request(noise + body)
    except ModelFault:
        pass


def test_the_work_is_linear() -> None:
    def read(size: int) -> None:
        turns = [(assistant(refused(f"t{i}", "Bash", {})), user(result(f"t{i}"))) for i in range(size)]
        API.read_request(body_of(messages=[message for turn in turns for message in turn], tools=[SEARCH] * size))

    assert growth(read, 50, 1_000, 3) < 3


def test_long_blocks_between_refused_calls_are_read_a_bounded_number_of_times() -> None:
    def read(size: int) -> None:
        API.read_request(
            body_of(messages=[assistant(refused("t", "Bash", {"a": "x\u20ac" * size})), user(result("t"))])
        )

    assert growth(read, 10_000, 200_000, 3) < 3
