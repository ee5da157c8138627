"""The scanner finds what makes an answer depend on more than the arguments."""

from __future__ import annotations

import functools
import itertools
import os
import random
import time
from random import random as chance
from typing import Any

import pytest

from subluminal.admission import NotDeterministic, assert_deterministic, inspect_function_forbidden

alias_of_open = open


def clean(a: int, b: int) -> int:
    """The words async, await, time and 1.5 in a text are no offence."""
    return (a + b) // 2


def uses_float() -> Any:
    return 1.5


def uses_complex() -> Any:
    return 2j


def hides_float() -> Any:
    return (1, (2.5, frozenset((1,))))


def divides(a: int) -> Any:
    return a / 2


def divides_in_place(a: Any) -> Any:
    a /= 2
    return a


def imports_inside() -> Any:
    import datetime

    return datetime


def imports_from() -> Any:
    from os.path import join

    return join


def uses_clock() -> Any:
    return time.time()


def uses_chance() -> Any:
    return chance()


def uses_random_module() -> Any:
    return random.randint(1, 2)


def uses_system() -> Any:
    return os.getpid()


def uses_hash(a: Any) -> Any:
    return hash(a)


def uses_id(a: Any) -> Any:
    return id(a)


def opens() -> Any:
    return open("/etc/passwd")


def opens_by_another_name() -> Any:
    return alias_of_open("/etc/passwd")


def evaluates(text: str) -> Any:
    return eval(text)


async def waits() -> None:
    return None


def waits_inside() -> Any:
    async def inner() -> None:
        async with None:  # type: ignore[attr-defined]
            pass

    return inner


def floats_in_nested_function() -> Any:
    return lambda: 0.1


FINDINGS: list[tuple[Any, str]] = [
    (uses_float, "literal: 1.5"),
    (uses_complex, "literal: 2j"),
    (hides_float, "literal: 2.5"),
    (divides, "operator: true division"),
    (divides_in_place, "operator: true division"),
    (imports_inside, "import: datetime"),
    (imports_from, "import: os.path"),
    (uses_clock, "uses: time of time"),
    (uses_chance, "uses: chance of random"),
    (uses_random_module, "uses: random of random"),
    (uses_system, "uses: os of os"),
    (uses_hash, "name: hash"),
    (uses_id, "name: id"),
    (opens, "name: open"),
    (opens_by_another_name, "name: open"),
    (evaluates, "name: eval"),
    (waits, "coroutine: async or await"),
    (waits_inside, "coroutine: async or await"),
    (floats_in_nested_function, "literal: 0.1"),
    (lambda: 0.25, "literal: 0.25"),
    (lambda a: a / 3, "operator: true division"),
]


@pytest.mark.parametrize(("function", "finding"), FINDINGS, ids=lambda value: getattr(value, "__name__", None))
def test_each_forbidden_construct_is_found(function: Any, finding: str) -> None:
    assert finding in inspect_function_forbidden(function)


def test_a_clean_function_is_clean_however_it_is_given() -> None:
    class Callable:
        def __call__(self) -> int:
            return 1

        def method(self) -> int:
            return 2

    for function in (clean, functools.partial(clean, 1), Callable(), Callable().method, lambda a: a + 1):
        assert inspect_function_forbidden(function) == []


@pytest.mark.parametrize("function", [len, dict, 7, print, functools.partial(len, [])])
def test_what_cannot_be_inspected_is_never_clean(function: Any) -> None:
    (finding,) = inspect_function_forbidden(function)
    assert finding == f"{type(function).__name__}: neither source nor code can be inspected"


def test_code_without_source_is_scanned_all_the_same() -> None:
    space: dict[str, Any] = {}
    exec("import time\ndef hidden(a):\n    return a / 2.0 + time.time()\ndef fine(a):\n    return a + 1\n", space)
    assert inspect_function_forbidden(space["hidden"]) == [
        "literal: 2.0",
        "operator: true division",
        "uses: time of time",
    ]
    assert inspect_function_forbidden(space["fine"]) == []


def test_a_decorator_cannot_show_one_source_and_run_another() -> None:
    @functools.wraps(clean)
    def dirty(a: int, b: int) -> Any:
        return time.time()

    assert "uses: time of time" in inspect_function_forbidden(dirty)


def test_what_a_closure_holds_is_looked_at() -> None:
    def make(clock: Any) -> Any:
        def inner() -> Any:
            return clock()

        return inner

    assert inspect_function_forbidden(make(time.monotonic)) == ["uses: clock of time"]
    assert inspect_function_forbidden(make(random.Random(1).random)) != []
    assert inspect_function_forbidden(make(clean)) == []


def test_ten_runs_must_agree() -> None:
    assert assert_deterministic(clean, 4, 6) == 5
    calls = itertools.count()
    with pytest.raises(NotDeterministic, match="run 2"):
        assert_deterministic(lambda: next(calls))
    runs: list[int] = []
    assert_deterministic(lambda: runs.append(1))
    assert len(runs) == 10


def test_the_same_error_every_time_is_agreement() -> None:
    assert assert_deterministic(lambda: [][0]) is None
    calls = itertools.count()
    with pytest.raises(NotDeterministic):
        assert_deterministic(lambda: {}[next(calls)])
