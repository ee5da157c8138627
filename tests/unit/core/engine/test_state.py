"""State in the process: what operations do, and that nothing grows without bound."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from subluminal.core.engine import state
from subluminal.core.engine.state import KEYED, MARK, RUN, WIDE, WINDOW, LocalState, terminate_op


def key(number: int) -> bytes:
    return number.to_bytes(16, "big")


def test_a_flood_in_one_pool_pushes_out_nothing_of_another() -> None:
    run = LocalState()
    run.commit([(RUN, key(1), (7, 7, 0)), (KEYED, key(2), (5, 5, 0)), (WIDE + RUN, key(1), (9, 9, 0))])
    run.commit((MARK, key(n), (n, 0)) for n in range(3 * state.MAX_KEYS))
    run.commit((WINDOW, key(n), (n,)) for n in range(3 * state.MAX_KEYS))
    assert run.get(RUN, key(1)) == (7, 7, 0)
    assert run.get(KEYED, key(2)) == (5, 5, 0)
    assert run.get(WIDE + RUN, key(1)) == (9, 9, 0)
    assert [len(pool) for pool in run.pools[:4]] == [1, 1, state.MAX_KEYS, state.MAX_KEYS]


def test_the_least_recently_written_key_goes_first() -> None:
    run = LocalState()
    run.commit((KEYED, key(n), (n, 0, 0)) for n in range(state.MAX_KEYS))
    run.commit([(KEYED, key(0), (99, 0, 0)), (KEYED, key(state.MAX_KEYS), (1, 0, 0))])
    assert run.get(KEYED, key(0)) == (99, 0, 0)
    assert run.get(KEYED, key(1)) is None


ops = st.lists(
    st.tuples(st.sampled_from([RUN, KEYED, MARK, WINDOW]), st.integers(0, 5).map(key), st.tuples(st.integers(0, 9))),
    max_size=40,
)


@given(ops)
def test_the_last_operation_on_a_key_stands(made: list[tuple[int, bytes, tuple[int, ...]]]) -> None:
    run = LocalState()
    run.commit(made)
    last = {(pool, name): values for pool, name, values in made}
    assert all(run.get(pool, name) == values for (pool, name), values in last.items())
    assert sum(map(len, run.pools)) == len(last)


def test_the_first_termination_stands_and_its_words_are_bounded() -> None:
    run = LocalState()
    assert run.terminated is None and not run.stopped
    run.terminate("A", "x" * 9_000)
    run.commit([terminate_op("B", "later", "p", "r")])
    assert run.terminated == ("A", "x" * state.MAX_TERMINATE_CHARS)
    assert run.terminated_by == ("", "")
    assert run.stopped
