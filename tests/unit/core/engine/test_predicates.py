"""The predicates of `match.args`: what stops a call matches any value in any reading, what lets it through each one."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest
import re2
from hypothesis import given
from hypothesis import strategies as st

from harness.effort import growth
from subluminal.contracts.globs import glob_test
from subluminal.contracts.vocabulary import UNJUDGED_ARGS
from subluminal.core.engine import texts
from subluminal.core.engine.faults import Unavailable
from subluminal.core.engine.matchers import ArgsMatch


def stops(args: dict[str, Any], **spec: Any) -> bool:
    return ArgsMatch(spec, True)(args)


def lets_through(args: dict[str, Any], **spec: Any) -> bool:
    return ArgsMatch(spec, False)(args)


# -- text ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "patterns", "matching", "missing"),
    [
        ("key_glob", ["/etc/*"], ["/etc/passwd", "/etc/a/b", "/etc/"], ["/etc", "x/etc/a", "/ETC/a", ""]),
        ("key_glob", ["*.py", "*.pyi"], ["a.py", "a/b.pyi"], ["a.pyc", "py"]),
        ("key_glob", ["a?c", "[xy]"], ["abc", "x"], ["ac", "xy"]),
        ("key_regex", ["secret"], ["a secret b", "secret"], ["SECRET", ""]),
        ("key_regex", ["^/etc/", "(?i)drop +table"], ["/etc/x", "x; DROP  TABLE y"], ["a/etc/x", "droptable"]),
        ("key_regex", ["^[0-9]+$"], ["42"], ["42\n", "a42", ""]),
        ("key_contains", ["DROP ", "rm -rf"], ["x DROP y", "rm -rf"], ["drop ", "rm - rf", ""]),
    ],
)
def test_a_text_matches_any_of_the_patterns(
    name: str, patterns: list[str], matching: list[str], missing: list[str]
) -> None:
    for judged in (stops, lets_through):
        assert [text for text in matching if not judged({"k": text}, **{name: {"k": patterns}})] == []
        assert [text for text in missing if judged({"k": text}, **{name: {"k": patterns}})] == []
        assert not judged({"other": matching[0]}, **{name: {"k": patterns}})
    assert lets_through({"k": matching}, **{name: {"k": patterns}})
    assert stops({"k": [*missing, matching[0]]}, **{name: {"k": patterns}})
    assert not lets_through({"k": [*matching, missing[0]]}, **{name: {"k": patterns}})
    assert not lets_through({"k": []}, **{name: {"k": patterns}})
    assert not stops({"k": []}, **{name: {"k": patterns}})


@pytest.mark.parametrize(
    ("value", "text"), [(42, "42"), (True, "true"), (True, "True"), (None, "null"), (1.5, "1.5"), ([4, 2], "4,2")]
)
def test_what_is_no_text_stops_by_what_a_server_would_write_of_it(value: Any, text: str) -> None:
    spec = {"key_glob": {"k": [text]}}
    assert stops({"k": value}, **spec)
    assert not lets_through({"k": value}, **spec)


@pytest.mark.parametrize("name", ["key_glob", "key_contains"])
def test_a_list_in_a_text_is_a_text_and_a_list(name: str) -> None:
    """The Python SDK gives a tool that asks for a list the list: an allow must have seen it, and so must a deny."""
    held = r'["a.txt", "/etc/\u0070asswd"]'
    assert stops({"k": held}, **{name: {"k": ["/etc/passwd"]}})
    assert not lets_through({"k": '["/etc/passwd"]'}, key_glob={"k": ["[[]*"]})
    assert lets_through({"k": '["x"]'}, key_contains={"k": ["x"]})


@given(st.text("ab*?[]!-", max_size=6), st.text("ab[-!]", max_size=6))
def test_a_glob_on_a_value_is_the_glob_on_a_name(glob: str, text: str) -> None:
    assert lets_through({"k": text}, key_glob={"k": [glob]}) in (glob_test(glob)(text), False)
    assert stops({"k": text}, key_glob={"k": [glob]}) or not glob_test(glob)(text)


def test_a_regex_means_what_re2_says() -> None:
    for regex in ("^a|b$", "a{2,3}", r"\bgit\b", "(?s)a.b", "^a.*$"):
        for text in ("a", "xb", "aa", "a git b", "a\nb", "", "é", "a\udc80"):
            wanted = re2.search(regex, text.encode("utf-8", "replace").decode()) is not None
            assert lets_through({"k": text}, key_regex={"k": [regex]}) is wanted, (regex, text)


def test_however_many_regexes_there_are_few_are_kept_compiled() -> None:
    match = ArgsMatch({"key_regex": {"k": [f"x{number}[a-z]+y" for number in range(1_000)]}}, True)
    assert not match({"k": "z" * 1_000})
    assert len(texts._compiled) <= texts.MAX_COMPILED
    assert match({"k": "x999abcy"})
    assert match({"k": "x0abcy"})


@pytest.mark.parametrize(
    "spec",
    [
        {"key_glob": {"k": ["*a*a*a*a*b", "?*a?*a[ab]*c"]}},
        {"key_regex": {"k": ["(a+)+b", "(a|aa)*c", "a.{0,50}b"]}},
        {"key_contains": {"k": ["a" * 50 + "b"]}},
    ],
)
def test_a_hostile_text_costs_at_most_linear_time(spec: dict[str, Any]) -> None:
    match = ArgsMatch(spec, True)
    assert growth(lambda size: match({"k": "a" * size}), 10_000, 100_000, 4) < 4


# -- presence -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "args", "has", "has_strictly", "missing", "missing_strictly"),
    [
        ("k", {"k": 1}, True, True, False, False),
        ("k", {}, False, False, True, True),
        ("k", {"k": None}, True, True, True, False),
        ("a.b", {"a": {"b": 1}}, True, True, False, False),
        ("a.b", {"a": {}}, False, False, True, True),
        ("a.b", {"a.b": 1}, True, True, False, False),
        ("a.b", {"a": '{"b": 1}'}, True, False, True, False),
        ("f[].p", {"f": [{"p": 1}, {"p": 2}]}, True, True, False, False),
        ("f[].p", {"f": [{"p": 1}, {}]}, True, False, True, False),
        ("f[].p", {"f": [{}, {}]}, False, False, True, True),
        ("f[].p", {"f": []}, False, False, True, True),
        ("f[].p", {"f": {"p": 1}}, True, False, True, False),
        ("f[].p", {"f": [{"p": None}]}, True, True, True, False),
    ],
)
def test_a_key_is_there_or_missing(
    key: str, args: dict[str, Any], has: bool, has_strictly: bool, missing: bool, missing_strictly: bool
) -> None:
    assert stops(args, has_keys=[key]) is has
    assert lets_through(args, has_keys=[key]) is has_strictly
    assert stops(args, missing_keys=[key]) is missing
    assert lets_through(args, missing_keys=[key]) is missing_strictly


def test_a_key_that_may_stand_in_an_element_not_looked_at_cannot_be_judged() -> None:
    many: list[Any] = [{}] * 1_000
    for spec in ({"has_keys": ["f[].p"]}, {"missing_keys": ["f[].p"]}):
        generous = spec.get("has_keys") is not None
        with pytest.raises(Unavailable):
            ArgsMatch(spec, generous)({"f": [*many, {"p": 1}]})
        assert ArgsMatch(spec, generous)({"f": many}) is not generous
    assert stops({"f": [{"p": 1}, *many]}, has_keys=["f[].p"])
    assert not lets_through({"f": [*many, {"p": 1}]}, has_keys=["f[].p"])


# -- paths, hosts, commands: how they are asked -----------------------------------------------------------------


class Asked:
    """A stand-in for the three: remembers how it was made, and tells "?" from "yes" from all else."""

    made: list[tuple[Any, ...]]

    def __init__(self, *given_: Any) -> None:
        self.made.append(given_)

    def __call__(self, value: Any) -> bool:
        if value == "?":
            raise Unavailable(UNJUDGED_ARGS, "it is a question")
        return value in ("yes", ["yes", "no"])

    def reading(self, value: Any) -> str:
        return f"is {value}"


@pytest.fixture(params=[("path_within", "paths", "PathWithin"), ("host_in", "hosts", "HostIn")])
def resolved(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    field, module, name = request.param
    _stand_in(monkeypatch, module, name)
    return str(field)


def _stand_in(monkeypatch: pytest.MonkeyPatch, module: str, name: str) -> None:
    made = ModuleType(module)
    Asked.made = []
    setattr(made, name, Asked)
    monkeypatch.setitem(sys.modules, f"subluminal.core.engine.{module}", made)


@pytest.mark.parametrize(
    ("value", "stopped", "let_through"),
    [
        ("yes", True, True),
        ("no", False, False),
        ("?", None, None),
        (["yes", "no"], True, False),
        (["yes", "yes"], True, True),
        (["?", "yes"], True, None),
        (["?", "no"], None, False),
        ([["yes"]], True, False),
        ([], False, False),
        ('["no", "yes"]', True, False),
    ],
)
def test_each_value_is_asked_alone_and_what_is_certain_decides(
    resolved: str, value: Any, stopped: bool | None, let_through: bool | None
) -> None:
    for generous, expected in ((True, stopped), (False, let_through)):
        match = ArgsMatch({resolved: {"k": ["entry"]}}, generous, None)
        if expected is None:
            with pytest.raises(Unavailable, match="UNJUDGED_ARGS"):
                match({"k": value})
        else:
            assert match({"k": value}) is expected
    assert all(made[:2] == (["entry"], generous) for made, generous in zip(Asked.made, (True, False), strict=True))


def test_a_command_is_given_lists_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    _stand_in(monkeypatch, "commands", "CommandOf")
    spec = {"command": {"k": {"programs": ["rm"]}}}
    assert stops({"k": ["yes", "no"]}, **spec)
    assert lets_through({"k": ["yes", "no"]}, **spec)
    assert not stops({"k": ["no", "yes"]}, **spec)
    assert stops({"k": '["yes", "no"]'}, **spec)
    assert stops({"lines": ["no", "yes"]}, command={"lines[]": {"programs": ["rm"]}})
    assert Asked.made[0] == ({"programs": ["rm"]}, True)


def test_places_are_handed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    _stand_in(monkeypatch, "paths", "PathWithin")
    places: Any = object()
    ArgsMatch({"path_within": {"k": ["."]}}, True, places)
    assert Asked.made == [(["."], True, places)]


# -- several together ---------------------------------------------------------------------------------------------


def test_a_predicate_that_is_certainly_false_decides_before_one_that_cannot_be_judged() -> None:
    many = {"f": [0] * 2_000, "mode": "x"}
    for others in ({"key_contains": {"mode": ["y"]}}, {"key_equals": {"mode": "y"}}, {"missing_keys": ["mode"]}):
        assert not stops(many, key_glob={"f": ["a*"]}, **others)
    with pytest.raises(Unavailable) as raised:
        stops(many, key_glob={"f": ["a*"]}, key_equals={"mode": "x"})
    assert raised.value.why == "f has more than 1,000 elements"


def test_policies_that_use_nothing_new_import_nothing_new() -> None:
    import subprocess

    script = (
        "import sys; from subluminal.core.engine.bundle import Engine;"
        "from subluminal.contracts.identity import Identity;"
        "args = {'has_keys': ['a'], 'key_equals': {'b': 1}, 'key_in': {'c': ['x']}, 'numeric_range': {'d': {}}};"
        "rule = {'rule_id': 'r', 'kind': 'deny', 'match': {'args': args}, 'effect': {'action': 'BLOCK'}};"
        "Engine({'policy_id': 'p', 'version': '1', 'mode': 'observe', 'rules': [rule]}, Identity('r'));"
        "new = ('predicates', 'texts', 'conditions', 'certainty', 'paths', 'hosts', 'commands');"
        "sys.exit(any(f'subluminal.core.engine.{name}' in sys.modules for name in new))"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
