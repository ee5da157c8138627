"""One budget of 6,000 and SIGKILL at random: exactly 6,000 are charged and no call too many goes through.

Of 64 processes in one run, and of 16 runs on a budget of the whole machine.
"""

from __future__ import annotations

import os
import random
import signal
import time
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest

from harness.engine import Run, compiled, rule, tools
from harness.waiting import pause, wait_for
from subluminal.host.run.state import SharedState
from subluminal.host.run.view import run_state, wide_state

PROCESSES = 64
LIMIT = 6_000
KILLS = 40
DEADLINE_SECONDS = 90
SEED = 20_261

RUNS = 16

OF_A_RUN, OF_THE_MACHINE = (
    compiled(
        rule("b", "budget", tools("t"), scope=scope, limit_calls=LIMIT, on_exceed="BLOCK"),
        rule("busy", "budget", tools("busy"), scope="tool", limit_calls=10**9, on_exceed="BLOCK"),
        rule("loop", "breaker", tools("busy"), scope="tool", repeat_threshold=50, repeat_window_ms=1, on_trip="BLOCK"),
    )
    for scope in ("run", "machine")
)


def work(allowed_path: str, go_path: str, run_id: str, snapshot: dict[str, Any]) -> None:
    """Between two calls on the budget, make many that only keep the state busy, so that kills meet it at work.

    One byte is written for every call that went through, after the verdict: a kill in between loses one byte.
    """
    state = SharedState.open(run_id)
    assert isinstance(state, SharedState), state.reason
    run = Run(snapshot, state=state)
    out = os.open(allowed_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    wait_for(lambda: os.path.exists(go_path), DEADLINE_SECONDS, "the start")
    while True:
        for _ in range(5):
            run.at = time.monotonic_ns() // 1_000_000
            run.call("busy")
        decision = run.call("t").decision
        if decision.action == "ALLOW":
            os.write(out, b".")
        elif decision.reason_code == "BUDGET_EXCEEDED":
            os._exit(0)


def start(number: int, folder: Path, wide: bool) -> BaseProcess:
    # Forked, because 80 interpreters would take longer to start than the test itself takes.
    run_id, snapshot = (f"run-{number % RUNS}", OF_THE_MACHINE) if wide else ("run", OF_A_RUN)
    files = str(folder / f"allowed-{number}"), str(folder / "go")
    worker = get_context("fork").Process(target=work, args=(*files, run_id, snapshot))
    worker.start()
    return worker


@pytest.mark.timeout(240)
@pytest.mark.contract("POL-003")
@pytest.mark.parametrize("wide", [False, True], ids=["64 processes of one run", "16 runs on one machine"])
def test_a_shared_budget_is_exact_whoever_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wide: bool
) -> None:
    monkeypatch.setenv("SUB_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HOME", str(tmp_path))
    dice = random.Random(SEED)
    processes = RUNS * 2 if wide else PROCESSES
    workers = [start(number, tmp_path, wide) for number in range(processes)]
    killed = 0

    def allowed() -> int:
        return sum(path.stat().st_size for path in tmp_path.glob("allowed-*"))

    try:
        wait_for(
            lambda: len(list(tmp_path.glob("allowed-*"))) == processes, DEADLINE_SECONDS, "every worker to be ready"
        )
        (tmp_path / "go").touch()
        number = processes
        while killed < KILLS and allowed() < LIMIT - 150:
            running = [worker for worker in workers if worker.exitcode is None]
            if not running:
                break
            victim = dice.choice(running)
            victim.kill()
            victim.join()
            killed += victim.exitcode == -signal.SIGKILL
            if dice.random() < 0.5:  # clients respawn dead servers; the run goes on where it was
                workers.append(start(number, tmp_path, wide))
                number += 1
            pause(dice.random() * 0.005)
        wait_for(
            lambda: all(worker.exitcode is not None for worker in workers), DEADLINE_SECONDS, "every worker to end"
        )
    finally:
        for worker in workers:
            worker.kill()
            worker.join()

    assert killed >= 5, "the test did not do its work"
    assert {worker.exitcode for worker in workers} <= {0, -signal.SIGKILL}
    state = SharedState.open("run")
    assert isinstance(state, SharedState)
    run = Run(OF_THE_MACHINE if wide else OF_A_RUN, state=state)
    assert run.action("t") == "BLOCK"
    view = wide_state() if wide else run_state("run")
    assert view is not None
    (counter,) = [counter for counter in view.counters if counter.rule_id == "b"]
    assert counter.used["calls"] == LIMIT
    if wide:
        assert sum(counter.used_by.values()) == LIMIT, "and each charge is known to be of one run"
    assert LIMIT - killed <= allowed() <= LIMIT
