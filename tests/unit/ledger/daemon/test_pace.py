"""When the daemon looks next: soon after work, ever more rarely without, and in the end not at all."""

from __future__ import annotations

from subluminal.ledger.daemon.pace import (
    GATHER_S,
    LOOK_FIRST_S,
    LOOK_IDLE_S,
    LOOK_LAST_S,
    RETRY_S,
    SMALL_BATCH_BYTES,
    Pace,
)


def quiet(pace: Pace, looks: int) -> list[float]:
    """The waits after so many looks that found nothing."""
    waits = []
    for _ in range(looks):
        pace.found_nothing()
        waits.append(pace.wait_s(0.0, watched=True))
    return waits


def test_it_looks_at_once_and_then_ever_more_rarely_until_a_ring() -> None:
    pace = Pace(900.0, 0.0)
    assert pace.wait_s(0.0, watched=True) == 0.0
    assert quiet(pace, 7) == [LOOK_FIRST_S, 0.1, 0.2, 0.4, 0.8, LOOK_LAST_S, LOOK_LAST_S]
    assert pace.wait_s(0.0, watched=False) == LOOK_IDLE_S
    pace.rung = True
    assert pace.wait_s(0.0, watched=False) == 0.0
    assert quiet(pace, 1) == [LOOK_FIRST_S]


def test_small_batches_are_gathered_and_large_ones_follow_at_once() -> None:
    pace = Pace(900.0, 0.0)
    pace.worked(SMALL_BATCH_BYTES - 1, 10.0)
    assert not pace.may_work(10.0) and 0 < pace.wait_s(10.0, watched=True) <= GATHER_S + 1e-9
    assert pace.may_work(10.1)
    pace.worked(SMALL_BATCH_BYTES, 20.0)
    assert pace.may_work(20.0) and pace.wait_s(20.0, watched=True) == 0.0


def test_after_a_failure_even_a_ring_waits_for_the_next_attempt() -> None:
    pace = Pace(900.0, 0.0)
    pace.rung = True
    pace.failed(10.0)
    assert not pace.may_work(10.0)
    assert pace.wait_s(10.0, watched=True) == RETRY_S


def test_it_is_over_when_nobody_was_there_for_long_and_later_after_somebody_was() -> None:
    pace = Pace(60.0, 0.0)
    assert not pace.is_over(60.0, watched=False) and pace.is_over(60.1, watched=False)
    assert not pace.is_over(100.0, watched=True)
    assert not pace.is_over(130.0, watched=False) and pace.is_over(130.1, watched=False)
