"""Who runs an agent can write where the fleet lays: what is whole and says something else is put back, and told."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("tuf", reason="needs the extra `fleet` (make test-fleet)")

from harness.command_line import run_sub
from harness.fleet import NOW_MS, Fleet, Machine, bundle
from harness.shim import isolated_env
from harness.waiting import wait_for
from subluminal.fleet.keeper.state import read_state
from subluminal.fleet.machine.laying import Memory, lay_policies, lay_stops
from subluminal.fleet.machine.origin import Refused

FAST = {"refresh_ms": 300, "stop_poll_ms": 300}
LISTS = ("policies", "stops")


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    with Fleet(tmp_path) as made:
        made.publish(bundle("base", deny="delete*"))
        made.stop(tool="write*")
        yield made


def forge(home: str, which: str, **members: Any) -> None:
    """A list that every shim believes, with the times of the one that it replaces."""
    path = Path(home) / "fleet" / "policy" / f"{which}.laid"
    times = path.stat()
    told = json.loads(path.read_bytes()[65:])
    told.update({"names": [], "known": [], **members})
    body = json.dumps(told).encode()
    path.write_bytes(hashlib.sha256(body).hexdigest().encode() + b"\n" + body)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def origins(machine: Machine) -> list[str]:
    return [each.origin for each in machine.in_force()]


@contextmanager
def keeper(tmp_path: Path, machine: Machine) -> Iterator[None]:
    """Which has looked once."""
    command = [sys.executable, "-m", "subluminal", "fleet", "keep", "--quiet", "--until-eof"]
    process = subprocess.Popen(command, env=isolated_env(tmp_path), stdin=subprocess.PIPE)
    try:
        wait_for(lambda: {"stop", "refresh"} <= set(read_state(machine.home).tasks), what="a keeper that has looked")
        yield
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("forged", [{}, {"of": "0" * 64, "version": 9, "compiled_by": "another"}])
def test_a_forged_list_is_put_back_at_the_next_look_and_told(
    fleet: Fleet, tmp_path: Path, forged: dict[str, Any]
) -> None:
    machine = fleet.join("sub", **FAST)
    assert origins(machine) == ["fleet", "stop"]
    with keeper(tmp_path, machine):
        for which in LISTS:
            forge(machine.home, which, **forged)
        wait_for(lambda: origins(machine) == ["fleet", "stop"], what="what was laid to be put back")
        wait_for(lambda: set(put_back(machine)) == set(LISTS), what="it to be told")
    log = (tmp_path / "sub" / "fleet" / "keeper.log").read_text()
    assert all(f"altered or removed the {which}" in log for which in LISTS)
    shown = run_sub(tmp_path / "sub", "fleet", "status").stdout
    assert all(f"put back   {which} that were altered or removed here: 1 time" in shown for which in LISTS)
    assert run_sub(tmp_path / "sub", "doctor", "--json").stdout.count("fleet-altered") == 2


def put_back(machine: Machine) -> dict[str, Any]:
    shown = run_sub(Path(machine.home), "fleet", "status", "--json").stdout
    told: dict[str, Any] = json.loads(shown)["put_back"]
    return told


def test_with_the_origin_away_what_was_verified_last_is_put_back(fleet: Fleet, tmp_path: Path) -> None:
    machine = fleet.join("sub", **FAST)
    with keeper(tmp_path, machine):
        fleet.origin.end()
        wait_for(lambda: read_state(machine.home).tasks["stop"].failures > 0, what="a look that fails")
        for which in LISTS:
            forge(machine.home, which)
        wait_for(lambda: origins(machine) == ["fleet", "stop"], what="what was laid to be put back")
        wait_for(lambda: set(put_back(machine)) == set(LISTS), what="it to be told")


def test_a_keeper_that_has_just_started_sees_that_a_list_is_not_what_its_source_says(fleet: Fleet) -> None:
    machine = fleet.join("sub")
    for which, lay in (("policies", lay_policies), ("stops", lay_stops)):
        forge(machine.home, which)
        assert ("stop" if which == "stops" else "fleet") not in origins(machine), "a shim believes it"
        memory = Memory()
        assert lay(machine.origin, machine.joined, machine.home, NOW_MS, memory)
        assert (memory.put_back, memory.put_back_ms) == (1, NOW_MS)
    assert origins(machine) == ["fleet", "stop"]


def test_a_list_that_claims_to_hold_for_ever_is_put_back(fleet: Fleet) -> None:
    machine, memory = fleet.join("sub"), Memory()
    lay_policies(machine.origin, machine.joined, machine.home, NOW_MS, memory)
    names = json.loads((Path(machine.home) / "fleet" / "policy" / "policies.laid").read_bytes()[65:])["names"]
    forge(machine.home, "policies", names=names, good_until_ms=1 << 60)
    lay_policies(machine.origin, machine.joined, machine.home, NOW_MS, memory)
    assert memory.put_back == 1
    assert machine.in_force()[0].load().get("overdue") is None


def test_what_is_published_stopped_and_lifted_is_never_taken_for_an_alteration(fleet: Fleet) -> None:
    machine = fleet.join("sub")
    policies, stops = Memory(), Memory()
    for number in range(3):
        lay_policies(machine.origin, machine.joined, machine.home, NOW_MS + number, policies)
        lay_stops(machine.origin, machine.joined, machine.home, NOW_MS + number, stops)
        fleet.publish(bundle("base", deny=f"d{number}"))
        fleet.repository.resume([])
        fleet.stop(tool=f"t{number}")
    fleet.origin.end()
    with pytest.raises(Refused):
        lay_stops(machine.origin, machine.joined, machine.home, NOW_MS, stops)
    assert (policies.put_back, stops.put_back) == (0, 0)
