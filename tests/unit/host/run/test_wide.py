"""Scopes that outlive a run: one file for all runs of a home, its own time, and who used what."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from harness.engine import Run, compiled, rule
from subluminal.cli.agents.state import state_command
from subluminal.contracts.identity import Identity
from subluminal.core.engine.bundle import Engine
from subluminal.core.engine.stack import Stack
from subluminal.host.home import wide_state_file
from subluminal.host.run import files
from subluminal.host.run import state as runstate
from subluminal.host.run.pages import TABLE_ROOM, TABLES_AT
from subluminal.host.run.state import SharedState

THREE = {"limit_calls": 3, "on_exceed": "BLOCK"}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SUB_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path / "home"


def run_of(run_id: str, snapshot: dict[str, Any], agent: str = "a", principal: str | None = "p") -> Run:
    run = Run(snapshot, state=SharedState.open(run_id))
    run.stack = Stack([Engine(snapshot, Identity(run_id, agent, principal=principal))])
    return run


@pytest.mark.parametrize(
    ("scope", "others"),
    [
        ("machine", {}),
        ("agent", {"principal": "q"}),
        ("principal", {"agent": "b"}),
    ],
)
def test_a_wide_budget_is_one_over_runs_and_restarts(scope: str, others: dict[str, str]) -> None:
    snapshot = compiled(rule("wide", "budget", scope=scope, **THREE))
    assert [run_of("one", snapshot).action() for _ in range(2)] == ["ALLOW"] * 2
    assert [run_of("two", snapshot, **others).action() for _ in range(2)] == ["ALLOW", "BLOCK"]


@pytest.mark.parametrize(("scope", "other"), [("agent", {"agent": "b"}), ("principal", {"principal": "q"})])
def test_another_agent_and_another_principal_have_their_own(scope: str, other: dict[str, str]) -> None:
    snapshot = compiled(rule("wide", "budget", scope=scope, **THREE))
    assert [run_of("one", snapshot).action() for _ in range(4)][-1] == "BLOCK"
    assert run_of("two", snapshot, **other).action() == "ALLOW"


def test_it_is_keyed_by_policy_and_rule_and_survives_a_changed_policy() -> None:
    first = compiled(rule("wide", "budget", scope="machine", **THREE))
    reloaded = compiled(rule("new", "allow"), rule("wide", "budget", scope="machine", **{**THREE, "limit_calls": 4}))
    other = compiled(rule("else", "budget", scope="machine", **THREE))
    assert [run_of("one", first).action() for _ in range(4)][-1] == "BLOCK"
    assert [run_of("two", reloaded).action() for _ in range(2)] == ["ALLOW", "BLOCK"]
    assert run_of("three", other).action() == "ALLOW"


class Clocks:
    """A machine whose calendar can be set, that can sleep, and that can be started again."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.boot, self.up_ms, self.wall_ms = 1, 5_000, 1_700_000_000_000
        monkeypatch.setattr(runstate, "boot_id", lambda: self.boot)
        monkeypatch.setattr(runstate, "boot_ms", lambda: self.up_ms)
        monkeypatch.setattr(files, "boot_id", lambda: self.boot)
        monkeypatch.setattr(files, "boot_ms", lambda: self.up_ms)
        monkeypatch.setattr(files.time, "time_ns", lambda: self.wall_ms * 1_000_000)

    def passes(self, ms: int) -> None:
        self.up_ms += ms
        self.wall_ms += ms

    def reboot(self, wall_ms: int = 0) -> None:
        self.boot += 1
        self.up_ms = 1_000
        self.wall_ms += wall_ms


def test_no_setting_of_the_clock_refills_a_wide_bucket(monkeypatch: pytest.MonkeyPatch) -> None:
    clocks = Clocks(monkeypatch)
    bucket = {"capacity": 2, "refill_tokens": 2, "refill_period_ms": 60_000, "on_limit": "THROTTLE", "backoff_ms": 10}
    snapshot = compiled(rule("wide", "rate_limit", scope="machine", **bucket))

    def action() -> str:
        return run_of(f"run-{clocks.up_ms}-{clocks.boot}", snapshot).action()

    assert [action() for _ in range(3)] == ["ALLOW", "ALLOW", "THROTTLE"]
    for change in (-(10**9), 10**9):
        clocks.wall_ms += change
        assert action() == "THROTTLE", "while the machine is up its calendar does not matter"
    clocks.reboot(-(10**8))
    assert action() == "THROTTLE", "started again with a clock that was set back"
    clocks.passes(60_000)
    assert action() == "ALLOW", "an hour is an hour all the same"
    clocks.reboot(10**8 + 60_000)
    assert [action() for _ in range(3)] == ["ALLOW", "ALLOW", "THROTTLE"], "time that has passed while it was off"


def test_a_damaged_machine_state_is_a_sentence_and_a_refusal_or_a_fresh_start() -> None:
    spec = rule("wide", "budget", scope="machine", **THREE)
    run = run_of("one", compiled(spec))
    assert run.action() == "ALLOW"
    os.truncate(wide_state_file(), 100)
    for shim in (run, run_of("two", compiled(spec))):
        decision = shim.call().decision
        assert decision.reason_code == "EVALUATION_ERROR"
        assert "the state file of this machine is damaged" in decision.summary
    fails_open = run_of("three", compiled(spec, on_error="ALLOW"))
    assert [fails_open.action() for _ in range(5)] == ["ALLOW"] * 4 + ["BLOCK"]


def test_a_machine_state_whose_tables_are_damaged_is_begun_afresh_where_that_is_wanted() -> None:
    spec = rule("wide", "budget", scope="machine", **THREE)
    assert run_of("one", compiled(spec)).action() == "ALLOW"
    with open(wide_state_file(), "r+b") as file:
        file.seek(TABLES_AT)
        file.write(bytes(2 * TABLE_ROOM))
    one, two = (run_of(run_id, compiled(spec, on_error="ALLOW")) for run_id in ("two", "three"))
    assert [run.action() for _ in range(4) for run in (one, two)] == ["ALLOW"] * 4 + ["BLOCK"] * 4
    assert os.path.exists(wide_state_file() + ".bad")


def test_a_policy_of_the_same_name_takes_nothing_over_from_one_that_does_not_apply() -> None:
    """A repository's policy may have any name, and a window that ends at once."""
    day = 24 * 3_600_000
    daily = {"scope": "machine", "limit_calls": 3, "on_exceed": "BLOCK"}
    users = compiled(rule("daily", "budget", **daily, window_ms=day), selectors={"agent_id": ["mine"]})
    theirs = compiled(rule("daily", "budget", **{**daily, "limit_calls": 60}, window_ms=1))
    assert [run_of("one", users, agent="mine").action() for _ in range(3)] == ["ALLOW"] * 3
    other = run_of("two", users)
    other.stack = Stack([Engine(snapshot, Identity("two", "other")) for snapshot in (users, theirs)])
    assert other.action() == "ALLOW"
    assert run_of("three", users, agent="mine").action() == "BLOCK"


def test_a_rule_that_is_not_wide_does_not_touch_the_machines_file() -> None:
    run_of("one", compiled(rule("b", "budget", scope="run", **THREE))).call()
    assert not os.path.exists(wide_state_file())


# -- sub state ----------------------------------------------------------------------------------------------------


def shown(*words: str) -> Any:
    result = CliRunner().invoke(state_command, [*words, "--json"], standalone_mode=False)
    assert result.exception is None, result.exception
    return json.loads(result.stdout)


def test_state_shows_counters_limits_and_who_used_them() -> None:
    snapshot = compiled(
        rule("wide", "budget", scope="machine", **THREE),
        rule("each", "budget", scope="tool", limit_calls=9, on_exceed="BLOCK"),
    )
    for run_id, calls in (("run-one", 2), ("run-two", 1)):
        for _ in range(calls):
            run_of(run_id, snapshot).call("read")
    (wide,) = shown()["machine"]["counters"]
    assert (wide["rule_id"], wide["scope"], wide["used"]["calls"]) == ("wide", "machine", 3)
    assert wide["limits"] == {"limit_calls": 3}
    assert wide["used_by"] == {"run-one": 2, "run-two": 1}
    (each,) = shown("run-one")["run"]["counters"]
    assert (each["rule_id"], each["of"], each["used"]["calls"]) == ("each", "read", 2)
    assert {run["run_id"]: run["calls"] for run in shown()["runs"]} == {"run-one": 2, "run-two": 1}
    text = CliRunner().invoke(state_command, [], standalone_mode=False).stdout
    assert "run-one 2, run-two 1" in text


@pytest.mark.parametrize("name", ["t" * 500, "\x01" * 80, "\U0001f600" * 60], ids=["long", "escaped", "wide"])
def test_no_name_hides_a_counter_from_the_one_who_looks(name: str) -> None:
    each = rule("each", "budget", scope="server_tool", limit_calls=9, on_exceed="BLOCK")
    run = run_of("run-one", compiled(each, rule("wide", "budget", scope="agent", **THREE)), agent=name)
    assert [run.action(name, server=name) for _ in range(2)] == ["ALLOW", "ALLOW"]
    (counter,) = shown("run-one")["run"]["counters"]
    assert counter["used"]["calls"] == 2
    (wide,) = shown()["machine"]["counters"]
    assert wide["used"]["calls"] == 2 and sum(wide["used_by"].values()) == 2


def test_state_shows_what_a_budget_has_been_charged_within_its_window(monkeypatch: pytest.MonkeyPatch) -> None:
    hour = 3_600_000
    price = {"limit_cost_units": 900, "cost_units_per_call": 7}
    snapshot = compiled(rule("hourly", "budget", scope="machine", window_ms=hour, **price, **THREE))
    for run_id, calls in (("run-one", 2), ("run-two", 1)):
        for _ in range(calls):
            assert run_of(run_id, snapshot).action("read") == "ALLOW"
    calls, units = sorted(shown()["machine"]["counters"], key=lambda counter: sorted(counter["used"]))
    assert (calls["used"], calls["limits"]) == ({"calls": 3}, {"limit_calls": 3, "window_ms": hour})
    assert (units["used"], units["limits"]) == ({"cost_units": 21}, {"limit_cost_units": 900, "window_ms": hour})
    assert calls["used_by"] == {"run-one": 2, "run-two": 1}
    text = CliRunner().invoke(state_command, [], standalone_mode=False).stdout
    assert "3 calls in 1h 00m" in text and "900 cost units in 1h 00m" in text
    now = files.boot_ms()
    for module in (files, runstate):
        monkeypatch.setattr(module, "boot_ms", lambda: now + 2 * hour)
    for counter in shown()["machine"]["counters"]:
        assert set(counter["used"].values()) == {0}
        assert counter["used_by"] == {}, "who has used it before the window is not shown"
    assert run_of("run-two", snapshot).action("read") == "ALLOW"
    assert shown()["machine"]["counters"][0]["used_by"] == {"run-two": 1}


def test_a_window_of_the_machine_is_not_refilled_by_a_clock_that_is_set_nor_by_a_changed_policy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def hourly(limit: int, minutes: int = 60) -> dict[str, Any]:
        spec = {"limit_calls": limit, "on_exceed": "BLOCK", "window_ms": minutes * 60_000}
        return compiled(rule("hourly", "budget", scope="machine", **spec))

    assert [run_of("one", hourly(3)).action() for _ in range(4)] == ["ALLOW"] * 3 + ["BLOCK"]
    for seconds in (-86_400 * 365, 86_400 * 365):
        moved = time.time_ns() + seconds * 1_000_000_000
        monkeypatch.setattr("time.time_ns", lambda moved=moved: moved)
        assert run_of("two", hourly(3)).action() == "BLOCK"
    assert run_of("one", hourly(4, 120)).action() == "ALLOW", "three are charged, of whatever window"
    assert run_of("one", hourly(4, 240)).action() == "BLOCK"
    assert [run_of("one", hourly(70)).action() for _ in range(67)] == ["ALLOW"] * 66 + ["BLOCK"]
    assert run_of("one", hourly(50)).action() == "BLOCK"


def test_a_window_of_a_run_does_not_outlive_the_boot_whose_time_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = compiled(rule("b", "budget", scope="run", window_ms=60_000, **THREE))
    plain = compiled(rule("b", "budget", scope="run", **THREE))
    assert [run_of("one", snapshot).action() for _ in range(4)][-1] == "BLOCK"
    assert [run_of("one", plain).action() for _ in range(4)][-1] == "BLOCK"
    monkeypatch.setattr(runstate, "boot_id", lambda: 99)
    assert run_of("one", snapshot).action() == "ALLOW"
    assert run_of("one", plain).action() == "BLOCK"


def test_reset_begins_anew_and_keeps_what_was() -> None:
    snapshot = compiled(rule("wide", "budget", scope="machine", **THREE))
    assert [run_of("one", snapshot).action() for _ in range(4)][-1] == "BLOCK"
    assert shown("--machine", "--reset", "--dry-run")["set_aside"] is None
    assert run_of("one", snapshot).action() == "BLOCK"
    aside = shown("--machine", "--reset")["set_aside"]
    assert os.path.exists(aside)
    assert run_of("one", snapshot).action() == "ALLOW"
