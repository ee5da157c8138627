"""A refused call has another name, and everything in it that is needed to put it back."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from subluminal.model.refused import MAX_NAME_CHARS, PREFIX, refused_name, unwrapped, wrapped

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)


def test_a_short_name_stands_behind_the_prefix() -> None:
    assert refused_name("Bash") == "subluminal_refused__Bash"
    assert refused_name("mcp__files__read-1") == "subluminal_refused__mcp__files__read-1"


@given(st.text())
def test_every_name_becomes_one_that_all_apis_take(name: str) -> None:
    spelled = refused_name(name)
    assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", spelled)
    assert spelled.startswith(PREFIX)


def test_names_that_do_not_fit_are_told_apart() -> None:
    long = "mcp__some_server__" + "x" * 60
    assert len({refused_name(name) for name in (long, long + "y", "a.b", "a/b", "a_b")}) == 5
    assert len(refused_name(long)) == MAX_NAME_CHARS


@given(values, st.text())
def test_what_was_wrapped_is_found_again_however_it_is_spelled(call: object, text: str) -> None:
    text = text.encode("utf-8", "replace").decode()
    original = json.dumps(call).encode()
    assert unwrapped(wrapped(original, text)) == (original, text)
    respelled = json.dumps(json.loads(wrapped(original, text)), indent=2, sort_keys=True, ensure_ascii=False)
    again = unwrapped(respelled.encode())
    assert again is not None
    assert (json.loads(again[0]), again[1]) == (call, text)


def test_half_a_character_in_a_reason_harms_nothing() -> None:
    assert unwrapped(wrapped(b"{}", "cut \ud83d")) == (b"{}", "cut ?")


@pytest.mark.parametrize(
    "arguments",
    [
        b"",
        b"null",
        b"[]",
        b"{}",
        b'{"refused":"x"}',
        b'{"call":{}}',
        b'{"refused":1,"call":{}}',
        b'{"refused":"x","call":{},"more":1}',
        b'{"refused":"x","call":{},"call":{}}',
        b'{"refused":"\\ud800","call":{}}',
        b'{"refused":"x","call":' + b"[" * 100_000,
    ],
)
def test_anything_else_is_not_ours(arguments: bytes) -> None:
    assert unwrapped(arguments) is None
