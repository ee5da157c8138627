"""One budget of 6,000 and SIGKILL at random: exactly 6,000 are charged and no call too many goes through.

Of 64 processes in one run, and of 16 runs on a budget of the whole machine: as a whole, of 6,000 and of 50 calls an
hour, and of 50 calls in any second and a half.
"""

from __future__ import annotations

import os
import random
import signal
import struct
import time
from bisect import bisect_right
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from harness.engine import Run, compiled, rule, tools
from harness.waiting import pause, wait_for
from subluminal.host.run.state import SharedState
from subluminal.host.run.view import run_state, wide_state

PROCESSES = 64
LIMIT = 6_000
KILLS = 40
ENOUGH_KILLS = 8
DEADLINE_SECONDS = 90
SEED = 20_261

RUNS = 16

STRETCH_MS = 1_500
STAMP = struct.Struct("<q")


def snapshot_of(limit: int, **budget: Any) -> dict[str, Any]:
    return compiled(
        rule("b", "budget", tools("t"), limit_calls=limit, on_exceed="BLOCK", **budget),
        rule("busy", "budget", tools("busy"), scope="tool", limit_calls=10**9, on_exceed="BLOCK"),
        rule("loop", "breaker", tools("busy"), scope="tool", repeat_threshold=50, repeat_window_ms=1, on_trip="BLOCK"),
    )


class Trial(NamedTuple):
    """`busy`: calls between two on the budget, so that it is not used up before anybody could be killed."""

    limit: int
    processes: int
    runs: int
    snapshot: dict[str, Any]
    busy: int = 5


TRIALS = {
    "64 processes of one run": Trial(LIMIT, PROCESSES, 1, snapshot_of(LIMIT, scope="run")),
    "16 runs on one machine": Trial(LIMIT, 2 * RUNS, RUNS, snapshot_of(LIMIT, scope="machine")),
    "16 runs, 6,000 calls an hour": Trial(
        LIMIT, 2 * RUNS, RUNS, snapshot_of(LIMIT, scope="machine", window_ms=3_600_000)
    ),
    "16 runs, 50 calls an hour": Trial(
        50, 2 * RUNS, RUNS, snapshot_of(50, scope="machine", window_ms=3_600_000), busy=400
    ),
}


def work(allowed_path: str, go_path: str, run_id: str, snapshot: dict[str, Any], busy: int, share: int) -> None:
    """Between two calls on the budget, make many that only keep the state busy, so that kills meet it at work.

    One byte is written for every call that went through, after the verdict: a kill in between loses one byte.
    """
    state = SharedState.open(run_id)
    assert isinstance(state, SharedState), state.reason
    run = Run(snapshot, state=state)
    out = os.open(allowed_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    wait_for(lambda: os.path.exists(go_path), DEADLINE_SECONDS, "the start")
    while True:
        for _ in range(busy):
            run.at = time.monotonic_ns() // 1_000_000
            run.call("busy")
        # The budget lasts until enough were killed, however slow the killing is.
        if os.fstat(out).st_size >= share and not os.path.exists(f"{go_path}.on"):
            continue
        decision = run.call("t").decision
        if decision.action == "ALLOW":
            os.write(out, b".")
        elif decision.reason_code == "BUDGET_EXCEEDED":
            os._exit(0)


def start(number: int, folder: Path, trial: Trial) -> BaseProcess:
    # Forked, because 80 interpreters would take longer to start than the test itself takes.
    files = str(folder / f"allowed-{number}"), str(folder / "go")
    share = max(1, trial.limit // (4 * trial.processes))
    args = (*files, f"run-{number % trial.runs}", trial.snapshot, trial.busy, share)
    worker = get_context("fork").Process(target=work, args=args)
    worker.start()
    return worker


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUB_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.mark.timeout(240)
@pytest.mark.contract("POL-003")
@pytest.mark.parametrize("trial", TRIALS.values(), ids=TRIALS)
def test_a_shared_budget_is_exact_whoever_is_killed(tmp_path: Path, trial: Trial) -> None:
    dice = random.Random(SEED)
    wide = trial.runs > 1
    limit, processes = trial.limit, trial.processes
    workers = [start(number, tmp_path, trial) for number in range(processes)]
    killed = 0

    def allowed() -> int:
        return sum(path.stat().st_size for path in tmp_path.glob("allowed-*"))

    try:
        wait_for(
            lambda: len(list(tmp_path.glob("allowed-*"))) == processes, DEADLINE_SECONDS, "every worker to be ready"
        )
        (tmp_path / "go").touch()
        number = processes
        while killed < KILLS and allowed() < limit - limit // 40:
            running = [worker for worker in workers if worker.exitcode is None]
            if not running:
                break
            victim = dice.choice(running)
            victim.kill()
            victim.join()
            killed += victim.exitcode == -signal.SIGKILL
            if dice.random() < 0.5:  # clients respawn dead servers; the run goes on where it was
                workers.append(start(number, tmp_path, trial))
                number += 1
            if killed >= ENOUGH_KILLS:
                (tmp_path / "go.on").touch()
            pause(dice.random() * 0.005)
        wait_for(
            lambda: all(worker.exitcode is not None for worker in workers), DEADLINE_SECONDS, "every worker to end"
        )
    finally:
        for worker in workers:
            worker.kill()
            worker.join()

    assert killed >= ENOUGH_KILLS, "the test did not do its work"
    assert {worker.exitcode for worker in workers} <= {0, -signal.SIGKILL}
    state = SharedState.open("run-0")
    assert isinstance(state, SharedState)
    run = Run(trial.snapshot, state=state)
    run.at = time.monotonic_ns() // 1_000_000
    assert run.action("t") == "BLOCK"
    view = wide_state() if wide else run_state("run-0")
    assert view is not None
    (counter,) = [counter for counter in view.counters if counter.rule_id == "b"]
    assert counter.used["calls"] == limit
    if wide:
        assert sum(counter.used_by.values()) == limit, "and each charge is known to be of one run"
    assert limit - killed <= allowed() <= limit


def work_on_and_on(stamps_path: str, run_id: str) -> None:
    """Write when each call went through, by the time of wide scopes. Ends when 150 have, and enough was killed."""
    state = SharedState.open(run_id)
    assert isinstance(state, SharedState), state.reason
    run = Run(snapshot_of(50, scope="machine", window_ms=STRETCH_MS), state=state)
    out = os.open(stamps_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    while os.fstat(out).st_size < 150 * STAMP.size or not os.path.exists(f"{stamps_path}.enough"):
        run.at = time.monotonic_ns() // 1_000_000
        if run.call("t").decision.action == "ALLOW":
            os.write(out, STAMP.pack(state.wide_ms))


@pytest.mark.timeout(240)
@pytest.mark.contract("POL-003")
def test_no_stretch_of_a_window_has_a_call_too_many_whoever_is_killed(tmp_path: Path) -> None:
    dice = random.Random(SEED)
    path = tmp_path / "stamps"

    def begin(number: int) -> BaseProcess:
        worker = get_context("fork").Process(target=work_on_and_on, args=(str(path), f"run-{number}"))
        worker.start()
        return worker

    workers = [begin(number) for number in range(RUNS)]
    killed = 0
    try:
        deadline = time.monotonic() + DEADLINE_SECONDS
        while time.monotonic() < deadline and any(worker.exitcode is None for worker in workers):
            pause(dice.random() * 0.2)
            number = dice.randrange(RUNS)
            if killed < KILLS and workers[number].exitcode is None:
                workers[number].kill()
                workers[number].join()
                killed += workers[number].exitcode == -signal.SIGKILL
                workers[number] = begin(number)
            if killed >= ENOUGH_KILLS:
                Path(f"{path}.enough").touch()
    finally:
        for worker in workers:
            worker.kill()
            worker.join()
    assert {worker.exitcode for worker in workers} == {0}
    assert killed >= ENOUGH_KILLS, "the test did not do its work"
    stamps = sorted(stamp for (stamp,) in STAMP.iter_unpack(path.read_bytes()))
    within = [bisect_right(stamps, at) - bisect_right(stamps, at - STRETCH_MS) for at in stamps]
    assert 50 - killed <= max(within) <= 50
