"""Budgets with a window against a plain list of what was charged: never too much, and too little by a grain at most."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from harness.engine import Run, compiled, rule, tools
from subluminal.contracts.identity import Identity
from subluminal.core.engine.sliding import GRAINS, Sliding
from subluminal.core.engine.state import KEYED, MAX_KEYS, MAX_VALUES, RUN, WIDE

A, B = "ALLOW", "BLOCK"
HOUR = 3_600_000

steps = st.lists(st.tuples(st.integers(0, 700), st.integers(0, 40)), min_size=1, max_size=250)


def policy(**budget: Any) -> dict[str, Any]:
    return compiled(rule("b", "budget", **{"scope": "run", "on_exceed": B, **budget}))


def of_units(limit: int, window_ms: int) -> dict[str, Any]:
    return policy(limit_cost_units=limit, cost_units_per_call=0, cost_units_from={"arg": "n"}, window_ms=window_ms)


class Charged:
    """The naive reference: everything that was charged, and when."""

    def __init__(self) -> None:
        self.events: list[tuple[int, int]] = []

    def within(self, now: int, window_ms: int) -> int:
        return sum(units for at, units in self.events if now - window_ms < at <= now)


@given(steps, st.integers(0, 64), st.integers(1, 5_000))
def test_up_to_64_calls_are_exact_to_the_millisecond(steps: list[tuple[int, int]], limit: int, window_ms: int) -> None:
    run, charged = Run(policy(limit_calls=limit, window_ms=window_ms)), Charged()
    for wait, _ in steps:
        run.at += wait
        fits = charged.within(run.at, window_ms) < limit
        assert run.action() == (A if fits else B)
        if fits:
            charged.events.append((run.at, 1))


@given(steps, st.integers(65, 200), st.integers(1, 5_000))
@example([(0, 1)] * 80, 65, 1)
def test_more_calls_count_a_sixtieth_of_the_window_longer_at_most(
    steps: list[tuple[int, int]], limit: int, window_ms: int
) -> None:
    run, charged = Run(policy(limit_calls=limit, window_ms=window_ms)), Charged()
    grain_ms = -(-window_ms // GRAINS)
    for wait, burst in steps:
        run.at += wait
        for _ in range(burst):
            if run.action() == A:
                assert charged.within(run.at, window_ms) < limit, "too much was let through"
                charged.events.append((run.at, 1))
            else:
                longest = GRAINS * grain_ms + grain_ms
                assert charged.within(run.at, longest) >= limit, "refused though long enough had passed"


@given(steps, st.integers(0, 300), st.integers(1, 5_000))
def test_cost_units_never_exceed_the_limit_in_any_stretch(
    steps: list[tuple[int, int]], limit: int, window_ms: int
) -> None:
    run, charged = Run(of_units(limit, window_ms)), Charged()
    longest = (GRAINS + 1) * -(-window_ms // GRAINS)
    for wait, units in steps:
        run.at += wait
        if run.action("t", {"n": units}) == A:
            assert charged.within(run.at, window_ms) + units <= limit
            charged.events.append((run.at, units))
        else:
            assert charged.within(run.at, longest) + units > limit
        (values,) = run.state.pools[RUN].values() or [()]
        assert len(values) <= MAX_VALUES


@given(steps, st.integers(1, 90), st.integers(1, 5_000), st.booleans())
def test_the_time_that_a_refused_call_is_told_is_right_to_the_millisecond(
    steps: list[tuple[int, int]], limit: int, window_ms: int, weighted: bool
) -> None:
    sliding = Sliding(limit, window_ms, weighted=weighted)
    values, now = sliding.adopted(None, 0), 1_000_000
    for wait, units in steps:
        now += wait
        units = min(units, limit) if weighted else 1
        if sliding.used(values, now) + units <= limit:
            assert sliding.wait_ms(values, now, units) == 0
            values = sliding.charged(values, now, units)
            continue
        told = sliding.wait_ms(values, now, units)
        assert told > 0
        assert sliding.used(values, now + told) + units <= limit
        assert sliding.used(values, now + told - 1) + units > limit


@given(
    st.lists(st.tuples(st.integers(0, 300), st.integers(0, 9)), min_size=1, max_size=80),
    st.tuples(st.integers(1, 200), st.integers(1, 5_000) | st.integers(HOUR, 240 * HOUR)),
    st.tuples(st.integers(1, 200), st.integers(1, 5_000) | st.integers(HOUR, 240 * HOUR)),
    st.booleans(),
)
@example([(0, 1)] * 10, (100, 24 * HOUR), (10, 24 * HOUR), False)
@example([(0, 1)] * 10, (100, 24 * HOUR), (10, HOUR), True)
def test_what_was_charged_under_another_limit_or_window_still_counts(
    steps: list[tuple[int, int]], first: tuple[int, int], second: tuple[int, int], weighted: bool
) -> None:
    before, after = (Sliding(*shape, weighted=weighted) for shape in (first, second))
    values, now, charged = before.adopted(None, 0), 1_000_000, Charged()
    for wait, units in steps:
        now += wait
        units = units if weighted else 1
        if before.used(values, now) + units <= first[0]:
            values = before.charged(values, now, units)
            charged.events.append((now, units))
    adopted = after.adopted(values, now)
    assert len(adopted) <= MAX_VALUES
    # What had left the earlier window is not known any more.
    truth = charged.within(now, min(first[1], second[1]))
    assert after.used(adopted, now) >= min(truth, second[0] if not weighted and second[0] <= 64 else truth)


def test_a_refusal_says_when_a_call_fits_again() -> None:
    run = Run(policy(limit_calls=50, window_ms=HOUR, scope="machine", on_exceed="REJECT_WITH_HINT"))
    for _ in range(50):
        assert run.action() == A
        run.at += 57_600  # 48 minutes for all of them
    decision = run.call().decision
    assert "50 calls an hour (on this machine) are used up; the next fits in 12 minutes" in decision.summary
    assert decision.hint is not None and "the next fits in 12 minutes" in decision.hint.hint_text
    run.at += 12 * 60_000 - 1
    assert run.action() == "REJECT_WITH_HINT"
    run.at += 1
    assert run.action() == A


def test_placeholders_of_a_hint_know_the_window_and_the_wait() -> None:
    text = "{used} of {limit} in {window_ms}; {backoff_ms}"
    run = Run(policy(limit_calls=1, window_ms=1_000, on_exceed="REJECT_WITH_HINT", hint_text=text))
    run.action()
    run.at += 250
    hint = run.call().decision.hint
    assert hint is not None and hint.hint_text == "1 of 1 in 1000; 750"


def test_a_call_that_never_fits_is_told_no_time() -> None:
    run = Run(of_units(10, HOUR))
    summary = run.call("t", {"n": 11}).decision.summary
    assert "does not fit in 10 cost units an hour" in summary and "Wait" not in summary


def test_both_limits_of_a_window_hold_and_a_refused_attempt_charges_neither() -> None:
    run = Run(
        policy(limit_calls=3, limit_cost_units=10, cost_units_per_call=0, cost_units_from={"arg": "n"}, window_ms=1_000)
    )
    assert [run.action("t", {"n": n}) for n in (8, 5, 3, 2, 2, 0, 0)] == [A, B, B, A, B, A, B]


def test_a_budget_that_is_full_refuses_until_its_window_is_over_and_refusals_do_not_lengthen_it() -> None:
    run = Run(policy(limit_calls=2, window_ms=1_000))
    assert [run.action() for _ in range(2)] == [A, A]
    for _ in range(9):
        run.at += 111
        assert run.action() == B
    run.at += 1
    assert run.action() == A


def test_a_flood_of_other_windows_and_arguments_pushes_no_budget_out() -> None:
    loop = rule("loop", "breaker", scope="run", repeat_threshold=9, repeat_window_ms=HOUR, on_trip=B)
    budget = rule("b", "budget", tools("t"), scope="run", limit_calls=1, window_ms=HOUR, on_exceed=B)
    run = Run(compiled(budget, loop))
    run.action()
    for number in range(MAX_KEYS + 10):
        run.action("other", {"n": number})
    assert run.action() == B


def test_a_wide_window_has_the_time_of_wide_scopes() -> None:
    run = Run(policy(limit_calls=1, window_ms=1_000, scope="machine"))
    run.state.wide_ms = 5_000_000
    assert run.action() == A
    run.at += 10_000
    assert run.action() == B, "the clock of the run is another"
    run.state.wide_ms += 1_000
    assert run.action() == A
    assert [values[0] for values in run.state.pools[WIDE + KEYED].values()] == [1], "the run's calls within the window"


def test_a_leg_and_another_door_are_not_charged_again() -> None:
    run = Run(policy(limit_calls=1, window_ms=HOUR))
    assert run.action() == A
    assert run.action(continues="c", leg=2) == A
    assert run.action() == B


@pytest.mark.parametrize("kind", ["budget", "rate_limit", "breaker", "dedupe"])
def test_the_scope_of_a_server_has_a_counter_for_each_server_and_all_its_tools(kind: str) -> None:
    spec: dict[str, dict[str, Any]] = {
        "budget": {"limit_calls": 2, "on_exceed": B},
        "rate_limit": {"capacity": 2, "refill_tokens": 1, "refill_period_ms": HOUR, "on_limit": B},
        "breaker": {"error_threshold": 2, "window_ms": HOUR, "on_trip": B},
        "dedupe": {"window_ms": HOUR, "on_duplicate": B},
    }
    run = Run(compiled(rule("x", kind, scope="server", **spec[kind])))
    called = [run.failing(tool, server=server) for tool, server in (("t", "one"), ("u", "one"), ("v", "one"))]
    assert called == ([A, B, B] if kind == "dedupe" else [A, A, B])
    assert run.failing("t", server="two") == A


def test_who_is_not_the_same_agent_has_another_window() -> None:
    snapshot = policy(limit_calls=1, window_ms=HOUR, scope="agent")
    one = Run(snapshot, identity=Identity("r1", "one"))
    two = Run(snapshot, identity=Identity("r2", "two"), state=one.state)
    again = Run(snapshot, identity=Identity("r3", "one"), state=one.state)
    assert (one.action(), two.action(), again.action()) == (A, A, B)
