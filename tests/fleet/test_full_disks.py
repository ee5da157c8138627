"""A disk that is full where a machine writes down what was acknowledged, or where its ledger is: nothing is lost, and
it goes on by itself when there is room. Needs a mount."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("tuf", reason="needs the extra `fleet` (make test-fleet)")

from harness.collector import CollectorProcess, Machine, collector
from harness.command_line import run_sub
from harness.disks import fill, resize, small_disk
from harness.fleet import Fleet, bundle
from harness.fleet_names import run_id, shim_id
from harness.ledger import EventMaker, ledgerd, spool_of, sub_environment
from harness.waiting import wait_for
from subluminal.fleet.shipping.holding import may_go

NOT_WRITTEN = "How far was shipped cannot be written down"


@contextmanager
def shipping(machine: Machine, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The shipper as a process that goes on."""
    with open(log, "wb") as stderr:
        process = subprocess.Popen(machine.command(), env=sub_environment(machine.home), stderr=stderr)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def acked_segments(fleet: CollectorProcess) -> float:
    return fleet.metric('subluminal_collector_segments_total{outcome="acked"}')


def calls(fleet: CollectorProcess) -> int:
    return int(fleet.sub("query", "--count").stdout)


def test_what_was_acknowledged_and_cannot_be_written_down_is_not_sent_again(one_store: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with collector(tmp_path / "collector", one_store) as fleet, small_disk(tmp_path / "m1" / "fleet", "1m"):
        machine = Machine(tmp_path / "m1", fleet)
        machine.record(EventMaker(run_id(1), shim_id(1)).whole_run(2))
        with shipping(machine, log) as process:
            wait_for(lambda: machine.standing()["events"], enough=lambda found: found == 8, what="the first run")
            filler = fill(tmp_path / "m1" / "fleet")
            machine.record(EventMaker(run_id(2), shim_id(2)).whole_run(3))
            wait_for(lambda: log.read_text().count(NOT_WRITTEN) >= 3, what="it has tried three times")
            assert process.poll() is None
            sent = acked_segments(fleet)
            assert sent > 0 and calls(fleet) == 5, "the collector has it"
            filler.unlink()
            wait_for(lambda: machine.standing()["events"], enough=lambda found: found == 19, what="what waited")
        assert acked_segments(fleet) == sent, "nothing was sent twice"
        assert fleet.metric("subluminal_collector_duplicates_total") == 0
        assert machine.ship().returncode == 0 and acked_segments(fleet) == sent


def test_a_shipper_that_ends_on_a_full_disk_sends_again_and_the_store_has_each_event_once(
    one_store: str, tmp_path: Path
) -> None:
    with collector(tmp_path / "collector", one_store) as fleet, small_disk(tmp_path / "m1" / "fleet", "1m"):
        machine = Machine(tmp_path / "m1", fleet)
        machine.record(EventMaker(run_id(1), shim_id(1)).whole_run(2))
        assert machine.ship().returncode == 0
        filler = fill(tmp_path / "m1" / "fleet")
        machine.record(EventMaker(run_id(2), shim_id(2)).whole_run(3))
        done = machine.ship()
        assert done.returncode in (1, 2) and NOT_WRITTEN in done.stderr and "Traceback" not in done.stderr
        status = run_sub(machine.home, "fleet", "ship", "--status")
        assert "Traceback" not in status.stderr
        filler.unlink()
        assert machine.ship().returncode == 0
        assert machine.standing()["unacked_events"] == 0 and calls(fleet) == 5
        assert json.loads(fleet.sub("verify", run_id(2), "--json").stdout)["faults"] == []


def test_a_keeper_that_starts_on_a_full_disk_says_so_and_goes_on_when_there_is_room(
    one_store: str, tmp_path: Path
) -> None:
    home = tmp_path / "sub"

    def keep() -> dict[str, Any]:
        told: dict[str, Any] = json.loads(run_sub(home, "fleet", "keep", "--once", "--json").stdout)["tasks"]
        return told

    with (
        small_disk(home / "fleet", "1m"),
        collector(tmp_path / "collector", one_store) as fleet,
        Fleet(tmp_path) as origin,
    ):
        token = tmp_path / "token"
        token.write_text(fleet.token("acme", "m1"))
        origin.publish(bundle("first"))
        machine = origin.join("sub", collector=fleet.url, token_file=str(token))
        Machine(home, fleet).record(EventMaker(run_id(1), shim_id(1)).whole_run(2))
        filler = fill(home / "fleet")
        origin.publish(bundle("second"))
        assert "cannot be kept here" in keep()["refresh"]
        assert machine.policy_ids() == ["first"]
        shown = run_sub(home, "fleet", "status")
        assert f"disk       The disk of {home / 'fleet'} is full" in shown.stdout and "Traceback" not in shown.stderr
        told = json.loads(run_sub(home, "doctor", "--json").stdout)
        assert "fleet-no-room" in [one["code"] for one in told["findings"]]
        filler.unlink()
        assert keep() == dict.fromkeys(("stop", "refresh", "ship", "telemetry"))
        assert machine.policy_ids() == ["second"] and calls(fleet) == 2
        assert "is full" not in run_sub(home, "fleet", "status").stdout


def test_a_ledger_whose_disk_is_full_is_shipped_whole_when_there_is_room(one_store: str, tmp_path: Path) -> None:
    home, log = tmp_path / "m1", tmp_path / "log"
    with (
        collector(tmp_path / "collector", one_store) as fleet,
        small_disk(home, "1m"),
        small_disk(home / "spool", "32m"),
    ):
        machine = Machine(home, fleet)
        lines = EventMaker(run_id(1), shim_id(1)).whole_run(3000)
        journal = spool_of(home) / f"{shim_id(1)}.jsonl"
        with ledgerd(home), shipping(machine, log) as process:
            journal.write_bytes(b"".join(line + b"\n" for line in lines))
            wait_for(lambda: "last error" in run_sub(home, "ledgerd", "--status").stderr, what="it is full")
            assert journal.exists() and process.poll() is None
            resize(home, "64m")
            wait_for(lambda: not journal.exists(), 60, "the journal was taken in")
            wait_for(lambda: machine.standing()["unacked_events"], enough=lambda left: left == 0, what="all is shipped")
        assert calls(fleet) == 3000
        assert fleet.sub("verify", run_id(1)).returncode == 0


def test_where_nothing_can_be_put_aside_nothing_that_waits_is_pruned(tmp_path: Path, one_store: str) -> None:
    with collector(tmp_path / "collector", one_store) as fleet, small_disk(tmp_path / "m1" / "fleet", "1m"):
        machine = Machine(tmp_path / "m1", fleet)
        machine.record(EventMaker(run_id(1), shim_id(1)).whole_run(2))
        assert machine.ship().returncode == 0
        machine.record(EventMaker(run_id(2), shim_id(2)).whole_run(200))
        filler = fill(tmp_path / "m1" / "fleet")
        found = may_go("2030", str(machine.home), bound=0)
        assert found is not None and found.released == frozenset()
        filler.unlink()
        found = may_go("2030", str(machine.home), bound=0)
        assert found is not None and found.released == {run_id(2)}
