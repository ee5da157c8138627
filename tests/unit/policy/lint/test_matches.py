"""What the linter says of matches: one bundle, one finding."""

from __future__ import annotations

import json
from typing import Any

import pytest

from harness.effort import calls_made
from harness.engine import rule, tools
from subluminal.core.engine.where import segments
from subluminal.policy.lint.findings import Finding
from subluminal.policy.lint.keys import escaped, is_dotted, key_fault
from subluminal.policy.lint.load import load_bundle
from subluminal.policy.lint.names import MAX_REGEX_PROGRAM, MAX_REGEXES


def findings(*rules: dict[str, Any], advise: bool = True) -> list[Finding]:
    bundle = {
        "policy_id": "p",
        "version": "1",
        "mode": "guardrails",
        "defaults": {"decision_on_error": "BLOCK"},
        "selectors": {},
        "rules": list(rules),
    }
    return load_bundle(json.dumps(bundle).encode(), "p.json", advise=advise).findings


def found(kind: str, args: dict[str, Any], **members: Any) -> set[tuple[str, str]]:
    return {(f.level, f.code) for f in findings({**rule("r", kind, {"args": args}), **members}) if f.level != "note"}


@pytest.mark.parametrize(
    ("args", "level", "code", "words"),
    [
        ({"has_keys": ["a.b.c.d.e.f.g.h.i"]}, "error", "bad-key", "has 9 segments; at most 8 are followed"),
        ({"has_keys": ["a..b"]}, "warning", "bad-key", "has an empty segment"),
        ({"key_glob": {"files[0].path": ["*"]}}, "warning", "bad-key", "has an index"),
        ({"has_keys": ["[]"]}, "warning", "bad-key", "has [] where no list can be"),
        ({"key_equals": {"C:\\dir": "x"}}, "warning", "bad-key", "escapes nothing"),
        ({"key_regex": {"a": ["("]}}, "error", "bad-regex", "is not a valid RE2 pattern"),
        ({"key_regex": {"a": ["(?=x)"]}}, "error", "bad-regex", "needs backtracking"),
        ({"key_glob": {"a": ["[z-a]"]}}, "error", "bad-glob", "empty or too wide"),
        ({"key_glob": {"a": ["x" * 600]}}, "error", "bad-glob", "has 600 characters"),
        ({"path_within": {"p": [" "]}}, "error", "bad-path", "no directory"),
        ({"path_within": {"p": ["~/work/*.env"]}}, "error", "bad-path", "is a pattern"),
        ({"path_within": {"p": ["file:///etc"]}}, "error", "bad-path", "is a URL"),
        ({"path_within": {"p": ["src/../../x"]}}, "warning", "bad-path", "leads out of"),
        ({"path_within": {"p": ["/"]}}, "warning", "matches-all", "every path lies within /"),
        ({"host_in": {"u": ["https://example.com/x"]}}, "error", "bad-host", "is a URL"),
        ({"host_in": {"u": ["example.com:8080"]}}, "error", "bad-host", "has a port"),
        ({"host_in": {"u": ["Example.com"]}}, "error", "bad-host", "capital letters"),
        ({"host_in": {"u": ["*"]}}, "warning", "matches-all", "every host"),
        ({"command": {"c": {"programs": ["rm -rf"]}}}, "error", "bad-program", 'such as "rm"'),
        ({"command": {"c": {"programs": ["/bin/rm"]}}}, "warning", "bad-program", '"rm" does not match it'),
        ({"command": {"c": {"programs": ["*"]}}}, "warning", "matches-all", "every program"),
        ({"bytes": {}}, "error", "empty-range", "bytes has neither min nor max"),
        ({"bytes": {"min": 9, "max": 1}}, "error", "empty-range", "bytes has min 9 above max 1"),
        ({"bytes": {"min": 0}}, "warning", "matches-all", "every size"),
        ({"missing_keys": ["a"], "has_keys": ["a"]}, "warning", "never-matches", "only null"),
        ({"key_equals": {"a": "x"}, "key_glob": {"a": ["y*"]}}, "warning", "never-matches", "no single value"),
        ({"key_in": {"a": ["x", "y"]}, "key_contains": {"a": ["z"]}}, "warning", "never-matches", "key_in.a and"),
        ({"key_equals": {"a": 1}, "numeric_range": {"a": {"min": 5}}}, "warning", "never-matches", "numeric_range.a"),
    ],
)
@pytest.mark.parametrize("place", ["match", "any_of"])
def test_a_predicate_that_cannot_mean_what_it_says(
    args: dict[str, Any], level: str, code: str, words: str, place: str
) -> None:
    match = {"args": args} if place == "match" else {"any_of": [{"args": args}, tools("x")]}
    told = [f for f in findings(rule("r", "deny", match)) if f.level != "note"]
    # An alternative that asks for nothing is said to match everything as well.
    told = [f for f in told if f.code == code or f.code != "matches-all"]
    assert [(f.level, f.code) for f in told] == [(level, code)]
    assert words in told[0].message
    assert told[0].fix and told[0].rule_id == "r"


@pytest.mark.parametrize(
    "args",
    [
        {"has_keys": ["a.b", "c[].d", "e[]", r"f\.g", r"h\[0]", ""]},
        {"key_glob": {"a": ["*.env"]}, "key_contains": {"a": ["x"]}},
        {"path_within": {"p": [".", "~", "~/work", "/etc", "src/../lib"]}},
        {"host_in": {"u": ["*.example.com", "private", "loopback", "10.0.0.0/8", "[::1]", "::1"]}},
        {"command": {"c": {"programs": ["rm", "git-*", "./run.sh"]}}},
        {"bytes": {"max": 10}},
        {"missing_keys": ["a"], "has_keys": ["b"]},
        {"key_equals": {"a": "x"}, "key_glob": {"a": ["x*"]}},
        {"key_equals": {"a": True}, "numeric_range": {"a": {"min": 1}}},
    ],
)
def test_what_is_in_order_is_not_talked_about(args: dict[str, Any]) -> None:
    assert found("deny", args) == set()


def test_the_right_spelling_stands_in_the_fix() -> None:
    def fix(args: dict[str, Any]) -> str:
        return next(f.fix for f in findings(rule("r", "deny", {"args": args})) if f.level != "note")

    assert fix({"host_in": {"u": ["https://me@Example.com:80/x"]}}) == 'write "example.com"'
    assert fix({"command": {"c": {"programs": ["/bin/rm -rf /"]}}}).startswith('write "rm"')
    assert fix({"path_within": {"p": ["~/work/**"]}}).startswith('write "~/work"')
    assert fix({"has_keys": ["files[0].path"]}).startswith("write files[].path")


def test_a_path_of_a_program_is_right_where_it_lets_a_call_through() -> None:
    assert found("allow", {"command": {"c": {"programs": ["/usr/bin/git"]}}}) == set()
    excepted = {"unless": {"args": {"command": {"c": {"programs": ["/usr/bin/git"]}}}}}
    assert found("deny", {"has_keys": ["c"]}, **excepted) == set()


def test_a_key_that_is_missing_and_asked_for_never_matches_strictly() -> None:
    args = {"missing_keys": ["a"], "key_equals": {"a": "x"}}
    assert found("allow", args) == {("error", "never-matches")}
    assert found("deny", {"has_keys": ["b"]}, unless={"args": args}) == {("error", "never-matches")}


# -- unless and any_of --------------------------------------------------------------------------------------------


def of_unless(kind: str, match: dict[str, Any], unless: dict[str, Any]) -> set[tuple[str, str]]:
    told = findings({**rule("r", kind, match), "unless": unless})
    return {(f.level, f.code) for f in told if f.level != "note"}


FORCED = {"args": {"key_equals": {"force": True}}}


@pytest.mark.parametrize(
    ("kind", "match", "unless", "expected"),
    [
        ("deny", tools("a*"), {}, {("error", "never-matches")}),
        ("allow", tools("a*"), {}, {("error", "never-matches")}),
        ("deny", tools("a*"), {"args": {}}, {("error", "never-matches")}),
        ("deny", tools("ab*"), tools("a*"), {("error", "never-matches")}),
        ("allow", FORCED, FORCED, {("error", "never-matches")}),
        ("deny", FORCED, FORCED, {("warning", "never-matches")}),
        ("deny", tools("a*"), {"any_of": [tools("x"), tools("a*")]}, {("error", "never-matches")}),
        ("deny", tools("a*"), tools("b*"), {("warning", "no-effect")}),
        ("deny", FORCED, {"args": {"missing_keys": ["force"]}}, {("warning", "no-effect")}),
        ("deny", tools("a*"), tools("ab*"), set()),
        ("deny", FORCED, {"args": {"path_within": {"p": ["."]}}}, set()),
        ("deny", {"time": {"utc_hours": [1, 2]}}, {"time": {"utc_hours": ["3-5"]}}, {("warning", "no-effect")}),
    ],
)
def test_an_exception_that_takes_all_or_nothing(
    kind: str, match: dict[str, Any], unless: dict[str, Any], expected: set[tuple[str, str]]
) -> None:
    assert of_unless(kind, match, unless) == expected


def test_an_alternative_that_matches_everything_makes_the_others_idle() -> None:
    for idle in ({}, tools("*")):
        (told,) = findings(rule("r", "deny", {"any_of": [tools("x"), idle]}))
        assert (told.level, told.code) == ("warning", "matches-all")
        assert told.message == "any_of[1] matches every call, so the other alternatives do nothing"


def test_classes_are_looked_for_in_alternatives_and_exceptions() -> None:
    match = {"any_of": [{"risk_class": ["wrte_like"]}]}
    told = findings({**rule("r", "deny", match), "unless": {"risk_class": ["saef"]}})
    assert [f.code for f in told] == ["unknown-risk-class"] * 2


# -- bounds -------------------------------------------------------------------------------------------------------


def test_patterns_of_texts_are_counted_with_those_of_names() -> None:
    many = {"args": {"key_regex": {"a": [f"x{i}" for i in range(MAX_REGEXES)]}}}
    assert findings(rule("r", "deny", many)) == []
    (told,) = findings({**rule("r", "deny", many), "unless": {"tool_name": {"regex": ["one more"]}}})
    assert (told.level, told.code) == ("error", "too-many-patterns")


def test_regexes_of_texts_share_the_bound_of_their_programs() -> None:
    args = {"key_regex": {f"k{i}": [rf"\pL{{1,8}}{i}"] for i in range(20)}}
    (told,) = findings(rule("r", "deny", {"args": args}))
    assert f"above {MAX_REGEX_PROGRAM:,} instructions" in told.message


def test_large_matches_are_not_compared_with_themselves() -> None:
    wide = {
        "args": {"key_in": {"a": [f"v{i}" for i in range(3_000)]}, "key_glob": {"a": [f"*{i}?" for i in range(3_000)]}}
    }
    made = {**rule("r", "deny", wide), "unless": {**wide, "any_of": [tools(f"t{i}") for i in range(1_000)]}}
    assert calls_made(lambda: findings(made)) < 3_000_000


# -- keys and readings --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "count", "dotted"),
    [
        ("a", 1, False),
        ("a.b", 2, True),
        (r"a\.b", 1, False),
        ("a[].b", 2, False),
        (r"a\\.b", 2, True),
        (".a", 1, False),
    ],
)
def test_segments_of_a_key(key: str, count: int, dotted: bool) -> None:
    assert (segments(key), is_dotted(key)) == (count, dotted)


def test_the_escaped_spelling_is_no_path() -> None:
    for key in ("a.b", "a..b", "x[]", ".a"):
        assert segments(escaped(key)) == 1
        assert key_fault(escaped(key)) is None
        assert "[]" not in escaped(key).replace("\\[", "")


def notes(made: dict[str, Any]) -> list[str]:
    return [f"{f.message}; {f.fix}" for f in findings(made) if f.level == "note"]


def test_a_dotted_key_is_noted_once_with_its_escape() -> None:
    args = {"has_keys": ["options.force"], "key_glob": {"options.force": ["x*"]}}
    (note,) = notes(rule("r", "deny", {"args": args}))
    assert "read as a path, and as one key" in note
    assert r"write options\.force" in note


def test_a_list_that_must_match_as_a_whole_is_noted_where_it_lets_a_call_through() -> None:
    files = {"args": {"key_glob": {"files[].path": ["*.md"]}}}
    (note,) = notes(rule("r", "allow", files))
    assert "asks every element" in note
    assert notes(rule("r", "deny", files)) == []
    (note,) = notes({**rule("r", "deny"), "unless": files})
    assert "asks every element" in note


def test_the_unless_of_a_deny_is_noted_to_be_strict() -> None:
    (note,) = notes({**rule("r", "deny"), "unless": FORCED})
    assert 'key_equals.force in the unless of a deny matches true alone: not "true"' in note
    (note,) = notes({**rule("r", "allow"), "unless": FORCED})
    assert "also matches what a server could read so" in note
