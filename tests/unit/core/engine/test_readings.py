"""What stops a call is judged by every reading of a value that the SDKs' own validators make; what lets it through,
by the exact typed value."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from harness import sdks
from harness.effort import calls_made, cpu_ratio, growth
from harness.engine import Run, compiled, rule
from harness.npm import InstallError
from subluminal.contracts.canonical import parse
from subluminal.contracts.toolcall import ToolCall
from subluminal.core.engine.faults import Unavailable
from subluminal.core.engine.matchers import ArgsMatch

TABLE = json.loads((Path(__file__).parents[3] / "fixtures" / "readings.json").read_text())
SPELLINGS = TABLE["spellings"]
FUZZING = os.environ.get("HYPOTHESIS_PROFILE") == "fuzz"


def stops(value: Any, **spec: Any) -> bool:
    return ArgsMatch({name: {"k": wanted} for name, wanted in spec.items()}, True)({"k": value})


def lets_through(value: Any, **spec: Any) -> bool:
    return ArgsMatch({name: {"k": wanted} for name, wanted in spec.items()}, False)({"k": value})


def is_exactly(value: Any, wanted: Any) -> bool:
    if isinstance(wanted, float):
        wanted = Decimal(repr(wanted))
    if isinstance(wanted, (bool, str)) or isinstance(value, (bool, str)):
        return type(value) is type(wanted) and bool(value == wanted)
    return bool(value == wanted)


def assert_every_reading_counts(text: str, readings: dict[str, Any]) -> None:
    value = parse(text.encode())
    for by, wanted in readings.items():
        said = f"{text} is {wanted!r} to {by}"
        assert stops(value, key_equals=wanted), said
        assert stops(value, key_in=["other", wanted]), said
        assert lets_through(value, key_equals=wanted) is is_exactly(value, wanted), said
        assert lets_through(value, key_in=["other", wanted]) is is_exactly(value, wanted) or value == "other", said
        if not isinstance(wanted, (bool, str)):
            assert stops(value, numeric_range={"min": wanted, "max": wanted}), said
            assert lets_through(value, numeric_range={"min": wanted, "max": wanted}) is is_exactly(value, wanted), said


# -- what the SDKs do ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("row", SPELLINGS, ids=lambda row: row["json"][:30])
def test_every_recorded_reading_of_both_sdks_stops_a_call(row: dict[str, Any]) -> None:
    assert_every_reading_counts(row["json"], row["python"])
    assert_every_reading_counts(row["json"], row["typescript"])


def test_the_table_is_what_the_python_sdk_does_today() -> None:
    assert TABLE["versions"]["python"] == sdks.python_versions(), "record it again: tests/fuzz/sdks/record.py"
    read = sdks.python_reader()
    assert [row["python"] for row in SPELLINGS] == [read(row["json"]) for row in SPELLINGS]


@pytest.fixture(scope="module")
def typescript() -> Iterator[sdks.TypeScriptReader]:
    if not FUZZING and not sdks.typescript_installed():
        pytest.skip("the TypeScript SDK is not installed (make fuzz installs it)")
    try:
        reader = sdks.TypeScriptReader()
    except InstallError as error:
        pytest.skip(f"the TypeScript SDK is not available: {error}")
    yield reader
    reader.close()


def test_the_table_is_what_the_typescript_sdk_does_today(typescript: sdks.TypeScriptReader) -> None:
    assert TABLE["versions"]["typescript"] == sdks.typescript_versions(), "record it again: tests/fuzz/sdks/record.py"
    assert [row["typescript"] for row in SPELLINGS] == [typescript(row["json"]) for row in SPELLINGS]


# -- and what they do with values that nobody thought of -----------------------------------------------------------

WORDS = st.sampled_from(
    sorted({"true", "yes", "on", "enabled", "false", "no", "off", "disabled", "null", "inf", "nan"})
)
NUMERIC = st.text("0123456789_+-.eExXobn \t\u00a0\ufeff\uff11\u0664", max_size=12)
NUMBERS = st.from_regex(r"-?(0|[1-9][0-9]{0,25})(\.[0-9]{1,30})?([eE][+-]?[0-9]{1,3})?", fullmatch=True)
CASED = st.builds(lambda word, flips: "".join(map(_flip, word, flips)), WORDS, st.lists(st.booleans(), min_size=8))
TEXTS = st.one_of(CASED, NUMERIC, NUMBERS, st.text(st.characters(codec="utf-8"), max_size=5)).map(json.dumps)
SCALARS = st.one_of(TEXTS, NUMBERS, st.sampled_from(["true", "false", "null", "{}"]))
JSON_TEXTS = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3).map(lambda items: f"[{','.join(items)}]"), max_leaves=4
)


def _flip(char: str, upper: bool) -> str:
    return char.upper() if upper else char


@pytest.fixture(scope="module")
def python() -> Any:
    return sdks.python_reader()


@given(JSON_TEXTS)
@example("100.99999999999999999999")
def test_no_value_is_read_by_the_python_sdk_as_one_that_a_deny_misses(python: Any, text: str) -> None:
    assert_every_reading_counts(text, python(text))


@given(JSON_TEXTS)
@example("1e21")
def test_no_value_is_read_by_the_typescript_sdk_as_one_that_a_deny_misses(
    typescript: sdks.TypeScriptReader, text: str
) -> None:
    assert_every_reading_counts(text, typescript(text))


# -- the words of the rule ----------------------------------------------------------------------------------------


def elements(value: Any) -> list[Any]:
    """Those of a list, also of one that stands as JSON in a text."""
    if isinstance(value, str) and value.startswith("["):
        value = json.loads(value)
    return value if isinstance(value, list) else []


def test_a_value_is_read_as_nothing_that_no_server_would_make_of_it_or_of_an_element() -> None:
    """null is no in Python, and so are empty lists and objects, whichever way a tool came by them."""
    wanted: list[Any] = [True, False, 0, 1, 2, 7, 16, 42, 1000, 1e21, "a", "42", "1", "true", "null", "x", ""]
    more = set()
    for row in SPELLINGS:
        read = [*row["python"].values(), *row["typescript"].values()]
        given_ = parse(row["json"].encode())
        for value in wanted:
            known = any(is_exactly(one, value) for one in read)
            known = known or any(stops(one, key_equals=value) for one in elements(given_))
            if stops(given_, key_equals=value) != known:
                more.add((row["json"], value))
    assert more == {('"null"', False), ("[]", False), ("{}", False)}


FORCE = {"args": {"key_equals": {"force": True}}}
FORCED = [True, "true", "True", 1, Decimal("1.0"), "yes", "on", "1", "enabled", [1], "hard"]
NOT_FORCED = [False, None, 0, ""]


@pytest.mark.parametrize("force", FORCED)
def test_a_deny_is_not_passed_by_another_spelling(force: Any) -> None:
    run = Run(compiled(rule("no-force", "deny", FORCE)))
    assert run.action(args={"force": force}) == "BLOCK"


@pytest.mark.parametrize("force", NOT_FORCED)
def test_a_deny_lets_pass_what_is_no_to_every_server(force: Any) -> None:
    assert Run(compiled(rule("no-force", "deny", FORCE))).action(args={"force": force}) == "ALLOW"


@pytest.mark.parametrize("force", FORCED)
def test_an_allow_takes_the_exact_value_alone(force: Any) -> None:
    run = Run(compiled(rule("may-force", "allow", FORCE), rule("nothing-else", "deny")))
    assert run.action(args={"force": force}) == ("ALLOW" if force is True else "BLOCK")


@pytest.mark.parametrize(
    "counter",
    [
        rule("c", "budget", FORCE, scope="run", limit_calls=2, on_exceed="BLOCK"),
        rule("c", "rate_limit", FORCE, scope="run", capacity=2, refill_tokens=0, refill_period_ms=1000,
             on_limit="BLOCK"),
        rule("c", "breaker", FORCE, scope="run", error_threshold=2, window_ms=60_000, on_trip="BLOCK"),
    ],
    ids=lambda counter: counter["kind"],
)  # fmt: skip
def test_every_spelling_is_counted(counter: dict[str, Any]) -> None:
    run = Run(compiled(counter))
    spellings = [True, "true", 1]
    assert [run.failing(args={"force": force}) for force in spellings] == ["ALLOW", "ALLOW", "BLOCK"]


@pytest.mark.parametrize("limit", [101, "101", "1_000", Decimal("100.99999999999999999999"), "0x65", " 101 ", [101]])
def test_a_range_is_not_left_by_another_spelling(limit: Any) -> None:
    above = {"args": {"numeric_range": {"limit": {"min": 101}}}}
    assert Run(compiled(rule("small-pages", "deny", above))).action(args={"limit": limit}) == "BLOCK"
    run = Run(compiled(rule("large-pages", "allow", above), rule("nothing-else", "deny")))
    assert run.action(args={"limit": limit}) == ("ALLOW" if limit == 101 and limit is not True else "BLOCK")


def test_a_key_that_is_not_there_has_no_reading_and_one_given_as_null_is_there() -> None:
    unforced = compiled(rule("d", "deny", {"args": {"key_equals": {"force": False}}}))
    assert Run(unforced).action(args={}) == "ALLOW"
    assert Run(unforced).action(args={"Force": False}) == "ALLOW"
    assert Run(compiled(rule("d", "deny", {"args": {"has_keys": ["force"]}}))).action(args={"force": None}) == "BLOCK"


@pytest.mark.parametrize("odd", [float("nan"), Decimal("NaN"), (1,), b"x", object(), 10**400])
def test_what_json_cannot_say_is_judged_without_a_fault(odd: Any) -> None:
    for wanted in (False, 0, 1, "a"):
        assert not stops(odd, key_equals=wanted)
        assert not stops([odd, odd], key_equals=wanted)
    assert stops(odd, key_equals=True)


# -- classes ------------------------------------------------------------------------------------------------------

TAG = rule("tag", "tag", FORCE, add_risk_class=["forced"])
HAS_CLASS = {"risk_class": ["forced"]}


def test_a_class_given_by_a_reading_is_seen_by_denies_and_counters() -> None:
    assert Run(compiled(TAG, rule("d", "deny", HAS_CLASS))).action(args={"force": "yes"}) == "BLOCK"
    run = Run(compiled(TAG, rule("b", "budget", HAS_CLASS, scope="run", limit_calls=1, on_exceed="BLOCK")))
    assert [run.action(args={"force": force}) for force in ("yes", "no", False, 1)] == [
        "ALLOW",
        "BLOCK",
        "ALLOW",
        "BLOCK",
    ]


def test_a_class_given_by_a_reading_lets_nothing_through() -> None:
    run = Run(compiled(TAG, rule("a", "allow", HAS_CLASS), rule("d", "deny")))
    assert run.action(args={"force": True}) == "ALLOW"
    assert run.action(args={"force": "yes"}) == "BLOCK"
    reading = run.call(args={"force": "yes"})
    assert reading.tags == ["forced"], "the event says which classes the rules saw"


def test_a_class_that_follows_from_one_given_by_a_reading_lets_nothing_through() -> None:
    next_tag = rule("next", "tag", HAS_CLASS, add_risk_class=["trusted"])
    trusted = {"risk_class": ["trusted"]}
    run = Run(compiled(TAG, next_tag, rule("a", "allow", trusted), rule("d", "deny")))
    assert run.action(args={"force": True}) == "ALLOW"
    assert run.action(args={"force": 1}) == "BLOCK"
    assert Run(compiled(TAG, next_tag, rule("d", "deny", trusted))).action(args={"force": 1}) == "BLOCK"


def test_a_class_given_by_a_reading_does_not_fail_open() -> None:
    reads = rule("reads", "tag", {"args": {"key_equals": {"dry_run": True}}}, add_risk_class=["read_like"])
    loop = rule("loop", "breaker", scope="run", repeat_threshold=9, repeat_window_ms=1000, on_trip="BLOCK")
    run = Run(compiled(reads, loop, defaults={"decision_on_error": "BLOCK", "fail_open_read_tools": True}))

    def judged(dry_run: Any) -> str:
        call = ToolCall("s", "t", b"{}", 2)
        args = {"dry_run": dry_run}
        return run.stack.judge(call, lambda: args, lambda: "", run.state, run.wall, run.at).decision.action

    assert judged(True) == "ALLOW"
    assert judged("yes") == "BLOCK"


# -- what it costs ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("args", [{"path": "/home"}, {"path": "/etc"}, {}])
def test_texts_are_compared_without_any_reading(args: dict[str, Any]) -> None:
    strict, generous = (ArgsMatch({"key_equals": {"path": "/etc"}}, sense) for sense in (False, True))
    assert calls_made(lambda: generous(args)) == calls_made(lambda: strict(args))

    def often(match: ArgsMatch) -> None:
        for _ in range(20_000):
            match(args)

    assert cpu_ratio(lambda: often(generous), lambda: often(strict), 1.5) < 1.5


@pytest.mark.parametrize(
    "hostile",
    [
        lambda size: "0" * size + "1",
        lambda size: "0x" + "f" * size,
        lambda size: "1_" * (size // 2),
        lambda size: " " * size,
        lambda size: "9" * size,
        lambda size: Decimal("9" * size),
        lambda size: [""] * 999 + ["x" * size],
        lambda size: ["x" * size],
        lambda size: "[" * size + "]" * size,
        lambda size: "[1]" + " " * size,
    ],
)
def test_reading_is_linear_in_a_hostile_value(hostile: Any) -> None:
    wanted = {"key_equals": {"a": True, "b": 7, "c": "text"}, "key_in": {"d": list(range(50))}}
    match = ArgsMatch({**wanted, "numeric_range": {"e": {"min": 7}}}, True)

    def judge(size: int) -> None:
        value = hostile(size)
        for key in "abcde":
            with contextlib.suppress(Unavailable):
                ArgsMatch.__call__(match, {"a": True, "b": 7, "c": "text", "d": 7, "e": 7, key: value})

    assert growth(judge, 50_000, 800_000, 4) < 4


@pytest.mark.parametrize(
    ("value", "wanted", "stopped"),
    [
        (["x", "rm"], {"key_equals": "rm"}, True),
        (["x", "rm"], {"key_in": ["rm", "dd"]}, True),
        ([1, "7"], {"key_equals": 7}, True),
        ([1, 2_000], {"numeric_range": {"min": 1_000}}, True),
        ([1, 2], {"numeric_range": {"min": 1_000}}, False),
        ('["x", "rm"]', {"key_equals": "rm"}, True),
        (' [1, "2_000"] ', {"numeric_range": {"min": 1_000}}, True),
        ('["x", "rm"', {"key_equals": "rm"}, False),
        ('{"a": ["rm"]}', {"key_equals": "rm"}, False),
        ([["rm", "x"]], {"key_equals": "rm"}, True),
    ],
)
def test_a_list_stands_for_its_elements_where_a_call_is_stopped(value: Any, wanted: Any, stopped: bool) -> None:
    assert stops(value, **wanted) is stopped
    assert not lets_through(value, **wanted)


@pytest.mark.parametrize("value", [[0] * 1_001, [0] * 100_000, "[" + "0," * 1_000 + "0]"])
def test_more_elements_than_are_looked_at_cannot_be_judged(value: Any) -> None:
    for wanted in ({"key_equals": 7}, {"key_in": [7]}, {"numeric_range": {"min": 7}}):
        with pytest.raises(Unavailable, match="UNJUDGED_ARGS"):
            stops(value, **wanted)
        assert not lets_through(value, **wanted)
    assert stops([*[0] * 999, 7, *[0] * 100], key_equals=7)
    assert not stops([0] * 1_000, key_equals=7)


def test_another_predicate_that_is_certainly_false_decides() -> None:
    match = ArgsMatch({"key_equals": {"many": 7, "mode": "x"}}, True)
    assert not match({"many": [0] * 2_000, "mode": "y"})
    with pytest.raises(Unavailable):
        match({"many": [0] * 2_000, "mode": "x"})


def test_a_deeply_nested_list_is_read_without_recursion() -> None:
    deep: Any = ["rm"]
    for _ in range(50_000):
        deep = [deep]
    assert stops(deep, key_equals="rm")
    with pytest.raises(Unavailable):
        stops([deep, deep], key_equals=7)
    while isinstance(deep, list):  # taken apart from the outside: freeing it at once would recurse
        deep = deep[0]
