"""A home within a bound of bytes, kept by the keeper itself: what was acknowledged goes first, a decision that was not
never."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("tuf", reason="needs the extra `fleet` (make test-fleet)")

from harness.collector import CollectorProcess, collector
from harness.command_line import run_sub, stored
from harness.fleet import Fleet, bundle
from harness.fleet_names import run_id, shim_id
from harness.ledger import EventMaker, ledgerd
from harness.waiting import wait_for
from subluminal.fleet.shipping.holding import KEPT_TYPES
from subluminal.fleet.shipping.room import disk_bytes

RUNS, CALLS = 24, 40
MIB = 1 << 20


def lines_of(number: int) -> list[bytes]:
    """A run with previews worth removing; those of a higher number ended later."""
    maker = EventMaker(run_id(number), shim_id(number), start_ms=1_700_000_000_000 + number * 3_600_000)
    lines = [maker.run_start()]
    chance = random.Random(number)
    for _ in range(CALLS):
        lines += [maker.start(preview=chance.randbytes(3000).hex()), maker.decision(), maker.end()]
    return [*lines, maker.run_end()]


@contextmanager
def joined(tmp_path: Path, store: str, max_disk: str) -> Iterator[tuple[Path, CollectorProcess]]:
    home, token = tmp_path / "sub", tmp_path / "token"
    with collector(tmp_path / "collector", store) as fleet, Fleet(tmp_path) as origin:
        origin.publish(bundle("first"))
        token.write_text(fleet.token("acme", "m1"))
        words = ("--collector", fleet.url, "--token-file", str(token), "--max-disk", max_disk)
        assert run_sub(home, "fleet", "join", origin.origin.url, "--root", origin.root, *words).returncode == 0
        run_sub(home, "ledgerd", "--stop")
        wait_for(lambda: "already" not in run_sub(home, "fleet", "keep", "--once").stderr, what="no other keeper")
        yield home, fleet


def within(home: Path, mib: int) -> dict[str, Any]:
    """ledgerd and the keeper that it starts, as on a machine, until the home is within its bound."""
    assert disk_bytes(str(home)) > mib * MIB
    with ledgerd(home):
        wait_for(lambda: disk_bytes(str(home)), enough=lambda size: size <= mib * MIB, what="within the bound")
        found = wait_for(lambda: _room(home), enough=lambda facts: not facts["over_bytes"], what="it is told")
    return found


def _room(home: Path) -> dict[str, Any]:
    facts: dict[str, Any] = json.loads(run_sub(home, "fleet", "status", "--json").stdout)["tasks"]["room"]["facts"]
    return facts


def runs(home: Path) -> list[str]:
    found = run_sub(home, "runs", "--json", "--limit", "0").stdout.splitlines()
    return sorted(json.loads(line)["run_id"] for line in found)


def kept_lines(fleet: CollectorProcess, number: int) -> list[bytes]:
    found: list[str] = fleet.ask(f"/v1/lines?run_id={run_id(number)}", fleet.reader)[2]["lines"]
    return [line.encode() for line in found]


def test_what_was_acknowledged_goes_first_and_only_as_much_as_is_needed(one_store: str, tmp_path: Path) -> None:
    with joined(tmp_path, one_store, "4MiB") as (home, fleet):
        for number in range(1, RUNS + 1):
            stored(home, lines_of(number))
        while json.loads(run_sub(home, "fleet", "ship", "--once", "--json").stdout)["unacked_events"]:
            pass
        assert within(home, 4)["bytes"] <= 4 * MIB
        left = runs(home)
        assert 0 < len(left) < RUNS and left == [run_id(n) for n in range(RUNS - len(left) + 1, RUNS + 1)], "the newest"
        assert "room       " in run_sub(home, "fleet", "status").stdout
        assert run_sub(home, "verify", "--all").returncode == 0
        assert int(fleet.sub("query", "--count").stdout) == RUNS * CALLS


def test_a_machine_that_cannot_send_keeps_every_decision_and_sends_them_later(one_store: str, tmp_path: Path) -> None:
    with joined(tmp_path, one_store, "5MiB") as (home, fleet):
        fleet.kill()
        sent = {number: lines_of(number) for number in range(1, RUNS + 1)}
        for lines in sent.values():
            stored(home, lines)
        within(home, 5)
        left = runs(home)
        assert 0 < len(left) < RUNS
        fleet.start()
        wait_for(
            lambda: json.loads(run_sub(home, "fleet", "ship", "--once", "--json").stdout),
            enough=lambda told: told["unacked_events"] == 0 and told["held"] == 0,
            what="all of it is shipped",
        )
        for number, lines in sent.items():
            whole = run_id(number) in left
            wanted = lines if whole else [line for line in lines if json.loads(line)["type"] in KEPT_TYPES]
            assert kept_lines(fleet, number) == wanted


def test_a_size_that_is_none_and_a_bound_without_a_collector_are_sentences(tmp_path: Path) -> None:
    words = ("fleet", "join", "https://fleet.example", "--root", "r")
    done = run_sub(tmp_path, *words, "--max-disk", "1GiB")
    assert done.returncode == 2 and "--collector URL is missing" in done.stderr
    done = run_sub(tmp_path, *words, "--collector", "https://c.example", "--max-disk", "much")
    assert done.returncode == 2 and "no size" in done.stderr
