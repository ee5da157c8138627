"""The JSONC reader against the standard decoder, and its spans against the text."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.jsonc_texts import VALUES, written
from subluminal.clients import jsonc
from subluminal.clients.spans import Node, SyntaxProblem


def value_of(node: Node, text: str) -> Any:
    if node.kind == "table":
        return {member.key: value_of(member.node, text) for member in node.members}
    if node.kind == "array":
        return [value_of(item, text) for item in node.items]
    raw = text[node.start : node.end]
    assert node.kind != "string" or json.loads(raw) == node.value
    return json.loads(raw)


@settings(max_examples=80, deadline=None, derandomize=True)
@given(written())
def test_every_way_to_write_a_value_is_read_as_that_value(case: tuple[str, Any]) -> None:
    text, value = case
    assert value_of(jsonc.read(text).root, text) == value


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.text('{}[],:"\\ \n0123456789.eE+-truefalsn/*u', max_size=24))
def test_plain_json_is_accepted_exactly_when_the_standard_decoder_accepts_it(text: str) -> None:
    try:
        json.loads(text)
        accepted = True
    except ValueError:
        accepted = False
    try:
        reading = jsonc.read(text)
    except SyntaxProblem:
        assert not accepted
        return
    assert reading.liberty is not None or accepted


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    written(
        st.fixed_dictionaries({"a": VALUES, "mcpServers": st.dictionaries(st.text(max_size=3), VALUES), "b": VALUES})
    )
)
def test_passing_over_the_rest_changes_nothing_on_the_way(case: tuple[str, Any]) -> None:
    text, value = case
    whole, part = jsonc.read(text).root, jsonc.read(text, (("mcpServers",),)).root
    assert (part.start, part.end) == (whole.start, whole.end)
    servers = part.get("mcpServers")
    assert servers is not None and value_of(servers, text) == value["mcpServers"]
    assert [(m.key, m.node.start, m.node.end) for m in part.members] == [
        (m.key, m.node.start, m.node.end) for m in whole.members
    ]


def test_both_occurrences_of_a_key_are_seen() -> None:
    root = jsonc.read('{"a": 1, "a": 2}').root
    assert [member.key for member in root.members] == ["a", "a"]
    assert root.get("a") is root.members[1].node


@pytest.mark.parametrize("text", ["{}", ' \n{"a": [1, {"b": null}]}\n', "\ufeff{}"])
def test_plain_json_takes_no_liberty(text: str) -> None:
    assert jsonc.read(text).liberty is None


@pytest.mark.parametrize(("text", "at"), [("{} // c", 3), ('{"a": [1,]}', 8), ("/* c */{}", 0), ('{"a": 1,}', 7)])
def test_the_first_liberty_is_found(text: str, at: int) -> None:
    assert jsonc.read(text).liberty == at


@pytest.mark.parametrize("where", ["mcpServers", "other"])
@pytest.mark.parametrize(
    "bad", ["[NaN]", "[Infinity]", "[1 2]", "[01]", '["\t"]', '["\\x"]', "[1,,2]", "[,]", "{1: 2}"]
)
def test_what_no_client_reads_is_refused_even_in_parts_that_are_passed_over(where: str, bad: str) -> None:
    with pytest.raises(SyntaxProblem):
        jsonc.read(f'{{"{where}": {bad}}}', (("mcpServers",),))


def test_a_number_of_ten_thousand_digits_is_just_text() -> None:
    text = '{"a": [' + "9" * 10_000 + "]}"
    assert jsonc.read(text).root.members and jsonc.read(text, (("b",),)).root.members
