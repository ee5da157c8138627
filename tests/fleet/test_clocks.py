"""Machines, publishers and origins whose clocks differ by a day: what is said, what stays in force, how long."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("tuf", reason="needs the extra `fleet` (make test-fleet)")

from harness.collector import Machine as Shipper
from harness.collector import collector
from harness.command_line import run_sub
from harness.fleet import Fleet, bundle
from harness.fleet_names import run_id, shim_id
from harness.ledger import EventMaker, sub_environment
from subluminal.fleet.machine import clock
from subluminal.fleet.machine.clock import SetClock, ahead_ms, clock_words
from subluminal.fleet.machine.origin import Refused
from subluminal.policy.laid import POLICIES, read_list

DAY_S = 86_400
MINUTE_MS = 60_000


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    with Fleet(tmp_path) as made:
        made.publish(bundle("first", deny="delete*"))
        yield made


def skewed(home: Path, ahead_s: int, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`sub` in a process with this clock."""
    tests = str(Path(__file__).parents[1])
    return subprocess.run(
        [sys.executable, "-m", "harness.skewed", str(ahead_s), *arguments],
        env={**sub_environment(home), "PYTHONPATH": tests},
        capture_output=True,
        text=True,
        timeout=60,
    )


def kept(home: Path, ahead_s: int) -> dict[str, str | None]:
    """What each task says of one step with this clock."""
    done = skewed(home, ahead_s, "fleet", "keep", "--once", "--json")
    tasks: dict[str, str | None] = json.loads(done.stdout)["tasks"]
    assert done.returncode == (1 if any(tasks.values()) else 0) and "Traceback" not in done.stderr
    return tasks


def findings(home: Path) -> dict[str, str]:
    told = json.loads(run_sub(home, "doctor", "--json").stdout)
    return {one["code"]: one["message"] for one in told["findings"] if one["area"] == "fleet"}


def status(home: Path) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(run_sub(home, "fleet", "status", "--json").stdout)
    return told


def _log(home: Path) -> str:
    return (home / "fleet" / "keeper.log").read_text()


def left_ms(home: Path, ahead_s: int) -> int:
    """How long the policies hold, by a clock that is so far ahead."""
    return read_list(POLICIES, str(home)).good_until_ms - clock.wall_ms() - ahead_s * 1000


def test_a_machine_a_day_ahead_keeps_policies_and_stops_and_is_told_that_it_is_the_clock(
    fleet: Fleet, tmp_path: Path
) -> None:
    home = tmp_path / "sub"
    stop = fleet.stop(tool="drop*")
    machine = fleet.join("sub")
    fleet.publish(bundle("second"))
    for _ in range(3):
        told = kept(home, DAY_S + 3600)
    for name in ("refresh", "stop"):
        assert f"What {fleet.origin.url} shows has expired: " in str(told[name])
        assert "This machine's clock is 25 hours ahead of the origin's: that is likely why." in str(told[name])
    assert (machine.policy_ids(), machine.stop_ids()) == (["first"], [stop])
    facts = status(home)
    assert facts["tasks"]["refresh"]["code"] == "expired" and facts["overdue"] is None
    assert abs(facts["clock_ahead_s"] - DAY_S - 3600) < 60
    shown = run_sub(home, "fleet", "status")
    assert shown.returncode == 0 and "clock      This machine's clock is 25 hours ahead of the origin's" in shown.stdout
    assert findings(home)["fleet-clock"] == "This machine's clock is 25 hours ahead of the origin's"
    assert "ahead of the origin's" in _log(home)
    assert kept(home, 0)["refresh"] is None
    assert machine.policy_ids() == ["second"] and status(home)["clock"] is None and "fleet-clock" not in findings(home)


def test_a_machine_a_day_behind_obeys_what_is_published_and_is_told_of_its_clock(fleet: Fleet, tmp_path: Path) -> None:
    home = tmp_path / "sub"
    machine = fleet.join("sub")
    fleet.publish(bundle("second"))
    assert kept(home, -DAY_S)["refresh"] is None
    assert machine.policy_ids() == ["second"]
    assert status(home)["clock"] == "This machine's clock is 24 hours behind the origin's"


def test_an_origin_that_is_frozen_is_not_blamed_on_the_clock(fleet: Fleet, tmp_path: Path) -> None:
    fleet.join("sub")
    fleet.origin.date = "Thu, 01 Jan 2099 00:00:00 GMT"  # and says that it is this machine which is behind
    told = str(kept(tmp_path / "sub", 2 * DAY_S)["refresh"])
    assert "has expired" in told and "clock" not in told


def test_who_joins_with_a_clock_a_day_ahead_is_told_so(fleet: Fleet, tmp_path: Path) -> None:
    words = ("fleet", "join", fleet.origin.url, "--root", fleet.root)
    done = skewed(tmp_path / "sub", 2 * DAY_S, *words)
    assert done.returncode == 2 and "This machine's clock is 48 hours ahead of the origin's" in done.stderr
    assert not (tmp_path / "sub" / "fleet" / "joined.json").exists()


@pytest.mark.parametrize("set_to_s", [DAY_S, -DAY_S, 40 * DAY_S])
def test_a_clock_that_is_set_while_the_origin_is_away_neither_shortens_nor_stretches_how_long_policies_hold(
    fleet: Fleet, tmp_path: Path, set_to_s: int
) -> None:
    home = tmp_path / "sub"
    fleet.join("sub", max_offline_ms=DAY_S * 500)
    assert kept(home, 0)["refresh"] is None
    before = left_ms(home, 0)
    fleet.origin.end()
    assert "cannot be reached" in str(kept(home, set_to_s)["refresh"])
    assert 0 <= before - left_ms(home, set_to_s) < MINUTE_MS
    assert skewed(home, set_to_s, "fleet", "status").returncode == 0, "not overdue by the clock as it is now"
    assert "this machine's clock was set by" in _log(home)
    assert "cannot be reached" in str(kept(home, 0)["refresh"]), "and put right"
    assert 0 <= before - left_ms(home, 0) < MINUTE_MS


def test_after_a_boot_a_clock_that_went_backwards_stood_still_and_one_that_went_forward_is_right(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks = SetClock({})
    assert looks.set_by() == 0 and looks.facts() == {}
    looks.keep()
    known = looks.facts()
    monkeypatch.setattr(clock, "boot_id", lambda: 77)
    monkeypatch.setattr(clock, "boot_ms", lambda: 5_000)
    for passed_ms, by in ((3_600_000, 0), (-3_600_000, -3_600_000), (-500, 0)):
        monkeypatch.setattr(clock, "wall_ms", lambda passed=passed_ms: known["wall_ms"] + passed)
        assert SetClock(known).set_by() == by
    for nonsense in ({"boot": "x"}, {"boot": 1, "offset_ms": None, "wall_ms": 3}):
        assert SetClock(nonsense).set_by() == 0


def test_what_headers_say_of_the_time_is_read_with_the_age_of_a_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "wall_ms", lambda: 1_700_000_000_000)
    date = "Tue, 14 Nov 2023 22:13:20 GMT"
    assert ahead_ms({"Date": date}) == 0
    assert ahead_ms({"Date": date, "Age": "3600"}) == -3_600_000
    for nonsense in ({}, {"Date": "soon"}, {"Date": "99"}, {"Date": "Tue, 14 Nov 99999 22:13:20 GMT"}):
        assert ahead_ms(nonsense) is None
    assert (clock_words(None), clock_words(299)) == (None, None)
    assert clock_words(-600) == "This machine's clock is 10 minutes behind the origin's"
    assert clock_words(9 * DAY_S) == "This machine's clock is 9 days ahead of the origin's"


def test_a_publisher_whose_clock_is_behind_the_last_one_is_told_and_still_publishes(
    fleet: Fleet, tmp_path: Path
) -> None:
    policy = tmp_path / "policy.json"
    policy.write_text(json.dumps(bundle("second")))
    there = ("--repository", str(fleet.directory))
    done = skewed(tmp_path / "publisher", -DAY_S, "fleet", "publish", str(policy), *there)
    assert done.returncode == 0 and "still to come by this machine's clock" in done.stderr
    # What it signed has expired by every other clock; whoever renews with a right one makes it known.
    with pytest.raises(Refused, match="has expired"):
        fleet.join("sub")
    again = run_sub(tmp_path / "publisher", "fleet", "renew", *there)
    assert again.returncode == 0 and "still to come" not in again.stderr
    assert fleet.join("sub").policy_ids() == ["second"]


def test_a_repository_that_a_clock_ahead_has_signed_says_so(fleet: Fleet, tmp_path: Path) -> None:
    there = ("--repository", str(fleet.directory))
    assert skewed(tmp_path / "publisher", DAY_S, "fleet", "renew", *there).returncode == 0
    shown = run_sub(tmp_path / "publisher", "fleet", "status", *there)
    assert shown.returncode == 0 and "still to come by this machine's clock" in shown.stdout


@pytest.mark.parametrize("ahead_s", [DAY_S, -DAY_S])
def test_a_machine_with_a_wrong_clock_ships_and_its_events_keep_its_time(
    tmp_path: Path, one_store: str, ahead_s: int
) -> None:
    with collector(tmp_path / "collector", one_store) as fleet:
        machine = Shipper(tmp_path / "machine", fleet)
        start_ms = clock.wall_ms() + ahead_s * 1000
        lines = EventMaker(run_id(1), shim_id(1), start_ms=start_ms).whole_run(2)
        machine.record(lines)
        fleet.kill()
        words = machine.command("--once")[3:]
        assert skewed(machine.home, ahead_s, *words).returncode == 1
        fleet.start()
        assert skewed(machine.home, ahead_s, *words).returncode == 0
        assert machine.standing()["unacked_events"] == 0
        found = fleet.ask(f"/v1/lines?run_id={run_id(1)}", fleet.reader)[2]["lines"]
        assert [line.encode() for line in found] == lines
