"""The emergency stop reaches every machine in time: machines with homes of their own, each kept as a keeper keeps it.

`make test` has a few machines that look often; `make test-fleet` has 50 with the defaults, and prints what it took.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("tuf", reason="needs the extra `fleet` (make test-fleet)")

from harness.fleet import Fleet, bundle
from harness.shim import isolated_env
from harness.stores import WHOLE
from harness.waiting import wait_for
from subluminal.fleet.published import policies_path, tenant_role

MACHINES, POLL_MS, PROCESSES = (50, 10_000, 5) if WHOLE else (6, 1_000, 2)
# With the defaults 15 s; as many times the poll where machines look more often, and a second for a busy machine.
LIMIT_S = 15.0 if WHOLE else 2.5

_KEEP = """
import os, sys, threading
from subluminal.fleet.joined import require_joined
from subluminal.fleet.keeper.keeper import Keeper
from subluminal.fleet.keeper.tasks import tasks_of
from subluminal.ledger.daemon.log import Log

homes = sys.argv[1:]
logs = {home: Log(home + "/fleet/keeper.log", echo=False) for home in homes}
keepers = []
for home in homes:
    joined = require_joined(home)
    keepers.append(Keeper(home, joined, tasks_of(joined, home, logs[home]), logs[home]))
threads = [threading.Thread(target=keeper.run) for keeper in keepers]
for thread in threads:
    thread.start()
print("ready", flush=True)
sys.stdin.read()
os._exit(0)
"""


def test_every_machine_obeys_a_stop_in_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Fleet(tmp_path) as fleet:
        fleet.publish(bundle("base", deny="delete*"))
        machines = [fleet.join(f"m{number}", stop_poll_ms=POLL_MS) for number in range(MACHINES)]
        homes = [machine.home for machine in machines]
        keepers = [_keep(tmp_path, homes[number::PROCESSES]) for number in range(PROCESSES)]
        try:
            for keeper in keepers:
                assert keeper.stdout is not None and keeper.stdout.readline() == b"ready\n"
            # Everybody has looked once: from here on they are anywhere between two looks.
            wait_for(lambda: all(_has_looked(home) for home in homes), 60, "every machine to have looked")
            began = time.monotonic()
            fleet.stop(reason="drill")
            seen: dict[str, float] = {}

            def all_obey() -> bool:
                now = time.monotonic() - began
                for machine in machines:
                    if machine.home not in seen and any(each.origin == "stop" for each in machine.in_force()):
                        seen[machine.home] = now
                return len(seen) == len(machines)

            wait_for(all_obey, 60, "every machine to obey")
        finally:
            for keeper in keepers:
                keeper.kill()
                keeper.wait()
    times = sorted(seen.values())
    p50, p99 = times[len(times) // 2], times[min(len(times) - 1, int(len(times) * 0.99))]
    with capsys.disabled():
        if WHOLE:
            print(f"\n{MACHINES} machines, a look every {POLL_MS / 1000:g} s: p50 {p50:.1f} s, p99 {p99:.1f} s")
    assert p99 <= LIMIT_S, times


def test_a_stop_does_not_wait_for_a_policy_that_an_origin_sends_slowly(tmp_path: Path) -> None:
    with Fleet(tmp_path) as fleet:
        machine = fleet.join("m", stop_poll_ms=200, refresh_ms=200)
        fleet.publish(bundle("large", deny="delete*"))
        digest = fleet.repository.trusted.read(tenant_role("all")).signed.targets[policies_path("all")].hashes["sha256"]
        begun, lifted = threading.Event(), threading.Event()

        def slowly() -> Iterator[bytes]:
            begun.set()
            while not lifted.wait(0.1):
                yield b" "

        fleet.origin.answers[f"/targets/policy/all/{digest}.policies.json"] = slowly
        keeper = _keep(tmp_path, [machine.home])
        try:
            assert begun.wait(60), "the policy is being fetched"
            fleet.stop(reason="drill")
            wait_for(lambda: machine.stop_ids() == ["stop-0"], what="the stop, while the policy is on its way")
            assert not lifted.is_set() and machine.policy_ids() == []
        finally:
            lifted.set()
            keeper.kill()
            keeper.wait()


def _keep(tmp_path: Path, homes: list[str]) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", _KEEP, *homes]
    return subprocess.Popen(command, env=isolated_env(tmp_path), stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def _has_looked(home: str) -> bool:
    from subluminal.fleet.keeper.state import read_state

    return "stop" in read_state(home).tasks
