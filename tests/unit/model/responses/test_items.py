"""Which items a client carries out, and what such a call says."""

from __future__ import annotations

import json
from typing import Any

import pytest

from harness.responses_api import compact, function_call
from subluminal.model.responses.items import observed, read_call, read_item
from subluminal.model.words import ModelFault

IDS = {"id": "x_1", "call_id": "call_1", "status": "completed"}
SEARCH = {"type": "tool_search_call", "arguments": {"q": 1}, **IDS}
CONNECTOR = {"type": "mcp_call", "id": "m", "server_label": "box", "name": "echo"}


def call_of(**members: Any) -> Any:
    item = read_item(compact(members))
    assert item.is_call
    return read_call(item)


@pytest.mark.parametrize(
    ("item", "name", "arguments"),
    [
        ({"type": "function_call", "name": "f", "arguments": '{"a": 1}', **IDS}, "f", b'{"a": 1}'),
        ({"type": "function_call", "name": "f", "arguments": "", **IDS}, "f", b"{}"),
        ({"type": "function_call", "name": "f", "arguments": " \n", **IDS}, "f", b"{}"),
        ({"type": "custom_tool_call", "name": "apply_patch", "input": "a\n\u00e9", **IDS}, "apply_patch", None),
        ({"type": "local_shell_call", "action": {"command": ["ls"]}, **IDS}, "local_shell_call", b'{"command":["ls"]}'),
        ({"type": "shell_call", "action": {"commands": ["ls"]}, **IDS}, "shell_call", b'{"commands":["ls"]}'),
        ({"type": "computer_call", "action": {"type": "wait"}, **IDS}, "computer_call", b'{"type":"wait"}'),
        ({"type": "apply_patch_call", "operation": {"path": "a"}, **IDS}, "apply_patch_call", b'{"path":"a"}'),
        ({**SEARCH, "execution": "client"}, "tool_search_call", b'{"q":1}'),
        ({**SEARCH, "execution": "server"}, "tool_search_call", b'{"q":1}'),
    ],
)  # fmt: skip
def test_each_kind_of_call_has_a_name_and_arguments(item: dict[str, Any], name: str, arguments: bytes | None) -> None:
    call = call_of(**item)
    assert (call.id, call.name, call.fault) == ("call_1", name, None)
    if arguments is None:
        assert json.loads(call.arguments) == {"input": item["input"]}
    else:
        assert call.arguments == arguments


def test_a_type_that_nobody_knows_is_a_call_if_a_result_can_be_sent_for_it() -> None:
    item = {"type": "teleport_call", "where": "home", **IDS}
    call = call_of(**item)
    assert (call.name, call.arguments, call.fault) == ("teleport_call", compact(item), None)


def test_a_computers_list_of_actions_is_judged_as_a_whole() -> None:
    item = {"type": "computer_call", "action": {"type": "wait"}, "actions": [{"type": "click"}], **IDS}
    assert json.loads(call_of(**item).arguments)["actions"] == [{"type": "click"}]


def test_codex_takes_the_id_of_a_local_shell_call_without_call_id() -> None:
    call = call_of(type="local_shell_call", id="lsh_1", action={"command": ["ls"]})
    assert (call.id, call.fault) == ("lsh_1", None)


@pytest.mark.parametrize(
    "item",
    [
        {"type": "message", "id": "m", "content": []},
        {"type": "reasoning", "id": "r", "encrypted_content": "x"},
        {"type": "mcp_approval_request", "id": "a", "name": "t", "arguments": "{}", "server_label": "s"},
        {"type": "mcp_list_tools", "id": "l", "tools": []},
        {"type": "function_call_output", "call_id": "c", "output": "x"},
        {"type": "web_search_call", "id": "w"},
        {"type": "program", "id": "p", "call_id": "c", "code": "1"},
        {"type": "tool_search_call", "id": "t", "execution": "server", "call_id": None, "arguments": {}},
    ],
)
def test_what_no_client_carries_out_is_no_call(item: dict[str, Any]) -> None:
    assert not read_item(compact(item)).is_call


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"call_id": None}, "it has no call_id"),
        ({"call_id": 7}, "it has no call_id"),
        ({"name": None}, "it has no name"),
        ({"name": "subluminal_refused__x"}, "its name is kept for calls that were refused"),
        ({"namespace": ["a"]}, "its namespace is no text"),
        ({"arguments": '{"a":'}, "arguments: invalid_json"),
        ({"arguments": '{"a":1,"a":2}'}, "arguments: duplicate_key"),
        ({"arguments": "[1]"}, "arguments: not an object"),
        ({"arguments": {"a": 1}}, None),
        ({"arguments": "[" * 100_000}, None),
    ],
)
def test_what_two_clients_could_carry_out_differently_is_a_fault(change: dict[str, Any], fault: str | None) -> None:
    call = call_of(**{**function_call("f", "{}"), **change})
    assert (call.fault is None) if fault is None else fault in str(call.fault)


@pytest.mark.parametrize(
    "text", [b'{"type":"message","type":"function_call"}', b'{"type":"x","Type":"y"}', b'{"a":', b"[]"]
)
def test_an_item_that_parsers_read_differently_is_no_item(text: bytes) -> None:
    with pytest.raises(ModelFault):
        read_item(text)


def test_a_call_is_the_same_however_it_is_spelled() -> None:
    one = call_of(**function_call("f", '{"a": 1, "b": "\u00e9"}'))
    same = call_of(**function_call("f", '{"b":"\\u00e9","a":1}', status="incomplete"))
    other = call_of(**function_call("f", '{"a": 2, "b": "\u00e9"}'))
    spaced = call_of(**function_call("f", '{"a": 1, "b": "\u00e9"}', namespace="mcp__box"))
    assert one.digest == same.digest
    assert len({one.digest, other.digest, spaced.digest}) == 3


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        (
            {**CONNECTOR, "arguments": '{"a":1}', "output": "hi"},
            ("mcp_call", "echo", b'{"a":1}', "box", b'"hi"', None),
        ),
        (
            {**CONNECTOR, "arguments": "", "error": "no"},
            ("mcp_call", "echo", b"{}", "box", b"", "no"),
        ),
        (
            {"type": "web_search_call", "id": "w", "status": "completed", "action": {"query": "x"}},
            ("web_search_call", "web_search", b'{"query":"x"}', "", b"", None),
        ),
        (
            {"type": "code_interpreter_call", "id": "c", "status": "failed", "code": "1/0", "outputs": []},
            ("code_interpreter_call", "code_interpreter", b'{"code":"1/0"}', "", b"[]", "failed"),
        ),
        (
            {"type": "divination_call", "id": "d", "question": "?"},
            ("divination_call", "divination", b'{"question":"?"}', "", b"", None),
        ),
    ],
)  # fmt: skip
def test_calls_of_the_providers_own_are_observed(item: dict[str, Any], expected: tuple[Any, ...]) -> None:
    found = observed(read_item(compact(item)))
    assert found is not None
    assert (found.kind, found.name, found.arguments, found.server, found.result, found.failed) == expected
