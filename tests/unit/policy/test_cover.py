"""Wider, narrower, disjoint: always on the safe side, checked against the engine's own matcher."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from subluminal.core.matchers import ArgsMatch
from subluminal.core.names import glob_pattern
from subluminal.policy.cover import match_covers, may_overlap
from subluminal.policy.patterns import glob_covers, names_overlap, normal_glob, regex_fault

globs = st.text("ab*?[]!-", max_size=7)
names = st.text("ab-[]!", max_size=6)


@given(glob=globs, name=names)
@settings(max_examples=600, deadline=None, derandomize=True)
def test_a_normal_form_matches_the_same_names(glob: str, name: str) -> None:
    assert glob_pattern(normal_glob(glob)).test(name) == glob_pattern(glob).test(name)
    assert normal_glob(normal_glob(glob)) == normal_glob(glob)


@given(wide=globs, narrow=globs, name=names)
@settings(max_examples=1500, deadline=None, derandomize=True)
def test_what_a_glob_covers_it_matches(wide: str, narrow: str, name: str) -> None:
    if glob_covers(normal_glob(wide), normal_glob(narrow)) and glob_pattern(narrow).test(name):
        assert glob_pattern(wide).test(name)


@given(a=globs, b=globs, name=names)
@settings(max_examples=1500, deadline=None, derandomize=True)
def test_globs_that_share_a_name_overlap(a: str, b: str, name: str) -> None:
    if glob_pattern(a).test(name) and glob_pattern(b).test(name):
        assert names_overlap({"glob": [a]}, {"glob": [b]})


@pytest.mark.parametrize(
    ("wide", "narrow", "covers"),
    [
        ("*", "git*", True),
        ("git*", "git_push", True),
        ("git*", "git*_x", True),
        ("*push", "git*push", True),
        ("g?t", "get", True),
        ("[ab]c", "[ab]c", True),
        ("?c", "[ab]c", True),
        ("git_*", "git*", False),
        ("get", "g?t", False),
        ("a*", "*a", False),
        ("*a*", "*", False),
        ("a?", "a*", False),
    ],
)
def test_covering_globs(wide: str, narrow: str, covers: bool) -> None:
    assert glob_covers(wide, narrow) is covers


def tools(*patterns: str, **more: Any) -> dict[str, Any]:
    return {"tool_name": {"glob": list(patterns)}, **more}


@pytest.mark.parametrize(
    ("wide", "narrow", "covers"),
    [
        ({}, tools("a"), True),
        (tools("a"), {}, False),
        (tools("a", "b*"), tools("bc", "a"), True),
        (tools("a"), tools("a", "c"), False),
        ({"server_name": {"regex": [".*"]}}, {"server_name": {"glob": ["x"]}}, True),
        ({"server_name": {"regex": ["^a"]}}, {"server_name": {"regex": ["^a"]}}, True),
        ({"server_name": {"regex": ["^a"]}}, {"server_name": {"glob": ["a"]}}, False),
        ({"risk_class": ["w", "r"]}, {"risk_class": ["w"]}, True),
        ({"risk_class": ["w"]}, {"risk_class": ["w", "r"]}, False),
        ({"risk_class": ["w"]}, {}, False),
        ({"time": {"utc_hours": [1, 2]}}, {"time": {"utc_hours": [2]}}, True),
        ({"time": {"utc_hours": [1, 2]}}, {}, False),
        ({"time": {"utc_hours": list(range(24))}}, {}, True),
        ({"args": {"has_keys": ["a"]}}, {"args": {"key_equals": {"a": 1}}}, True),
        ({"args": {"has_keys": ["a"]}}, {"args": {"has_keys": ["a", "b"]}}, True),
        ({"args": {"has_keys": ["a", "b"]}}, {"args": {"has_keys": ["a"]}}, False),
        ({"args": {"key_in": {"a": [1, 2]}}}, {"args": {"key_equals": {"a": 2}}}, True),
        ({"args": {"key_equals": {"a": 1}}}, {"args": {"key_equals": {"a": True}}}, False),
        (
            {"args": {"numeric_range": {"a": {"max": 9}}}},
            {"args": {"numeric_range": {"a": {"min": 1, "max": 5}}}},
            True,
        ),
        (
            {"args": {"numeric_range": {"a": {"min": 0, "max": 9}}}},
            {"args": {"numeric_range": {"a": {"max": 5}}}},
            False,
        ),
        ({"args": {"numeric_range": {"a": {"min": 0}}}}, {"args": {"key_in": {"a": [1, 2]}}}, True),
        ({"args": {"numeric_range": {"a": {"min": 0}}}}, {"args": {"key_in": {"a": [1, "2"]}}}, False),
        ({"args": {"numeric_range": {"a": {"min": 0}}}}, {"args": {"key_equals": {"a": True}}}, False),
    ],
)
def test_covering_matches(wide: dict[str, Any], narrow: dict[str, Any], covers: bool) -> None:
    assert match_covers(wide, narrow) is covers


values = st.sampled_from([0, 1, 2, 3, True, False, "1", 1.5])
ranges = st.fixed_dictionaries({}, optional={"min": st.integers(0, 3), "max": st.integers(0, 3)})
predicates = st.fixed_dictionaries(
    {},
    optional={
        "has_keys": st.lists(st.sampled_from("ab"), max_size=2),
        "key_equals": st.dictionaries(st.sampled_from("ab"), values, max_size=2),
        "key_in": st.dictionaries(st.sampled_from("ab"), st.lists(values, min_size=1, max_size=3), max_size=2),
        "numeric_range": st.dictionaries(st.sampled_from("ab"), ranges, max_size=2),
    },
)


@given(wide=predicates, narrow=predicates, args=st.dictionaries(st.sampled_from("ab"), values, max_size=2))
@settings(max_examples=1500, deadline=None, derandomize=True)
def test_what_covering_predicates_say_holds_for_every_call(
    wide: dict[str, Any], narrow: dict[str, Any], args: dict[str, Any]
) -> None:
    if match_covers({"args": wide}, {"args": narrow}) and ArgsMatch(narrow)(args):
        assert ArgsMatch(wide)(args)


def test_disjoint_names_do_not_overlap() -> None:
    assert not may_overlap(tools("git_*"), tools("hg_*"))
    assert not may_overlap(tools("*_read"), tools("*_write"))
    assert not may_overlap(tools("abc"), tools("ab?d"))
    assert may_overlap(tools("a*"), tools("*b"))
    assert may_overlap(tools("a*"), {"tool_name": {"regex": ["z"]}})
    assert may_overlap(tools("a"), {})


@pytest.mark.parametrize("pattern", ["^a+$", "(?i)x", r"\bword\b", "(?P<n>a)", "[[:alpha:]]", r"\p{Greek}", "a{2,3}?"])
def test_linear_time_syntax_is_accepted(pattern: str) -> None:
    assert regex_fault(pattern) is None
