"""What a call costs: by its tool, by its argument, whatever an agent puts there."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.engine import Run, compiled, rule
from subluminal.core.engine.prices import MAX_ELEMENTS
from subluminal.core.engine.state import MAX_INTEGER, RUN

LIMIT = 2**53 - 1


def cost(args: Any, tool: str = "t", **budget: Any) -> int | str:
    """What the first call of a budget is charged, or the reason why it was refused."""
    budget = {"cost_units_from": {"arg": "n", "per": 100}, **budget}
    run = Run(compiled(rule("b", "budget", scope="run", limit_cost_units=LIMIT, on_exceed="BLOCK", **budget)))
    decision = run.call(tool, args).decision
    if decision.action != "ALLOW":
        return decision.reason_code
    ((_, units, _),) = run.state.pools[RUN].values()
    return units


@pytest.mark.parametrize(
    ("value", "units"),
    [
        (0, 1), (1, 1), (100, 1), (101, 2), (250, 3), (-5, 1), ("250", 3), ("2_50", 3), (" 0x1F4 ", 5), (2.0, 1),
        (Decimal("100.0000000000000000000001"), 2), (Decimal("1e-30"), 1), (True, 1), (None, 1), ("", 1),
        ([150, "150"], 3), ([[1], [[200]]], 3), ([], 1), (10**40, "BUDGET_EXCEEDED"), ("1e400", "BUDGET_EXCEEDED"),
        (Decimal("1e999999999"), "BUDGET_EXCEEDED"), (float("inf"), "BUDGET_EXCEEDED"),
        (float("-inf"), 1), (float("nan"), "BUDGET_EXCEEDED"), ("-Infinity", 1),
        ("many", "UNJUDGED_ARGS"), ({}, "UNJUDGED_ARGS"), ([1, {}], "UNJUDGED_ARGS"), ([1, "x"], "UNJUDGED_ARGS"),
        ([1] * (MAX_ELEMENTS + 1), "UNJUDGED_ARGS"), ([[]] * (MAX_ELEMENTS + 1), "UNJUDGED_ARGS"),
    ],
)  # fmt: skip
def test_an_argument_says_what_a_call_costs(value: Any, units: int | str) -> None:
    assert cost({"n": value}) == units


def test_a_deep_list_is_no_way_to_overflow_a_stack() -> None:
    deep: Any = 300
    for _ in range(900):
        deep = [deep]
    assert cost({"n": deep}) == 3
    assert cost({"n": [deep, deep]}) == "UNJUDGED_ARGS"


def test_without_the_argument_a_call_costs_what_it_would_have() -> None:
    assert cost({}) == 1
    assert cost({}, cost_units_per_call=7) == 7
    assert cost({"n": 300}, cost_units_per_call=7) == 7
    assert cost({"n": 900}, cost_units_per_call=7) == 9
    assert cost({"n": 0}, cost_units_per_call=0) == 0


def test_arguments_that_were_not_read_cannot_be_priced() -> None:
    budget = {"scope": "run", "limit_cost_units": 9, "cost_units_from": {"arg": "n"}, "on_exceed": "BLOCK"}
    run = Run(compiled(rule("b", "budget", **budget)))
    assert run.call(uninspected=True).decision.reason_code == "UNINSPECTED_ARGS"
    assert run.call("t", {"n": "x"}).decision.summary == (
        "t on s was refused (rule b): a rule cannot judge the arguments with certainty: the call costs what 'n' says, "
        "and that is no number. Say the same in a plainer form, or in several smaller calls."
    )


TABLE = {"*": 2, "search": 5, "search*": 9, "search_c*": 20, "sea[r]*": 30, "get?": 7, "*_all": 100}


@pytest.mark.parametrize(
    ("tool", "units"),
    [("search", 5), ("search_x", 9), ("search_code", 20), ("sear", 30), ("gets", 7), ("get", 2), ("list_all", 2),
     ("", 2)],
)  # fmt: skip
def test_a_table_is_asked_by_the_exact_name_then_by_the_glob_that_says_most(tool: str, units: int) -> None:
    assert cost({}, tool, cost_units_from={"arg": "n"}, cost_units_by_tool=TABLE) == units


def test_a_tool_that_no_glob_names_costs_as_every_call() -> None:
    assert cost({}, "x", cost_units_by_tool={"y": 9}, cost_units_per_call=4) == 4
    assert cost({}, "y", cost_units_by_tool={"y": 0}, cost_units_per_call=4) == 0


def test_the_table_is_the_least_that_an_argument_makes_of_it() -> None:
    assert cost({"n": 100}, "y", cost_units_by_tool={"y": 9}) == 9
    assert cost({"n": 1_000}, "y", cost_units_by_tool={"y": 9}) == 10


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.decimals() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=20,
)


@given(values)
def test_whatever_an_argument_is_the_price_is_a_bounded_whole_number_or_cannot_be_told(value: Any) -> None:
    units = cost({"n": value})
    if isinstance(units, int):
        assert 1 <= units <= MAX_INTEGER
    else:
        assert units in ("BUDGET_EXCEEDED", "UNJUDGED_ARGS")
