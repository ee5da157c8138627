"""Wider, narrower, disjoint: always on the safe side, checked against the engine's own matcher."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from subluminal.core.engine.matchers import ArgsMatch
from subluminal.core.engine.names import glob_pattern
from subluminal.host.places import ThisMachine
from subluminal.policy.lint.cover import match_covers, may_overlap
from subluminal.policy.lint.patterns import compiled_regex, glob_covers, names_overlap, normal_glob

SEED = 20260131


def glob(rng: random.Random) -> str:
    return "".join(rng.choice("aab**?[]!-") for _ in range(rng.randrange(6)))


def name(rng: random.Random) -> str:
    return "".join(rng.choice("aab-[]!") for _ in range(rng.randrange(5)))


def test_a_normal_form_matches_the_same_names() -> None:
    rng = random.Random(SEED)
    for _ in range(5_000):
        pattern = glob(rng)
        normal = normal_glob(pattern)
        assert normal_glob(normal) == normal
        for text in (name(rng), name(rng)):
            assert glob_pattern(normal).test(text) == glob_pattern(pattern).test(text), (pattern, text)


def test_what_a_glob_covers_it_matches() -> None:
    rng = random.Random(SEED)
    proved = 0
    for _ in range(20_000):
        wide, narrow = normal_glob(glob(rng)), normal_glob(glob(rng))
        if glob_covers(wide, narrow):
            for text in [name(rng) for _ in range(5)]:
                if glob_pattern(narrow).test(text):
                    proved += 1
                    assert glob_pattern(wide).test(text), (wide, narrow, text)
    assert proved > 500, "the generator must reach the claim"


def test_globs_that_share_a_name_overlap() -> None:
    rng = random.Random(SEED)
    proved = 0
    for _ in range(20_000):
        a, b, text = glob(rng), glob(rng), name(rng)
        if glob_pattern(a).test(text) and glob_pattern(b).test(text):
            proved += 1
            assert names_overlap({"glob": [a]}, {"glob": [b]}), (a, b, text)
    assert proved > 200


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


VALUES = [0, 1, 2, 3, True, False, "1", 1.5]
SPELLINGS: list[Any] = [*VALUES, "true", "no", "01", " 2", None, "", [], [1], {}, 2**53 + 1]


def predicates(rng: random.Random) -> dict[str, Any]:
    found: dict[str, Any] = {}
    key = rng.choice("ab")
    for _ in range(rng.randrange(3)):
        kind = rng.choice(["has_keys", "key_equals", "key_in", "numeric_range"])
        if kind == "has_keys":
            found[kind] = [key]
        elif kind == "key_equals":
            found[kind] = {key: rng.choice(VALUES)}
        elif kind == "key_in":
            found[kind] = {key: [rng.choice(VALUES) for _ in range(rng.randrange(1, 5))]}
        else:
            bounds = {"min": rng.randrange(4), "max": rng.randrange(4)}
            found[kind] = {key: dict(rng.sample(sorted(bounds.items()), rng.randrange(1, 3)))}
    return found


@pytest.mark.parametrize("generous", [False, True])
def test_what_covering_predicates_say_holds_for_every_call(generous: bool) -> None:
    rng = random.Random(SEED)
    proved = 0
    for _ in range(20_000):
        wide, narrow = predicates(rng), predicates(rng)
        if wide and match_covers({"args": wide}, {"args": narrow}):
            for args in [{key: rng.choice(SPELLINGS) for key in rng.sample("ab", rng.randrange(3))} for _ in range(9)]:
                if ArgsMatch(narrow, generous)(args):
                    proved += 1
                    assert ArgsMatch(wide, generous)(args), (wide, narrow, args)
    assert proved > 500


def test_disjoint_names_do_not_overlap() -> None:
    assert not may_overlap(tools("git_*"), tools("hg_*"))
    assert not may_overlap(tools("*_read"), tools("*_write"))
    assert not may_overlap(tools("abc"), tools("ab?d"))
    assert may_overlap(tools("a*"), tools("*b"))
    assert may_overlap(tools("a*"), {"tool_name": {"regex": ["z"]}})
    assert may_overlap(tools("a"), {})


@pytest.mark.parametrize("pattern", ["^a+$", "(?i)x", r"\bword\b", "(?P<n>a)", "[[:alpha:]]", r"\p{Greek}", "a{2,3}?"])
def test_linear_time_syntax_is_accepted(pattern: str) -> None:
    assert compiled_regex(pattern).fault is None


def test_a_link_of_the_repository_may_lead_out_of_it(tmp_path: Path) -> None:
    """A change that puts `sub` for `.` may bring the link: that it narrows an exception is not certain."""
    (tmp_path / "repo" / ".git").mkdir(parents=True)
    (tmp_path / "repo" / "sub").symlink_to(tmp_path)
    places = ThisMachine({}, str(tmp_path / "repo"))
    inside, linked = ({"path_within": {"path": [entry]}} for entry in (".", "sub"))
    outside = {"path": str(tmp_path / "x")}
    assert not ArgsMatch(inside, False, places)(outside) and ArgsMatch(linked, False, places)(outside)
    assert not match_covers({"args": inside}, {"args": linked})
    assert match_covers({"args": inside}, {"args": {"path_within": {"path": ["./"]}}})
    assert match_covers({"args": {"path_within": {"path": ["/"]}}}, {"args": linked})
    assert match_covers(*({"args": {"path_within": {"path": [entry]}}} for entry in ("~/a", "~/a/b")))


def test_an_address_is_met_by_more_than_its_digits() -> None:
    digits, address = ({"host_in": {"url": [pattern]}} for pattern in ("*.3.4", "1.2.3.4"))
    translated = {"url": "http://[64:ff9b::1.2.3.4]/"}
    assert ArgsMatch(address, True)(translated) and not ArgsMatch(digits, True)(translated)
    assert not match_covers({"args": digits}, {"args": address}, generous=True)
