"""Who runs an agent on this machine: registered while it lives, found by its run, cleared away when it was killed."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from subluminal.host.identity import start_time
from subluminal.host.run.listing import kill
from subluminal.host.run.membership import Membership
from subluminal.host.run.registration import Registration, registered, stale_registrations


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SUB_HOME", str(tmp_path / "sub"))
    return tmp_path / "sub"


def test_a_registration_is_private_names_only_our_variables_and_goes_with_us(home: Path) -> None:
    registration = Registration({"SUB_RUN_ID": "r", "AWS_SECRET": "s"})
    path = home / "run" / f"{os.getpid()}.json"
    entry = json.loads(path.read_text())
    assert entry["environ"] == {"SUB_RUN_ID": "r"}
    assert entry["start"] == start_time(os.getpid())
    assert path.stat().st_mode & 0o777 == 0o600
    registration.remove()
    registration.remove()
    assert list((home / "run").iterdir()) == []


def test_what_a_killed_run_left_is_cleared_by_the_next(home: Path) -> None:
    (home / "run").mkdir(parents=True)
    (home / "run" / "999999999.json").write_text('{"start":"1"}')
    (home / "run" / "notes.txt").write_text("not ours")
    assert len(stale_registrations()) == 1
    Registration({"SUB_RUN_ID": "r"}).remove()
    assert [path.name for path in (home / "run").iterdir()] == ["notes.txt"]


def test_a_member_of_a_run_is_registered_hears_its_end_and_leaves_nothing(home: Path) -> None:
    membership = Membership("r", owner=True)
    assert membership.register({"SUB_RUN_ID": "r"}, "/") is None
    assert registered("r") == [os.getpid()]
    assert membership.terminated is None
    kill("r", "OPERATOR", "enough")
    assert membership.terminated == ("OPERATOR", "enough")
    membership.leave()
    assert registered("r") == []


def test_without_a_home_that_can_be_written_one_takes_part_all_the_same(home: Path) -> None:
    home.write_text("not a directory")
    membership = Membership("r", owner=True)
    assert isinstance(membership.register({"SUB_RUN_ID": "r"}, "/"), OSError)
    assert membership.terminated is None
    membership.leave()
