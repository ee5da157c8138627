"""What evaluating one rule may cost."""

from __future__ import annotations

import dataclasses

import pytest

from subluminal.admission import BudgetExceeded, BudgetLimits, BudgetTick, BudgetTracker


def test_the_limit_passes_and_one_more_raises() -> None:
    tracker = BudgetTracker()
    tracker.charge(10_000)
    with pytest.raises(BudgetExceeded) as caught:
        tracker.charge()
    assert (caught.value.which, caught.value.limit, caught.value.observed) == ("integer_ops", 10_000, 10_001)


def test_depth_and_argument_count_have_limits_of_their_own() -> None:
    tracker = BudgetTracker()
    for _ in range(16):
        tracker.enter_call(8)
    with pytest.raises(BudgetExceeded, match="call_depth"):
        tracker.enter_call(8)
    with pytest.raises(BudgetExceeded, match="arg_count"):
        tracker.enter_call(9)


def test_counters_begin_anew_with_each_rule_and_depth_goes_down_again() -> None:
    tracker = BudgetTracker(BudgetLimits(integer_ops=2, call_depth=1))
    for rule in ("one", "two"):
        tracker.begin_rule(rule)
        tracker.charge(2)
        for _ in range(3):
            tracker.enter_call(0)
            tracker.leave_call()
        with pytest.raises(BudgetExceeded, match="integer_ops"):
            tracker.charge()


def test_listeners_see_frozen_ticks_with_a_growing_at_and_can_leave() -> None:
    tracker = BudgetTracker()
    ticks: list[BudgetTick] = []
    unsubscribe = tracker.subscribe(ticks.append)
    tracker.begin_rule("r")
    tracker.charge()
    tracker.enter_call(2)
    assert [(tick.axis, tick.observed, tick.rule_name, tick.at) for tick in ticks] == [
        ("integer_ops", 1, "r", 1),
        ("arg_count", 2, "r", 2),
        ("call_depth", 1, "r", 3),
    ]
    with pytest.raises(dataclasses.FrozenInstanceError):
        ticks[0].at = 9  # type: ignore[misc]
    unsubscribe()
    unsubscribe()
    tracker.charge()
    assert len(ticks) == 3


def test_a_listener_that_throws_changes_nothing() -> None:
    tracker = BudgetTracker(BudgetLimits(integer_ops=1))
    heard: list[BudgetTick] = []

    def broken(tick: BudgetTick) -> None:
        raise RuntimeError

    tracker.subscribe(broken)
    tracker.subscribe(heard.append)
    tracker.charge()
    with pytest.raises(BudgetExceeded):
        tracker.charge()
    assert len(heard) == 2, "the tick that goes over the limit is seen as well"
