"""Clocks that are wrong, disks that are full, files that are half there, parts that are missing."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("tuf", reason="needs the extra `fleet` (make test-fleet)")

from harness.command_line import run_sub
from harness.fleet import NOW_MS, Fleet, Machine, bundle
from harness.ledger import sub_environment
from subluminal.contracts.moments import DAY_MS
from subluminal.fleet.repository.publishing import Repository
from subluminal.policy.laid import POLICIES, read_list


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    with Fleet(tmp_path) as made:
        made.publish(bundle("first", deny="delete*"))
        yield made


def test_a_clock_that_was_a_day_ahead_or_behind_is_put_right_by_the_next_refresh(fleet: Fleet) -> None:
    machine = fleet.join("sub")
    for skew_ms in (DAY_MS, -DAY_MS):
        machine.refresh(NOW_MS + skew_ms)
        laid = read_list(POLICIES, machine.home)
        assert laid.good_until_ms == NOW_MS + skew_ms + machine.joined.max_offline_ms
        assert laid.overdue(NOW_MS) is None, "a day is not a week"
        machine.refresh(NOW_MS)
        assert read_list(POLICIES, machine.home).good_until_ms == NOW_MS + machine.joined.max_offline_ms


def test_a_full_disk_keeps_the_last_good_and_says_so(fleet: Fleet, tmp_path: Path) -> None:
    machine = fleet.join("sub")
    fleet.publish(bundle("second", deny="drop*"))

    def full() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))

    command = [sys.executable, "-m", "subluminal", "fleet", "keep", "--once", "--json"]
    environ = sub_environment(tmp_path / "sub")
    done = subprocess.run(command, env=environ, capture_output=True, text=True, preexec_fn=full, timeout=60)
    assert done.returncode == 1 and "Traceback" not in done.stderr, done.stderr
    told = json.loads(done.stdout)["tasks"]
    assert "cannot be kept here" in told["refresh"] and "cannot be kept here" in told["stop"]
    assert [each.load()["policy_id"] for each in machine.in_force()] == ["first"]
    assert run_sub(tmp_path / "sub", "fleet", "keep", "--once").returncode == 0
    assert [each.load()["policy_id"] for each in machine.in_force()] == ["second"]


@pytest.mark.parametrize("name", ["timestamp.json", "snapshot.json", "targets.json", "tenant-all.json", "targets/*"])
def test_half_written_files_of_what_is_trusted_are_fetched_again(fleet: Fleet, tmp_path: Path, name: str) -> None:
    machine = fleet.join("sub")
    for file in (tmp_path / "sub" / "fleet" / "tuf").glob(name):
        file.write_bytes(file.read_bytes()[:20])
    fleet.publish(bundle("second", deny="drop*"))
    machine.refresh()
    assert machine.policy_ids() == ["second"]


@pytest.mark.parametrize("content", ["", "{", "[]", '{"url": 7}', '{"tenant": "x"}'])
def test_a_joined_file_that_is_not_ours_is_a_sentence_and_not_a_way_out(
    fleet: Fleet, tmp_path: Path, content: str
) -> None:
    machine = fleet.join("sub")
    (tmp_path / "sub" / "fleet" / "joined.json").write_text(content)
    status = run_sub(tmp_path / "sub", "fleet", "status")
    assert status.returncode == 2 and "Traceback" not in status.stderr
    assert [each.origin for each in machine.in_force()] == ["fleet"], "what was laid stays in force"
    assert run_sub(tmp_path / "sub", "fleet", "leave").returncode == 0


def test_a_state_file_that_is_not_whole_is_begun_anew(fleet: Fleet, tmp_path: Path) -> None:
    fleet.join("sub")
    state = tmp_path / "sub" / "fleet" / "state.json"
    state.write_text('{"tasks": ')
    assert run_sub(tmp_path / "sub", "fleet", "keep", "--once").returncode == 0
    assert set(json.loads(state.read_text())["tasks"]) >= {"refresh", "stop"}


def test_two_keepers_of_one_home_are_one(fleet: Fleet, tmp_path: Path) -> None:
    from subluminal.fleet.keeper.keeper import AlreadyKept, Keeper
    from subluminal.ledger.daemon.log import Log

    joined = fleet.join("sub").joined
    log = Log(str(tmp_path / "log"), echo=False)
    kept = Keeper(str(tmp_path / "sub"), joined, [], log)
    with pytest.raises(AlreadyKept):
        Keeper(str(tmp_path / "sub"), joined, [], log)
    assert "running already" in run_sub(tmp_path / "sub", "fleet", "keep").stderr
    del kept


def test_a_step_that_fails_does_not_take_the_others_down(tmp_path: Path, fleet: Fleet) -> None:
    from subluminal.fleet.keeper.keeper import Keeper
    from subluminal.fleet.keeper.state import read_state
    from subluminal.ledger.daemon.log import Log

    class Good:
        name = "good"

        def step(self) -> float:
            return 1.0

    class Bad:
        name = "bad"

        def step(self) -> float:
            raise RuntimeError("what no task foresees")

    joined = fleet.join("sub").joined
    tasks: list[Any] = [Bad(), Good()]
    keeper = Keeper(str(tmp_path / "sub"), joined, tasks, Log(str(tmp_path / "log"), echo=False))
    assert keeper.once() == {"bad": "what no task foresees", "good": None}
    state = read_state(str(tmp_path / "sub"))
    assert state.tasks["bad"].failures == 1 and state.tasks["good"].last_good_ms > 0
    assert "RuntimeError" in (tmp_path / "log").read_text()


def test_a_publication_that_was_interrupted_leaves_machines_where_they_were(fleet: Fleet) -> None:
    """Killed after the author's part and before the timestamp: nothing of it is seen until the next."""
    machine = fleet.join("sub")
    timestamp = (fleet.metadata / "timestamp.json").read_bytes()
    fleet.publish(bundle("second", deny="drop*"))
    (fleet.metadata / "timestamp.json").write_bytes(timestamp)
    assert not machine.refresh()
    assert machine.policy_ids() == ["first"]
    Repository(str(fleet.directory)).renewed([])
    machine.refresh()
    assert machine.policy_ids() == ["second"]


def test_what_holds_for_a_year_is_prolonged_with_its_own_keys(fleet: Fleet) -> None:
    machine = fleet.join("sub")
    fleet.repository.renewed(["root", "targets", "stop", "tenant-all"])
    machine.refresh()
    assert machine.policy_ids() == ["first"]
    assert [fleet.repository.trusted.version(role) for role in ("root", "targets")] == [2, 2]


def test_a_tenant_that_the_fleet_does_not_have_cannot_be_joined(fleet: Fleet, tmp_path: Path) -> None:
    from subluminal.fleet.machine.origin import Refused

    with pytest.raises(Refused, match="publishes no policy/nobody"):
        fleet.join("sub", tenant="nobody")
    assert not (tmp_path / "sub" / "fleet" / "joined.json").exists()


def test_a_machine_obeys_sixty_four_stops_and_no_more_can_be_made(fleet: Fleet) -> None:
    from subluminal.contracts.errors import FleetError
    from subluminal.fleet.published import MAX_STOPS

    machine: Machine = fleet.join("sub")
    stops = [fleet.stop(tool=f"t{number}") for number in range(MAX_STOPS)]
    machine.look_for_stops()
    assert machine.stop_ids() == stops
    with pytest.raises(FleetError, match="stops already"):
        fleet.stop(tool="one more")
