"""A ledger daemon that stands still costs the agent nothing: calls go on at the same pace and no decision is lost.

The short profile stops it for two seconds. `SUB_TORTURE=full` stops it for ten.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import statistics
import time
from pathlib import Path

import pytest

from harness.driver import Agent
from harness.fake_server import fake_server
from harness.ledger import ledgerd, spool_of
from harness.shim import Shim
from harness.sink import Spool
from harness.waiting import wait_for, while_passing
from subluminal.ledger.trace.verify import verify_run

SECONDS = 10.0 if os.environ.get("SUB_TORTURE") == "full" else 2.0
IN_FLIGHT = 8
# Other processes on the machine make single calls slow, in either part of the test: so many times the usual.
NOISE = 20


def latencies(agent: Agent, seconds: float) -> list[float]:
    """Rounds of several calls at once, in milliseconds per round."""
    taken = []
    for _ in while_passing(seconds):
        began = time.perf_counter()
        ids = [agent.start_call("echo", {"text": "x" * 2000, "n": len(taken)}) for _ in range(IN_FLIGHT)]
        assert all("result" in reply for reply in agent.replies(ids))
        taken.append((time.perf_counter() - began) * 1000)
    return taken


def p99(taken: list[float]) -> float:
    return sorted(taken)[int(len(taken) * 0.99)]


def p10(taken: list[float]) -> float:
    """What a round takes at the moments when the machine is free for it."""
    return sorted(taken)[int(len(taken) * 0.1)]


@pytest.mark.contract("LED-002")
@pytest.mark.timeout(240)
def test_calls_keep_their_pace_and_every_decision_arrives_though_the_daemon_stood_still(tmp_path: Path) -> None:
    home = tmp_path / "sub"
    spool = spool_of(home)
    shim = Shim(tmp_path, "box", fake_server(tools={"echo": {}}), events=Spool(spool))
    with ledgerd(home) as daemon, shim.start() as agent:
        agent.initialize()
        latencies(agent, SECONDS / 4)  # until everything is loaded
        before = latencies(agent, SECONDS)
        daemon.send_signal(signal.SIGSTOP)
        try:
            stalled = latencies(agent, SECONDS)
            written = (next(spool.glob("*.jsonl"))).stat().st_size
        finally:
            daemon.send_signal(signal.SIGCONT)
        agent.finish()
        print(f"p99 of {IN_FLIGHT} calls: {p99(before):.1f} ms, with a stopped daemon {p99(stalled):.1f} ms")
        assert p10(stalled) <= 2 * p10(before), "as many calls in the same time"
        assert p99(stalled) <= 2 * max(p99(before), NOISE * statistics.median(before))
        assert written > len(stalled) * IN_FLIGHT * 1000
        wait_for(lambda: not list(spool.glob("*.jsonl")), 120, "the journal was taken in")
    database = sqlite3.connect(home / "ledger.db")
    (run_id, total, allowed, status) = database.execute(
        "SELECT run_id, calls_total, calls_allowed, status FROM runs"
    ).fetchone()
    assert total == allowed >= (len(before) + len(stalled)) * IN_FLIGHT
    assert status == "SUCCEEDED"
    assert database.execute("SELECT count(*) FROM tool_calls WHERE decision IS NULL OR status IS NULL").fetchone() == (
        0,
    )
    assert verify_run(str(home / "ledger.db"), run_id).ok
    # A journal is a file: it takes what it is given, so nothing had to be shed.
    previews = database.execute("SELECT count(*) FROM previews WHERE args_preview IS NOT NULL").fetchone()
    assert previews == (total,)
