"""Headers that repeat a message, beside what the SDK writes and what its servers compare."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp.shared.inbound import (
    decode_header_value,
    encode_header_value,
    find_invalid_x_mcp_header,
    validate_mcp_param_headers,
    x_mcp_header_map,
)

from harness.effort import growth
from subluminal.mcp.headers import ParameterHeaders, annotated, header_value


def prop(header: Any = "Region", kind: Any = "string", **more: Any) -> dict[str, Any]:
    return {"type": kind, "x-mcp-header": header, **more}


def schema(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


SCHEMAS = [
    schema(a=prop()),
    schema(a=prop(), b=prop("Count", "integer"), c=prop("Dry", "boolean"), d={"type": "number"}),
    schema(a=schema(b=schema(c=prop()))),
    schema(a=prop(), b=prop("REGION")),  # twice
    schema(a=prop("not a token")),
    schema(a=prop("")),
    schema(a=prop(7)),
    schema(a=prop(kind="number")),
    schema(a=prop(kind=["string", "null"])),
    schema(a=prop(), b={"type": "array", "items": prop("Inner")}),
    {**schema(a=prop()), "anyOf": [schema(b=prop("Other"))]},
    {**schema(a=prop()), "$defs": {"x": prop("Other")}},
    {**schema(a=prop()), "x-mcp-header": "Root"},
    {**schema(a=prop()), "default": {"x-mcp-header": "data is no schema"}},
    schema(a="no schema"),
    "no schema",
    None,
]


@pytest.mark.parametrize("given_schema", SCHEMAS, ids=range(len(SCHEMAS)))
def test_the_annotations_that_count_are_those_that_count_for_the_sdk(given_schema: Any) -> None:
    valid = find_invalid_x_mcp_header(given_schema) is None
    assert annotated(given_schema) == (x_mcp_header_map(given_schema) if valid else {})


@given(st.text())
def test_a_value_is_written_as_the_sdk_writes_it(text: str) -> None:
    assert header_value(text).decode("ascii") == encode_header_value(text)
    assert decode_header_value(header_value(text).decode("ascii")) == text


ARGUMENTS = [
    {"a": "eu", "b": 3, "c": True},
    {"a": "łódź", "b": -0, "c": False},
    {"a": None, "b": 12345678901234567890123456789, "d": 1.5},
    {"a": " edge ", "b": 100.0},
    {"a": "", "b": 2.5},
    {"a": {"nested": 1}, "b": [1]},
    {},
]


@pytest.mark.parametrize("arguments", ARGUMENTS, ids=range(len(ARGUMENTS)))
def test_a_server_of_the_sdk_finds_that_headers_and_arguments_agree(arguments: dict[str, Any]) -> None:
    parameters = ParameterHeaders()
    parameters.learn({"tools": [{"name": "t", "inputSchema": SCHEMAS[1]}]})
    headers = parameters.of_call("t", json.dumps(arguments, ensure_ascii=False).encode())
    sent = {name.decode(): value.decode() for name, value in headers}
    assert validate_mcp_param_headers(SCHEMAS[1], arguments, sent) is None


def test_the_last_list_counts_and_a_tool_that_was_never_listed_has_no_headers() -> None:
    parameters = ParameterHeaders()
    assert parameters.of_call("t", b'{"a":"x"}') == []
    parameters.learn({"tools": [{"name": "t", "inputSchema": schema(a=prop())}, "no tool", {"name": 1}]})
    assert parameters.of_call("t", b'{"a":"x"}') == [(b"mcp-param-Region", b"x")]
    assert parameters.of_call("t", b"[1]") == parameters.of_call("t", b"{") == []
    parameters.learn({"tools": [{"name": "t", "inputSchema": schema(a={"type": "string"})}]})
    assert not parameters.knows("t")
    parameters.learn([])


def test_a_hostile_schema_costs_no_more_than_its_size() -> None:
    def deep(depth: int) -> Any:
        node: Any = prop()
        for _ in range(depth):
            node = schema(a=node)
        return node

    def wide(count: int) -> Any:
        return schema(**{f"p{number}": prop(f"H{number}") for number in range(count)})

    assert annotated(deep(5000)) == {} and annotated(wide(5000)) == {}
    schemas = {depth: deep(depth) for depth in (1000, 8000)}
    assert growth(lambda depth: annotated(schemas[depth]), 1000, 8000, 2) < 2
