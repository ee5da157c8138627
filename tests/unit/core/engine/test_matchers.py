"""Names, arguments and selectors: what matches, exactly and fast."""

from __future__ import annotations

import fnmatch
import subprocess
import sys
from decimal import Decimal
from typing import Any

import pytest
import re2
from hypothesis import given
from hypothesis import strategies as st

from subluminal.contracts.identity import Identity
from subluminal.core.engine import names
from subluminal.core.engine.matchers import args_match, selectors_match
from subluminal.core.engine.names import NameIndex, NameMatch, Pattern, glob_pattern, name_match, regex_patterns

# -- globs ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("glob", "matches", "misses"),
    [
        ("git", ["git"], ["gitx", "xgit", "Git", ""]),
        ("git*", ["git", "git/push", "git\n"], ["Git", "agit"]),
        ("*_delete", ["_delete", "a/b_delete"], ["delete", "x_delete_"]),
        ("a*z", ["az", "a/b/z"], ["a", "z", "za"]),
        ("*mid*", ["mid", "xmidy"], ["md"]),
        ("a*b*c", ["abc", "axxbyyc", "abbc"], ["acb", "ab", "ac"]),
        ("ab*ba", ["abba", "abxba"], ["aba"]),
        ("a?c", ["abc", "a/c"], ["ac", "abbc"]),
        ("[a-c]x", ["ax", "cx"], ["dx", "-x"]),
        ("[!a-c]*", ["dx", "é"], ["ax", ""]),
        ("*[0-9]", ["a1", "7"], ["a", "1a"]),
        ("a?*z", ["abz", "abcz"], ["az"]),
        ("[]x]", ["]", "x"], ["y"]),
        ("a[", ["a["], ["a"]),
        ("*", ["", "x", "a/b"], []),
    ],
)
def test_a_glob_is_a_glob_on_a_name(glob: str, matches: list[str], misses: list[str]) -> None:
    test = glob_pattern(glob).test
    assert [name for name in matches if not test(name)] == []
    assert [name for name in misses if test(name)] == []


@given(st.text("ab*?[]!-", max_size=8), st.text("ab[-!]", max_size=8))
def test_globs_agree_with_fnmatch(glob: str, name: str) -> None:
    ranges = [part for part in glob.split("[")[1:] if "-" in part]
    if ranges or "--" in glob:  # fnmatch rewrites odd ranges in its own ways
        return
    assert glob_pattern(glob).test(name) == fnmatch.fnmatchcase(name, glob)


def test_a_hostile_name_costs_a_glob_little() -> None:
    assert not glob_pattern("*a*a*a*a*a*a*a*b").test("a" * 100_000)


# -- regexes ----------------------------------------------------------------------------------------------------

REGEXES = [
    "^git$",
    "^git",
    "git$",
    "git",
    "^git.*",
    "^git.*$",
    "^(get|list)$",
    "^(?:get|list)$",
    "^(create|update)_",
    "^git_[a-z]+$",
    "^gitx?$",
    "^gitx*",
    "^a|b$",
    "^a\\.b$",
    "^a\\\\b$",
    "a\\$",
    "^\\w+$",
    "(?i)GIT",
    "",
    "^",
    "$",
    "^$",
    ".*",
    "^git{2}$",
    "^(a|b.)$",
    "^git+$",
    "\\bgit\\b",
]
NAMES = [
    "", "git", "gitx", "xgit", "git_push", "gi", "get", "list", "getlist", "create_x", "xcreate_", "a", "b", "ab",
    "a.b", "axb", "a\\b", "a$", "GIT", "git\nx", "git\n", "gitt", "gitgit", "bx", "git push", "é",
]  # fmt: skip


@pytest.mark.parametrize("regex", REGEXES)
def test_a_regex_means_what_re2_says(regex: str) -> None:
    patterns = regex_patterns(regex)
    for name in NAMES:
        wanted = re2.search(regex, name) is not None
        assert any(pattern.test(name) for pattern in patterns) == wanted, name
        for pattern in patterns:
            if wanted and pattern.test(name):
                assert name.startswith(pattern.prefix), "the index would not find it"


@given(st.text("ab^$.*|()\\_?+", max_size=7), st.text("ab_.\n", max_size=5))
def test_any_regex_means_what_re2_says(regex: str, name: str) -> None:
    options = re2.Options()
    options.log_errors = False
    try:
        wanted = re2.compile(regex, options).search(name) is not None
    except re2.error:
        return
    patterns = regex_patterns(regex)
    assert any(pattern.test(name) for pattern in patterns) == wanted
    index = NameIndex([(7, NameMatch([], [regex])), (8, NameMatch([], ["^never[0-9]$", "z[0-9]"]))])
    assert index.find(name) == ([7] if wanted else [])


def test_a_lone_surrogate_in_a_name_is_no_crash() -> None:
    assert not NameMatch([], ["^[a-z]+$"])("\ud800")
    index = NameIndex([(0, NameMatch([], ["[a-z]9"])), (1, NameMatch([], ["[a-z]8"]))])
    assert index.find("a9\ud800") == [0]


def test_simple_patterns_do_not_import_re2() -> None:
    script = (
        "import sys; from subluminal.core.engine.names import NameIndex, NameMatch;"
        "m = NameMatch(['git*', '*x', 'a?b', '[ab]*'], ['^git$', '^(a|b)$', '^x.*', 'mid']);"
        "i = NameIndex([(0, m)]); i.find('git'); i.find('none'); m('q');"
        "sys.exit('re2' in sys.modules or 're' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-S", "-I", "-c", _with_path(script)], check=False).returncode == 0


def _with_path(script: str) -> str:
    import subluminal

    (root,) = subluminal.__path__
    return f"import sys; sys.path.insert(0, {root!r} + '/..'); {script}"


# -- the index --------------------------------------------------------------------------------------------------


@given(
    st.lists(
        st.one_of(
            st.none(),
            st.tuples(
                st.lists(st.text("ab*?", max_size=4), max_size=2),
                st.lists(st.sampled_from(["^a", "b$", "^a[ab]", "[ab]b", "^(a|b)$"]), max_size=2),
            ),
        ),
        max_size=12,
    ),
    st.text("abc", max_size=4),
)
def test_the_index_finds_exactly_the_matching_rules_in_order(specs: list[Any], name: str) -> None:
    matches = [None if spec is None else NameMatch(*spec) for spec in specs]
    index = NameIndex(enumerate(matches))
    assert index.find(name) == [i for i, match in enumerate(matches) if match is None or match(name)]


def test_a_new_name_tries_few_of_many_rules() -> None:
    tried: list[str] = []

    def counting(pattern: Pattern) -> Pattern:
        test = pattern.test
        pattern.test = lambda name: tried.append(name) is None and test(name)
        return pattern

    rules = []
    for number in range(3_000):
        match = NameMatch([f"tool{number}", f"ns{number}_*"], [f"^svc{number}[a-z]+$", f"[xy]{number}$"])
        match.patterns = [counting(pattern) for pattern in match.patterns]
        rules.append((number, match))
    index = NameIndex(rules)
    assert index.find("ns77_x") == [77]
    assert index.find("tool5") == [5]
    assert index.find("unknown") == []
    assert index.find("ax123") == [123]
    assert len(tried) < 20


def test_a_regex_set_that_runs_out_of_memory_loses_no_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names, "_SET_MEMORY", 20_000)
    index = NameIndex((n, NameMatch([], [f"[xy]{n}.{{20}}z$", f"[ab]{n}$"])) for n in range(300))
    assert index.find("a299") == [299]
    assert index.find("q" * 50 + "x7" + "-" * 20 + "z") == [7]


def test_a_matcher_without_patterns_matches_nothing_and_no_matcher_everything() -> None:
    assert name_match(None) is None
    assert name_match({"glob": ["*"]}) is None
    empty = name_match({})
    assert empty is not None
    assert not empty("x")


# -- arguments --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wanted", "given_", "equal"),
    [
        (1, 1, True),
        (1, Decimal("1.0"), True),
        (1, 1.0, True),
        (1, True, False),
        (0, False, False),
        (True, True, True),
        (True, 1, False),
        (0.1, Decimal("0.1"), True),
        (0.1, 0.1, True),
        (0.1, Decimal("0.1000000000000000055511151231257827"), False),
        (2**60 + 1, 2**60, False),
        (2**60 + 1, float(2**60), False),
        (10**400, Decimal("1e400"), True),
        ("1", 1, False),
        ("a", "a", True),
        ("a", ["a"], False),
        ("a", {"a": 1}, False),
        (1, None, False),
        (1, Decimal("NaN"), False),
    ],
)
def test_equality_is_exact(wanted: Any, given_: Any, equal: bool) -> None:
    for spec in ({"key_equals": {"k": wanted}}, {"key_in": {"k": [wanted, "other"]}}):
        match = args_match(spec, generous=False)
        assert match is not None
        assert match({"k": given_}) is equal
        assert not match({})


@pytest.mark.parametrize(
    ("limits", "inside", "outside"),
    [
        ({"min": 1}, [1, 2, Decimal("1.0"), 10**400, Decimal("1e400")], [0, Decimal("0.999999999999999999999"), True]),
        ({"max": 0.1}, [Decimal("0.1"), 0.1, -1], [Decimal("0.10000000000000001")]),
        ({"min": "0.1", "max": "0.3"}, [0.2, 0.3], [0.30000000000000004, "0.2", None, [], {}, False]),
        ({"min": 0}, [0], [float("nan"), Decimal("NaN"), "5"]),
        ({}, [5], ["5"]),
    ],
)
def test_ranges_are_exact_and_only_for_numbers(limits: dict[str, Any], inside: list[Any], outside: list[Any]) -> None:
    match = args_match({"numeric_range": {"k": limits}}, generous=False)
    assert match is not None
    assert [value for value in inside if not match({"k": value})] == []
    assert [value for value in outside if match({"k": value})] == []
    assert not match({})


def test_all_predicates_must_hold() -> None:
    match = args_match({"has_keys": ["a"], "key_equals": {"b": 1}, "key_in": {"c": [1, 2]}}, generous=False)
    assert match is not None
    assert match({"a": None, "b": 1, "c": 2})
    assert not match({"b": 1, "c": 2})
    assert not match({"a": 1, "b": 2, "c": 2})
    assert not match({"a": 1, "b": 1, "c": 3})


def test_no_predicate_is_no_constraint() -> None:
    assert args_match(None, generous=True) is None
    assert args_match({}, generous=True) is None
    assert args_match({"has_keys": []}, generous=True) is None


# -- selectors --------------------------------------------------------------------------------------------------

IDENTITY = Identity("r", "bot", "codex", "ci", workload={"repo": "r1", "labels": {"team": "x", "tier": "1"}})


@pytest.mark.parametrize(
    ("selectors", "applies"),
    [
        ({}, True),
        ({"env": ["dev", "ci"]}, True),
        ({"env": ["dev"]}, False),
        ({"env": ["ci"], "client": ["claude"]}, False),
        ({"agent_id": ["bot"], "client": ["codex"]}, True),
        ({"workload": {"repo": ["r1", "r2"]}}, True),
        ({"workload": {"repo": ["r2"]}}, False),
        ({"workload": {"namespace": ["n"]}}, False),
        ({"workload": {"labels": {"team": "x"}}}, True),
        ({"workload": {"labels": {"team": "x", "tier": "2"}}}, False),
        ({"workload": {"labels": {"missing": "x"}}}, False),
        ({"env": []}, True),
    ],
)
def test_selectors_are_or_within_and_between_fields(selectors: dict[str, Any], applies: bool) -> None:
    assert selectors_match(selectors, IDENTITY) is applies


def test_an_unknown_workload_matches_no_selector_on_it() -> None:
    assert not selectors_match({"workload": {"repo": ["r1"]}}, Identity("r"))
    assert selectors_match({"workload": {}}, Identity("r"))
