"""Members and elements where they stand in the text; what has two readings has none; splicing moves nothing else."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.effort import growth
from subluminal.contracts.members import (
    Edit,
    Misread,
    Span,
    elements,
    elements_at,
    members,
    members_at,
    splice,
    taken_out,
    text_of,
)

scalars = st.none() | st.booleans() | st.integers(-(10**6), 10**6) | st.text(max_size=6)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4)
)
blanks = st.sampled_from(["", " ", "\n", "\t \r\n"])


def spelled(value: object, ascii_only: bool, blank: str) -> bytes:
    text = json.dumps(value, ensure_ascii=ascii_only, separators=(blank + "," + blank, blank + ":" + blank))
    return (blank + text + blank).encode()


@given(st.dictionaries(st.text(max_size=6), values, max_size=6), st.booleans(), blanks)
def test_every_member_is_found_where_it_stands(value: dict[str, object], ascii_only: bool, blank: str) -> None:
    text = spelled(value, ascii_only, blank)
    found = members(text)
    assert {key: json.loads(span.of(text)) for key, span in found.items()} == value
    assert all(text[span.key : span.key + 1] == b'"' for span in found.values())


@given(st.lists(values, max_size=6), st.booleans(), blanks)
def test_every_element_is_found_where_it_stands(value: list[object], ascii_only: bool, blank: str) -> None:
    text = spelled(value, ascii_only, blank)
    assert [json.loads(span.of(text)) for span in elements(text)] == value


pairs = st.lists(st.tuples(st.sampled_from(["a", "b", "c", "\\u0061", ""]), values), max_size=6)


@given(pairs, blanks)
def test_a_key_is_found_twice_exactly_where_a_parser_sees_it_twice(
    listed: list[tuple[str, object]], blank: str
) -> None:
    inner = (blank + "," + blank).join(f'"{key}"{blank}:{blank}{json.dumps(value)}' for key, value in listed)
    text = ("{" + blank + inner + blank + "}").encode()
    seen = json.loads(text, object_pairs_hook=lambda found: [key for key, _ in found])
    if len(set(seen)) == len(seen):
        assert list(members(text)) == seen
    else:
        with pytest.raises(Misread):
            members(text)


@pytest.mark.parametrize(
    "text",
    [
        b'{"a":1,"a":1}',
        b'{"a":1,"a":12}',
        b'{"a":12,"a":1}',
        b'{"a":1,"b":2,"a":1}',
        b'{"a":"x","b":1,"\\u0061":"x"}',
        # As long as the last value of `a` is, the first one goes on as if it were the object itself.
        b'{"a":{"k":1,"b":2},"b":2,"a":"xxxx"}',
        b'{"a":[1],"b":2,"a":[1],"b":2}',
    ],
)
def test_a_key_that_stands_twice_is_a_fault(text: bytes) -> None:
    with pytest.raises(Misread, match="twice"):
        members(text)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"null",
        b"[]",
        b'{"a":1',
        b'{"a":1}{}',
        b'{"a":1} x',
        b"\xef\xbb\xbf{}",
        b'{"a":NaN}',
        b'{"a":"\xff"}',
        b'{"a":"\xed\xa0\x80"}',
        b'{"a":"\\ud800"}',
        b'{"a":"\x01"}',
        b"{'a':1}",
        b'{"a":1,}',
        b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    ],
)
def test_what_is_not_one_object_is_a_fault(text: bytes) -> None:
    with pytest.raises(Misread, match="not one JSON object"):
        members(text)


@pytest.mark.parametrize("text", [b"", b"{}", b"[1", b"[1]]", b'["\xff"]', b"[" * 100_000 + b"]" * 100_000])
def test_what_is_not_one_array_is_a_fault(text: bytes) -> None:
    with pytest.raises(Misread, match="not one JSON array"):
        elements(text)


@pytest.mark.parametrize("key", ["Type", "TYPE", " type", "type\\u0000x", "\\u0054ype"])
def test_a_variant_of_a_key_that_is_read_is_a_fault_and_others_are_not(key: str) -> None:
    text = f'{{"{key}":1,"kind":2}}'.encode()
    with pytest.raises(Misread, match="spelled"):
        members(text, ("type",))
    assert len(members(text, ("name",))) == 2


def test_spans_of_inner_values_are_of_the_whole_text() -> None:
    text = b' { "list" : [ {"a": 1}, {"b" :"x"} ] } '
    listed = elements_at(text, members(text)["list"])
    assert [span.of(text) for span in listed] == [b'{"a": 1}', b'{"b" :"x"}']
    assert members_at(text, listed[1])["b"].of(text) == b'"x"'
    assert text[members_at(text, listed[1])["b"].key :].startswith(b'"b" ')


def test_text_is_a_json_string_alone() -> None:
    assert text_of(b'"a\\u00e9\\ud83d\\ude00"') == "a\u00e9\U0001f600"
    assert [text_of(raw) for raw in (b"1", b"null", b'"\\ud800"', b'"\xff"', b"", b'"a" "b"')] == [None] * 6


def test_without_edits_the_text_is_the_same_object() -> None:
    text = bytes(bytearray(b"some text"))
    assert splice(text, []) is text
    assert splice(text, [Edit(5, 9, b"words"), Edit(0, 4, b"no")]) == b"no words"


@given(st.lists(scalars, max_size=7), st.sets(st.integers(0, 7)), blanks)
def test_elements_are_taken_out_with_their_commas(listed: list[object], taken: set[int], blank: str) -> None:
    text = spelled(listed, True, blank)
    spans = elements(text)
    left = json.loads(splice(text, taken_out(spans, taken)))
    assert left == [value for i, value in enumerate(listed) if i not in taken]


def test_reading_is_linear() -> None:
    def read(size: int) -> None:
        text = b'{"a":[' + b",".join(b'{"k":"v\\""}' for _ in range(size)) + b"]}"
        elements_at(text, members(text)["a"])

    assert growth(read, 2_000, 32_000, 3) < 3


def test_a_span_without_a_key_begins_where_it_begins() -> None:
    assert elements(b"[10]") == [Span(1, 3, 1)]
