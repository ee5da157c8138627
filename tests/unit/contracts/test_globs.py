"""Globs on names: one dialect, in time linear in the name."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from subluminal.contracts.globs import MAX_GLOB_CHARS, glob_fault, glob_test, glob_tokens, is_glob, literal_head

HARD = "ab[]!^-*?\\/é\0"


def plainly(glob: str, name: str) -> bool:
    """What the documentation says, tried in every way."""
    return _matches(glob_tokens(glob), name)


def _matches(tokens: list[str], name: str) -> bool:
    if not tokens:
        return not name
    token, rest = tokens[0], tokens[1:]
    if token == "*":
        return any(_matches(rest, name[i:]) for i in range(len(name) + 1))
    return bool(name) and _takes(token, name[0]) and _matches(rest, name[1:])


def _takes(token: str, char: str) -> bool:
    if len(token) == 1:
        return token in ("?", char)
    body, negated = token[1:-1], token.startswith("[!")
    body = body[1:] if negated else body
    while body:
        size = 3 if len(body) > 2 and body[1] == "-" else 1
        if body[0] <= char <= body[size - 1]:
            return not negated
        body = body[size:]
    return negated


@given(st.text(HARD, max_size=9), st.text(HARD, max_size=7))
def test_a_glob_means_what_the_documentation_says(glob: str, name: str) -> None:
    assert glob_test(glob)(name) == plainly(glob, name)


@given(st.text(HARD, max_size=9))
def test_a_name_without_wildcards_means_itself_and_starts_with_its_fixed_text(name: str) -> None:
    if not is_glob(name):
        assert literal_head(name) == name
        assert glob_test(name)(name) and not glob_test(name)(name + "a")
    assert name.startswith(literal_head(name))


@given(st.text(HARD, max_size=9))
def test_every_name_can_be_asked_for_by_putting_its_wildcards_into_sets(name: str) -> None:
    quoted = "".join(f"[{char}]" if char in "*?[" else char for char in name)
    assert glob_test(quoted)(name) and not glob_test(quoted)(name + "x")


@pytest.mark.parametrize(
    ("glob", "names"),
    [
        ("git_[!p]*", ["git_status", "git_^x"]),
        ("git_[^p]*", ["git_push", "git_^x"]),  # ^ is a character like any other
        ("GIT_*", []),
        ("*\\*", ["a\\b"]),
        ("[g]it_[sp]*", ["git_push", "git_status"]),
    ],
)
def test_negation_case_and_backslash(glob: str, names: list[str]) -> None:
    there = ["git_push", "git_status", "git_^x", "a\\b"]
    assert [name for name in there if glob_test(glob)(name)] == names


@pytest.mark.parametrize(
    "glob", ["*" + "[ab]" * 120 + "c*", "*a" * 200 + "?b", "?*" * 200 + "b", "[!b]*" * 100 + "b", "*a*a*a*a*a*a*[a]b"]
)
def test_no_glob_takes_more_than_one_step_for_each_character(glob: str) -> None:
    assert len(glob) <= MAX_GLOB_CHARS and glob_fault(glob) is None
    test = glob_test(glob)
    assert _steps(test, "a" * 20_000) <= 10 * _steps(test, "a" * 2_000) + 100


def _steps(test: Callable[[str], bool], name: str) -> int:
    """Lines of Python that a test runs."""
    lines = 0

    def count(frame: object, event: str, argument: object) -> object:
        nonlocal lines
        lines += event == "line"
        return count

    before = sys.gettrace()
    sys.settrace(count)  # type: ignore[arg-type]
    try:
        test(name)
    finally:
        sys.settrace(before)
    return lines


@pytest.mark.parametrize("glob", ["*" * 513, "[z-a]", "[\0-\U0010ffff]x"])
def test_a_glob_that_is_a_mistake_or_a_burden_is_named(glob: str) -> None:
    assert glob_fault(glob) is not None
