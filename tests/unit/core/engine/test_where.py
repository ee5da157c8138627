"""Keys as paths: how they are read, what they find, and that what an agent sends cannot make it costly."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.effort import cpu_ratio, growth
from subluminal.core.engine import where
from subluminal.core.engine.faults import Unavailable
from subluminal.core.engine.matchers import ArgsMatch, is_plain
from subluminal.core.engine.where import EACH, MAX_ELEMENTS, Where, held_in, parse_path, segments, spread


@pytest.mark.parametrize(
    ("key", "steps"),
    [
        ("path", ["path"]),
        ("", [""]),
        ("options.force", ["options", "force"]),
        ("files[].path", ["files", EACH, "path"]),
        ("files[]", ["files", EACH]),
        ("rows[][].id", ["rows", EACH, EACH, "id"]),
        (r"a\.b", ["a.b"]),
        (r"a\.b.c", ["a.b", "c"]),
        (r"a\[].b", ["a[]", "b"]),
        ("a\\\\.b", ["a\\", "b"]),
        (r"a\b", [r"a\b"]),
        ("a\\", ["a\\"]),
        ("a[0]", ["a[0]"]),
        ("a[", ["a["]),
        ("a]", ["a]"]),
        ("a..b", None),
        (".a", None),
        ("a.", None),
        ("[]", None),
        ("[].a", None),
        ("a[]b", None),
        ("a[].", None),
        ("a.[]", None),
    ],
)
def test_a_key_is_a_path(key: str, steps: list[str | None] | None) -> None:
    assert parse_path(key) == steps
    if is_plain(key):
        assert Where(key).plain


def test_the_depth_of_a_key_is_counted_in_names() -> None:
    assert segments("a.b[].c") == 3
    assert segments(r"a\.b") == 1
    assert segments("a..b") == 1
    args: dict[str, Any] = {"a": {"a": {"a": {"a": {"a": {"a": {"a": {"a": 1}}}}}}}}
    eight = ".".join("a" * 8)
    assert found(eight, args) == [1]
    for generous in (True, False):
        with pytest.raises(Unavailable, match="UNJUDGED_ARGS") as raised:
            Where(eight + ".a").locate(args, generous=generous)
        assert "8 levels" in raised.value.why


def found(key: str, args: dict[str, Any], generous: bool = False) -> list[Any]:
    return Where(key).locate(args, generous=generous).values


@pytest.mark.parametrize(
    ("key", "args", "strictly", "generously"),
    [
        ("a.b", {"a": {"b": 1}}, [1], [1]),
        ("a.b", {"a.b": 2}, [2], [2]),
        ("a.b", {"a": {"b": 1}, "a.b": 2}, [1, 2], [1, 2]),
        (r"a\.b", {"a": {"b": 1}, "a.b": 2}, [2], [2]),
        ("a..b", {"a..b": 1, "a": {"": {"b": 2}}}, [1], [1]),
        ("a.b", {"a": [{"b": 1}]}, [], []),
        ("a[].b", {"a": [{"b": 1}, {}, {"b": 2}]}, [1, 2], [1, 2]),
        ("a[].b", {"a": {"b": 1}}, [], [1]),
        ("a[].b", {"a[].b": 1}, [1], [1]),
        ("a[]", {"a": [1, [2]]}, [1, [2]], [1, [2]]),
        ("a[]", {"a": 1}, [], [1]),
        ("a[][]", {"a": [[1, 2], [3], 4]}, [1, 2, 3], [1, 2, 3, 4]),
        ("a[]", {"a": []}, [], []),
        ("a.b", {"a": '{"b": 1}'}, [], [1]),
        ("a[].b", {"a": '[{"b": 1}]'}, [], [1]),
        ("a[]", {"a": "[1, 2]"}, [], ["[1, 2]", 1, 2]),
        ("a.b", {"a": {"b": '{"c": 1}'}}, ['{"c": 1}'], ['{"c": 1}']),
        ("a.b.c", {"a": {"b": '{"c": 1}'}}, [], []),
        ("a", {"a": "[1, 2]"}, ["[1, 2]", [1, 2]], ["[1, 2]", [1, 2]]),
        ("a", {"a": '{"b": 1}'}, ['{"b": 1}'], ['{"b": 1}']),
        ("a", {}, [], []),
        ("a.b", {"a": None}, [], []),
    ],
)
def test_a_path_finds_what_stands_there(key: str, args: Any, strictly: list[Any], generously: list[Any]) -> None:
    assert found(key, args) == strictly
    assert found(key, args, generous=True) == generously


def test_only_the_elements_within_the_bound_are_found() -> None:
    args = {"a": [{"b": number} for number in range(MAX_ELEMENTS + 1)]}
    located = Where("a[].b").locate(args, generous=False)
    assert (len(located.values), located.complete) == (MAX_ELEMENTS, False)
    assert Where("a[].b").locate({"a": args["a"][1:]}, generous=False).complete
    nested = {"a": [[1] * 600, [2] * 600]}
    located = Where("a[][]").locate(nested, generous=False)
    assert (len(located.values) <= MAX_ELEMENTS, located.complete) == (True, False)


def test_an_element_without_the_key_is_told() -> None:
    assert Where("a[].b").locate({"a": [{"b": 1}, {}]}, generous=False).lacking
    assert not Where("a[].b").locate({"a": [{"b": 1}]}, generous=False).lacking
    assert not Where("a.b").locate({"a": {}}, generous=False).lacking


@pytest.mark.parametrize("text", ["[1", "plain", "", "1", '"[1]"', "{a: 1}", "[draft] notes", "]["])
def test_what_is_no_list_or_object_as_json_is_only_a_text(text: str) -> None:
    assert held_in(text) is None


@pytest.mark.parametrize("text", ["[1]", ' \n[1, {"a": 2}]\t', '{"a": 1, "a": 2}', "[NaN]"])
def test_a_text_is_read_as_the_python_sdk_reads_it(text: str) -> None:
    assert repr(held_in(text)) == repr(json.loads(text))


def test_json_in_a_text_that_nests_too_deep_cannot_be_judged() -> None:
    with pytest.raises(Unavailable, match="UNJUDGED_ARGS"):
        held_in("[" * 100_000 + "]" * 100_000)


def test_lists_are_spread_and_strictly_only_once() -> None:
    values = ["a", ["b", ["c", []]], []]
    assert spread(values, generous=False) == (["a", "b", ["c", []]], True)
    assert spread(values, generous=True) == (["a", "b", "c"], True)
    assert spread(values, generous=True, empty=True) == (["a", "b", "c", []], True)
    kept, complete = spread([[[]] * 100_000], generous=True)
    assert (kept, complete) == ([], False)


# -- any and every, beside a model that does it the long way ------------------------------------------------------

NAMES = ["a", "b", "a.b", "a[].b", "a[]"]
LEAVES = st.sampled_from(["x", "y", "xy", 1, 2, None, True, "[1]"])
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=3),
    max_leaves=6,
)
ARGS = st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=3)
KEYS = st.sampled_from(["a", "b", "a.b", "a[].b", "a[]", "a[][]", "a.b[].a", r"a\.b", "a.b.a"])


def reached(value: Any, steps: list[str | None], generous: bool) -> list[Any]:
    if not steps:
        return [value]
    if steps[0] is EACH:
        inside = value if isinstance(value, list) else [value] if generous else []
        return [each for one in inside for each in reached(one, steps[1:], generous)]
    if isinstance(value, dict) and steps[0] in value:
        return reached(value[steps[0]], steps[1:], generous)
    return []


def expected(key: str, args: dict[str, Any], generous: bool) -> list[Any]:
    """The texts of a value at the place: naive, recursive, and unbounded."""
    steps = parse_path(key) or [key]
    values = reached(args, steps, generous)
    top = args.get(steps[0] or "")
    if isinstance(top, str) and top.startswith("[") and (generous or len(steps) == 1):
        values += reached({steps[0]: json.loads(top)}, steps, generous)
    if len(steps) > 1 and key in args:
        values.append(args[key])
    return values


def flat(values: list[Any], generous: bool) -> list[Any]:
    out: list[Any] = []
    for value in values:
        for each in value if isinstance(value, list) else [value]:
            out += flat([each], True) if generous and isinstance(each, list) else [each]
    return out


@given(KEYS, ARGS)
def test_what_is_located_is_what_the_model_finds(key: str, args: dict[str, Any]) -> None:
    for generous in (True, False):
        located = sorted(map(repr, Where(key).locate(args, generous=generous).values))
        assert located == sorted(map(repr, expected(key, args, generous)))


@given(KEYS, ARGS)
def test_any_value_stops_and_every_value_lets_through(key: str, args: dict[str, Any]) -> None:
    texts = flat(expected(key, args, False), False)
    strict = ArgsMatch({"key_contains": {key: ["x"]}}, False)(args)
    assert strict is (bool(texts) and all(isinstance(text, str) and "x" in text for text in texts))
    values = flat(expected(key, args, True), True)
    generous = ArgsMatch({"key_contains": {key: ["x"]}}, True)(args)
    if any(isinstance(value, str) and "x" in value for value in values):
        assert generous
    if strict:
        assert generous, "what lets a call through is never wider than what stops it"


@given(KEYS, ARGS)
def test_a_key_is_present_or_missing(key: str, args: dict[str, Any]) -> None:
    generously, strictly = expected(key, args, True), expected(key, args, False)
    assert ArgsMatch({"has_keys": [key]}, True)(args) is bool(generously)
    assert ArgsMatch({"missing_keys": [key]}, False)(args) is not bool(generously)
    present = ArgsMatch({"has_keys": [key]}, False)(args)
    missing = ArgsMatch({"missing_keys": [key]}, True)(args)
    assert not present or strictly
    assert missing or (strictly and None not in strictly)
    assert present or missing, "what is not surely there may be missing"


@given(KEYS, ARGS, st.sampled_from(["x", 1, True, "[1]"]))
def test_typed_comparisons_are_any_generously_and_every_strictly(key: str, args: dict[str, Any], wanted: Any) -> None:
    values = reached(args, parse_path(key) or [key], False)
    values += [args[key]] if key in args and len(parse_path(key) or [key]) > 1 else []
    same = [type(value) is type(wanted) and value == wanted for value in values]
    for spec in ({"key_equals": {key: wanted}}, {"key_in": {key: [wanted, "other"]}}):
        assert ArgsMatch(spec, False)(args) is (bool(values) and all(same))
        if any(same):
            assert ArgsMatch(spec, True)(args)


# -- hostile arguments ---------------------------------------------------------------------------------------------

SPEC: dict[str, Any] = {
    "has_keys": ["a[].b"],
    "missing_keys": ["a.zz"],
    "key_equals": {"a.b": "x", "a[].b": 1},
    "key_in": {"a[][]": [1, 2]},
    "key_glob": {"a": ["*x?"]},
    "key_regex": {"a": ["x+y"]},
    "key_contains": {"a[]": ["x"]},
    "numeric_range": {"a[].b": {"min": 1}},
}


@pytest.mark.parametrize(
    "hostile",
    [
        lambda size: [{"b": number} for number in range(size)],
        lambda size: [[]] * size,
        lambda size: [[0] * 1_000] * (size // 1_000),
        lambda size: "a" * size,
        lambda size: "[" + "1," * size + "1]",
        lambda size: '{"a":' * (size // 5),
        lambda size: " " * size + "]",
        lambda size: {f"a{number}": number for number in range(size)},
        lambda size: {"a.b" * number: 1 for number in range(size // 1_000)},
        lambda size: ["x" * size] * 3,
    ],
)
def test_the_cost_of_a_look_is_at_most_linear(hostile: Any) -> None:
    matches = [ArgsMatch({name: wanted}, generous) for name, wanted in SPEC.items() for generous in (True, False)]

    def judge(size: int) -> None:
        value = {"a": hostile(size)}
        for match in matches:
            try:
                match(value)
            except Unavailable as unavailable:
                assert unavailable.why

    assert growth(judge, 20_000, 200_000, 4) < 4


def test_deep_nesting_is_no_recursion() -> None:
    deep: Any = {"b": "x"}
    for _ in range(50_000):
        deep = {"a": [deep]}
    for name, wanted in SPEC.items():
        for generous in (True, False):
            try:
                ArgsMatch({name: wanted}, generous)(deep)
            except Unavailable as unavailable:
                assert unavailable.why
    while "a" in deep:  # taken apart from the outside: freeing it at once would recurse
        deep = deep["a"][0]


def test_keys_that_look_like_paths_find_only_themselves() -> None:
    args = {"a": {"a": {"a": {}}}, "a.a": {"a.a": 1}, "a.a.a.a": 2, "[]": 3, "": 4, ".": 5}
    assert found("a.a.a.a", args) == [2]
    assert found("[]", args) == [3]
    assert found(".", args) == [5]
    assert found("", args) == [4]


# -- what an agent tries ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "files",
    [
        [{"p": "ok"}, {}],
        [{"p": "ok"}, "evil"],
        [{"p": "ok"}, None],
        [{"p": "ok"}, [{"p": "evil"}]],
        [{"p": "ok"}, {"P": "evil"}],
    ],
)
def test_an_element_without_the_key_lets_nothing_through(files: list[Any]) -> None:
    """A tool may take a text in place of an object, or another name for the key."""
    for spec in ({"key_glob": {"f[].p": ["ok"]}}, {"key_equals": {"f[].p": "ok"}}, {"key_in": {"f[].p": ["ok"]}}):
        assert ArgsMatch(spec, False)({"f": files[:1]})
        assert not ArgsMatch(spec, False)({"f": files})
        assert ArgsMatch(spec, True)({"f": files})


def test_what_is_no_list_beside_lists_lets_nothing_through() -> None:
    spec = {"key_glob": {"f[].p[]": ["ok"]}}
    assert ArgsMatch(spec, False)({"f": [{"p": ["ok"]}, {"p": []}]})
    assert not ArgsMatch(spec, False)({"f": [{"p": ["ok"]}, {"p": "evil"}]})


def test_a_key_with_a_backslash_is_itself_as_well() -> None:
    for key in ("a\\.b", "a\\[b", "a\\\\b", "a\\b"):
        assert ArgsMatch({"has_keys": [key]}, True)({key: 1})
        assert ArgsMatch({"key_equals": {key: 1}}, True)({key: 1})
    assert ArgsMatch({"key_equals": {"a\\.b": 1}}, True)({"a.b": 1})
    assert not ArgsMatch({"key_equals": {"a\\.b": 1}}, False)({"a.b": 1, "a\\.b": 2})


def test_a_list_in_a_text_counts_under_a_dotted_key_too() -> None:
    for key in ("a", "a.b"):
        assert ArgsMatch({"key_glob": {key: ["evil"]}}, True)({key: '["ok", "evil"]'})
        assert not ArgsMatch({"key_glob": {key: ["?ok*"]}}, False)({key: '["ok", "evil"]'})


def test_a_number_that_python_refuses_hides_nothing_in_a_text() -> None:
    text = '{"p": "evil", "n": ' + "1" * 5_000 + "}"
    with pytest.raises(Unavailable):
        ArgsMatch({"key_equals": {"a.p": "evil"}}, True)({"a": text})


def test_a_text_is_parsed_once_however_many_rules_ask() -> None:
    text = json.dumps([["x"] * 20] * 2_000)
    rules = [ArgsMatch({"key_equals": {"a.b": number}}, True) for number in range(50)]

    def judge(texts: list[str]) -> None:
        for number, one in enumerate(rules):
            one({"a": texts[number % len(texts)]})

    others = [f"{text} {chr(10) * number}" for number in range(len(rules))]
    assert cpu_ratio(lambda: judge([text]), lambda: judge(others), 0.2) < 0.2
    assert sum(map(len, where._held)) <= where.MAX_KEPT_CHARS
