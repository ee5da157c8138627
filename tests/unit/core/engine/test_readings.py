"""What stops a call is judged by every reading of a value that the SDKs' own validators make; what lets it through,
by the exact typed value."""

from __future__ import annotations

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

WORDS = st.sampled_from("true false yes no on off y n t f enabled disabled null none inf infinity nan".split())
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
