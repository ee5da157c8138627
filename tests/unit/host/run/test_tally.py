"""What became of a run's calls, added up by its producers as they end."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from subluminal.contracts.counts import Counts
from subluminal.core.engine.state import RUN, LocalState
from subluminal.host.run.files import state_path
from subluminal.host.run.pages import FILE_BYTES, PAGE, RINGS_AT
from subluminal.host.run.state import SharedState
from subluminal.host.run.tally import add_counts, counts_since, read_tally
from subluminal.host.run.view import run_state

PRODUCER = """
from subluminal.contracts.counts import Counts
from subluminal.host.run.state import SharedState
from subluminal.host.run.tally import add_counts
state = SharedState.open("run")
for _ in range(7): state.next_seq()
add_counts(state, Counts(7, 3, 2, 2, 1))
"""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SUB_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def shared() -> SharedState:
    state = SharedState.open("run")
    assert isinstance(state, SharedState), state.reason
    return state


def told(counts: Counts | None) -> tuple[int, ...]:
    assert counts is not None
    return counts.total, counts.allowed, counts.blocked, counts.throttled, counts.errors


def test_producers_that_end_at_once_add_up_exactly() -> None:
    keeper = shared()
    before = read_tally(keeper)
    crowd = [subprocess.Popen([sys.executable, "-c", PRODUCER]) for _ in range(8)]
    assert [process.wait(30) for process in crowd] == [0] * 8
    assert told(counts_since(keeper, before, 0)) == (56, 24, 16, 16, 8)
    keeper.close()


def test_what_was_counted_before_is_not_counted_again() -> None:
    state = shared()
    state.next_seq()
    add_counts(state, Counts(1, 1))
    before = read_tally(state)
    assert told(counts_since(state, before, 0)) == (0, 0, 0, 0, 0)
    state.next_seq()
    state.next_seq()
    add_counts(state, Counts(1, 0, 1))
    assert told(counts_since(state, before, 0)) == (2, 0, 1, 0, 0), "one of two has not told what became of it"
    state.close()


def test_it_outlives_a_reboot_with_the_calls_it_belongs_to(monkeypatch: pytest.MonkeyPatch) -> None:
    state = shared()
    state.next_seq()
    add_counts(state, Counts(1, 1, 0, 0, 1))
    state.close()
    monkeypatch.setattr("subluminal.host.run.state.boot_id", lambda: 12345)
    rebooted = shared()
    tally = read_tally(rebooted)
    assert tally is not None and (tally.total, told(tally.told)) == (1, (1, 1, 0, 0, 1))
    rebooted.close()


def test_operators_are_shown_calls_and_no_counter_of_ours() -> None:
    state = shared()
    state.next_seq()
    add_counts(state, Counts(1, 1))
    state.close()
    view = run_state("run")
    assert view is not None
    assert (view.calls, view.counters, view.unnamed) == (1, [], {"marks": 0, "windows": 0})


def test_without_a_shared_state_nothing_is_known_and_nothing_breaks() -> None:
    state = LocalState()
    add_counts(state, Counts(1, 1))
    assert read_tally(state) is None
    assert counts_since(state, None, 0) is None


def test_a_damaged_state_costs_the_figures_alone() -> None:
    state = shared()
    before = read_tally(state)
    os.truncate(state_path("run"), 100)
    add_counts(state, Counts(1, 1))
    assert counts_since(state, before, 0) is None
    state.close()


def test_a_page_that_is_damaged_costs_figures_and_keeps_no_lock() -> None:
    state = shared()
    add_counts(state, Counts(1, 1, 0, 0, 0))
    for start in range(0, 2_000, 50):
        state.begin()
        state.commit([(RUN, (start + n).to_bytes(16, "big"), (1, 1, 0)) for n in range(50)], True)
    with open(state.path, "r+b") as file:
        for at in range(RINGS_AT, FILE_BYTES, PAGE):
            file.seek(at + 20)
            file.write(b"\xff\xff")
    ending = shared()
    add_counts(ending, Counts(1, 1, 0, 0, 0))
    assert read_tally(ending) is None
    state.begin()
    state.abandon()
