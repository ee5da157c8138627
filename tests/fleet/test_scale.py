"""docs/scale.md is what bench/scale.py prints, and its simulation keeps to what can be worked out by hand."""

from __future__ import annotations

import subprocess
import sys

import pytest

from harness import places

sys.path.insert(0, str(places.ROOT / "bench"))
import scale_model as model

FLEET = model.Fleet()


def printed(*options: str) -> str:
    command = [sys.executable, str(places.ROOT / "bench" / "scale.py"), *options]
    return subprocess.run(command, capture_output=True, encoding="utf-8", check=True, timeout=100).stdout


def test_the_page_is_what_the_script_prints() -> None:
    assert printed() == (places.ROOT / "docs" / "scale.md").read_text(encoding="utf-8")


def test_another_fleet_is_another_page_and_the_same_options_are_the_same_page() -> None:
    small = ("--calls-per-s", "1000", "--machines", "100", "--simulated", "40")
    assert printed(*small) == printed(*small) != printed(*small, "--seed", "7")


@pytest.mark.parametrize("headroom", [1.5, 2.0, 4.0])
def test_an_hour_of_outage_is_made_good_in_the_time_that_the_headroom_allows(headroom: float) -> None:
    """What has gathered, and what comes meanwhile, through what is left of the capacity: 3600 / (headroom - 1)."""
    found = model.outage(FLEET, down_s=3600, headroom=headroom, wait=model.JITTERED, simulated=100, seed=1)
    assert found.drained_s == pytest.approx(3600 / (headroom - 1), rel=0.06)
    assert found.spool_bytes == pytest.approx(30 * 3600 * 790)


def test_more_simulated_machines_give_the_same_recovery() -> None:
    few, many = (
        model.outage(FLEET, down_s=900, headroom=2.0, wait=model.JITTERED, simulated=count, seed=1)
        for count in (100, 800)
    )
    assert few.drained_s == pytest.approx(many.drained_s, rel=0.06)


def test_without_jitter_all_machines_come_at_once() -> None:
    in_step, spread = (
        model.outage(FLEET, down_s=600, headroom=2.0, wait=wait, simulated=100, seed=1)
        for wait in (model.IN_STEP, model.JITTERED)
    )
    assert in_step.requests_per_s > 10 * spread.requests_per_s


def test_a_stop_reaches_nearly_all_within_two_polls_where_one_in_a_hundred_fails() -> None:
    found = model.stop_reach(FLEET, poll_s=10, cached_s=0, failing=0.01, simulated=20_000, seed=1)
    assert 9.8 < found.most_s < 11.5 and found.nearly_all_s < 22


def test_only_what_was_being_committed_is_stored_twice_and_nothing_is_lost() -> None:
    killed = model.rolling_restart(FLEET, drained=False, group_s=0.3, commit_s=0.15, seed=1)
    ended = model.rolling_restart(FLEET, drained=True, group_s=0.3, commit_s=0.15, seed=1)
    assert 0 < killed.duplicate_events < killed.resent_events
    assert (ended.resent_events, ended.duplicate_events, killed.lost_events) == (0, 0, 0)
