"""Windows: exact for small thresholds, never shorter and at most a grain longer for large ones, and always small."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from subluminal.core.engine.state import CLOCK_SLACK_MS, MAX_VALUES
from subluminal.core.engine.windows import EXACT, GRAINS, Window

times = st.lists(st.integers(0, 20_000), min_size=1, max_size=300).map(sorted)


@given(times, st.integers(1, 5_000), st.integers(1, EXACT), st.integers(0, 6_000))
def test_up_to_the_threshold_a_window_counts_exactly(at: list[int], window_ms: int, threshold: int, later: int) -> None:
    window, values = Window(threshold, window_ms), ()
    for now in at:
        values = window.push(values, now)
    now = at[-1] + later
    truth = sum(earlier > now - window_ms for earlier in at)
    assert window.count(values, now) == min(truth, threshold)
    assert len(values) <= threshold


@given(times, st.integers(1, 5_000), st.integers(0, 6_000))
def test_a_large_window_forgets_nothing_early_and_everything_a_grain_late(
    at: list[int], window_ms: int, later: int
) -> None:
    window, values = Window(EXACT + 1, window_ms), ()
    for now in at:
        values = window.push(values, now)
        assert len(values) <= MAX_VALUES
    now = at[-1] + later
    grain_ms = -(-window_ms // GRAINS)
    least = sum(earlier > now - window_ms for earlier in at)
    most = sum(earlier > now - window_ms - grain_ms for earlier in at)
    assert least <= window.count(values, now) <= most


def test_timestamps_of_a_clock_that_was_reset_are_void_and_slightly_early_ones_are_not() -> None:
    for window in (Window(5, 1_000), Window(500, 1_000)):
        early = window.push((), 205)
        assert window.count(early, 200) == 1
        reset = window.push((), 200 + CLOCK_SLACK_MS + 2_000)
        assert window.count(reset, 200) == 0
        assert window.count(window.push(reset, 200), 200) == 1
