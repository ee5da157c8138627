"""Entries: what operations do, and that nothing grows without bound."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from subluminal.core.engine import state
from subluminal.core.engine.state import MARK, PUSH, SET, SET_RUN, Entries, LocalState, live, terminate_op


def key(number: int) -> bytes:
    return number.to_bytes(16, "big")


def test_a_flood_in_one_pool_pushes_out_nothing_of_another() -> None:
    entries = Entries()
    entries.apply([(SET_RUN, key(1), 7, 7, 0), (SET, key(2), 5, 5, 0)])
    entries.apply((MARK, key(n), n, 0, 0) for n in range(3 * state.MAX_MARKS))
    entries.apply((PUSH, key(n), n, 10**9, 3) for n in range(3 * state.MAX_WINDOWS))
    assert entries.run_wide[key(1)][2] == 7
    assert entries.keyed[key(2)][2] == 5
    assert len(entries.marks) == state.MAX_MARKS
    assert len(entries.windows) == state.MAX_WINDOWS


def test_the_least_recently_written_key_goes_first() -> None:
    entries = Entries()
    entries.apply((SET, key(n), n, 0, 0) for n in range(state.MAX_KEYS))
    entries.apply([(SET, key(0), 99, 0, 0), (SET, key(state.MAX_KEYS), 1, 0, 0)])
    assert key(0) in entries.keyed
    assert key(1) not in entries.keyed


def test_timestamps_are_bounded_over_all_windows() -> None:
    entries = Entries()
    for n in range(20):
        entries.apply((PUSH, key(n), at, 10**9, 4_096) for at in range(4_096))
    assert entries.timestamps == sum(map(len, entries.windows.values())) <= state.MAX_TIMESTAMPS
    assert key(19) in entries.windows


@given(st.lists(st.integers(0, 400), min_size=1, max_size=60), st.integers(1, 100), st.integers(1, 8))
def test_a_window_is_the_newest_timestamps_within_it(times: list[int], window_ms: int, keep: int) -> None:
    entries = Entries()
    times.sort()
    for at in times:
        entries.apply([(PUSH, key(1), at, window_ms, keep)])
    expected = [at for at in times if at > times[-1] - window_ms][-keep:]
    assert list(entries.windows[key(1)]) == expected
    assert entries.timestamps == len(expected)


def test_timestamps_of_a_clock_that_was_reset_are_void_and_slightly_early_ones_are_not() -> None:
    assert live((100, 1_000_000), 200, 1_000) == (100,)
    assert live((190, 205), 200, 1_000) == (190, 205)


ops = st.lists(
    st.one_of(
        st.tuples(st.sampled_from([SET_RUN, SET]), st.integers(0, 5).map(key), *[st.integers(0, 2**62)] * 3),
        st.tuples(st.just(MARK), st.integers(0, 5).map(key), st.integers(0, 10**6), st.just(0), st.just(0)),
        st.tuples(
            st.just(PUSH), st.integers(0, 5).map(key), st.integers(0, 10**6), st.integers(1, 10**5), st.integers(1, 5)
        ),
    ),
    max_size=40,
)


@given(ops)
def test_entries_are_rebuilt_by_their_own_operations(made: list[tuple[int, ...]]) -> None:
    entries, again = Entries(), Entries()
    entries.apply(made)
    entries.apply([terminate_op("C", "message", "p", "r")])
    again.apply(entries.as_ops())
    assert again.as_ops() == entries.as_ops()
    assert again.timestamps == entries.timestamps
    assert again.terminated == ("C", "message", "p", "r")


def test_only_counts_survive_a_reboot() -> None:
    entries = Entries()
    entries.apply([(SET_RUN, key(1), 3, 3, 0), (SET_RUN, key(2), 1, 0, 5_000), (MARK, key(3), 5_000, 0, 0)])
    entries.apply([(PUSH, key(4), 5_000, 10, 3)])
    entries.forget_times()
    assert entries.as_ops() == [(SET_RUN, key(1), 3, 3, 0)]


def test_the_first_termination_stands_and_its_words_are_bounded() -> None:
    run = LocalState()
    assert run.terminated is None
    run.terminate("A", "x" * 9_000)
    run.terminate("B", "later")
    assert run.terminated == ("A", "x" * state.MAX_TERMINATE_CHARS)
    assert run.terminated_by == ("", "")
