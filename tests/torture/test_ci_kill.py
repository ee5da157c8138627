"""Jobs killed at random: the bundle stays readable, and every decision whose answer the agent has seen is in it.

SUB_TORTURE_KILLS sets the number of jobs (default 8; the full profile is 50).
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
from pathlib import Path

import pytest

from harness.headless import NO_DELETE, Job
from harness.processes import MARKER_VARIABLE, assert_no_processes, new_marker
from harness.waiting import GENEROUS_S, pause, wait_for
from subluminal.ledger.store.writer import Store
from subluminal.ledger.trace.bundle import open_bundle
from subluminal.ledger.trace.bundle_proof import verify_bundle

KILLS = int(os.environ.get("SUB_TORTURE_KILLS", "8"))
SEED = 4_711
CALLS = [[("alpha", "beta")[n % 2], "delete_file" if n % 7 == 3 else "read", {"number": n + 1}] for n in range(2_000)]


def seen_by_the_agent(path: Path) -> set[int]:
    if not path.exists():
        return set()
    return {int(line.split()[2]) for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")}


@pytest.mark.timeout(600)
def test_a_killed_job_leaves_a_bundle_with_every_decision_taken(tmp_path: Path) -> None:
    dice = random.Random(SEED)
    sealed = unsealed = answered_in_all = 0
    for number in range(KILLS):
        folder = tmp_path / f"job-{number}"
        folder.mkdir()
        after = folder / "after"
        flags = ("--bundle", "trace", "--run-id", f"job-{number}")
        job = Job(folder, *flags, policy=NO_DELETE, calls=CALLS, after=str(after), servers=("alpha", "beta"))
        marker = job.env[MARKER_VARIABLE] = new_marker()
        how = dice.choice(["group", "run", "term"])
        with job.start(start_new_session=True) as process:
            wait_for(lambda: process.poll() is not None or len(seen_by_the_agent(after)) > 3, what="answers")  # noqa: B023
            pause(dice.random() * 0.3)
            if how == "term":
                process.send_signal(signal.SIGTERM)
            elif how == "run":
                process.kill()  # the agent and its shims go on for a moment: they must be recorded too
                pause(dice.random() * 0.2)
            if how != "term":
                with contextlib.suppress(ProcessLookupError):  # all of it has ended by itself
                    os.killpg(process.pid, signal.SIGKILL)
            process.communicate(timeout=60)
        assert_no_processes(marker, within=GENEROUS_S)

        trace = str(folder / "trace")
        report = verify_bundle(trace)
        assert report.ok, (how, report.faults)
        with open_bundle(trace) as bundle:
            lines = list(bundle.lines())
        decided = decided_numbers(lines)
        answered = seen_by_the_agent(after)
        assert answered <= decided.keys(), (how, sorted(answered - decided.keys()))
        wrong = {n for n, action in decided.items() if (action == "BLOCK") != (CALLS[n - 1][1] == "delete_file")}
        assert not wrong
        store = Store(str(folder / "ledger.db"))
        store.write(lambda: [store.add(line) for line in lines])  # noqa: B023
        store.close()
        summary = json.loads((folder / "trace" / "summary.json").read_text())
        assert summary["run_id"] == f"job-{number}"
        answered_in_all += len(answered)
        sealed += (folder / "trace" / "manifest.json").exists()
        unsealed += not (folder / "trace" / "manifest.json").exists()
    assert answered_in_all > 3 * KILLS and sealed and unsealed, "the test did not do its work"


def decided_numbers(lines: list[bytes]) -> dict[int, str]:
    """The calls' numbers, from their arguments, and what was decided."""
    numbers: dict[str, int] = {}
    decided: dict[int, str] = {}
    for line in lines:
        event = json.loads(line)
        if event["type"] == "tool_call_start":
            numbers[event["call"]["call_id"]] = json.loads(event["call"]["preview"]["args_preview"])["number"]
        elif event["type"] == "tool_call_decision":
            decided[numbers[event["call"]["call_id"]]] = event["decision"]["action"]
    return decided
