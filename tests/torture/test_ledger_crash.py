"""Producers write journals while ledgerd is killed again and again, and some of them too: nothing is lost or doubled.

The short profile runs with the suite. `SUB_TORTURE=full` runs 50,000 events and 20 kills.
"""

from __future__ import annotations

import json
import os
import random
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from harness import places
from harness.ledger import EventMaker, ledgerd, spool_of, start_ledgerd, sub_environment
from harness.waiting import pause, wait_for
from subluminal.ledger.store.lines import LineReader
from subluminal.ledger.trace.verify import verify_run

FULL = os.environ.get("SUB_TORTURE") == "full"
EVENTS = 50_000 if FULL else 8_000
KILLS = 20 if FULL else 5
PRODUCERS = 4
VICTIMS = 3
SEED = 20_261_115

PRODUCER = """
import os, sys, time
sys.path.insert(0, sys.argv[5])
from harness.ledger import EventMaker, create_journal
spool, shim, run, calls = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
journal = create_journal(spool, shim)
maker = EventMaker(run, shim)
def put(line):
    data = line + b"\\n"
    while data:
        data = data[os.write(journal, data):]
put(maker.run_start())
for number in range(calls):
    for line in maker.call():
        put(line)
    if number % 50 == 0:
        time.sleep(0.02)
put(maker.run_end())
"""


@pytest.mark.contract("LED-001")
@pytest.mark.timeout(600)
def test_every_event_is_in_the_ledger_once_after_kills_at_random_moments(tmp_path: Path) -> None:
    home = tmp_path / "home"
    spool = spool_of(home)
    chance = random.Random(SEED)
    print("seed", SEED)
    calls = (EVENTS // PRODUCERS - 2) // 3
    tests = str(places.ROOT / "tests")
    producers = [
        subprocess.Popen(
            [sys.executable, "-c", PRODUCER, str(spool), f"shim-{i}", f"run-{i % 2}", str(calls), tests],
            env=sub_environment(home),
        )
        for i in range(PRODUCERS)
    ]
    victims = [
        subprocess.Popen(
            [sys.executable, "-c", PRODUCER, str(spool), f"victim-{i}", f"run-killed-{i}", "1000000", tests],
            env=sub_environment(home),
        )
        for i in range(VICTIMS)
    ]
    for _ in range(KILLS):
        daemon = start_ledgerd(home)
        pause(chance.uniform(0.05, 0.7))
        daemon.kill()
        daemon.wait()
    wait_for(lambda: all((spool / f"victim-{i}.jsonl").exists() for i in range(VICTIMS)))
    for victim in victims:
        pause(chance.uniform(0.0, 0.3))
        victim.kill()
        victim.wait()
    written = [(spool / f"victim-{i}.jsonl").read_bytes().splitlines() for i in range(VICTIMS)]
    with ledgerd(home):
        for producer in producers:
            assert producer.wait(300) == 0
        wait_for(lambda: not list(spool.glob("*.jsonl")), 120, "the spool emptied")

    expected = {
        (f"shim-{i}", seq): line
        for i in range(PRODUCERS)
        for seq, line in enumerate(EventMaker(f"run-{i % 2}", f"shim-{i}").whole_run(calls), 1)
    }
    database = sqlite3.connect(home / "ledger.db")
    assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    reader = LineReader(database)
    stored = [
        ((shim_id, first_seq + i), reader.line(run_no, first_n + i))
        for shim_id, first_seq, run_no, first_n, count in database.execute(
            "SELECT shim_id, first_seq, run_no, first_n, count FROM spans JOIN producers USING (producer_no)"
        )
        for i in range(count)
    ]
    assert len(stored) == len(dict(stored))
    whole = {key: line for key, line in stored if not key[0].startswith("victim")}
    assert whole == expected
    for i, lines in enumerate(written):
        kept = [line for (shim_id, _), line in sorted(stored) if shim_id == f"victim-{i}"]
        assert kept[: len(lines)] == lines
        closing = [json.loads(line) for line in kept[len(lines) :]]
        assert closing and all(event["closed_by"] == "ledgerd" for event in closing)
        assert closing[-1]["type"] == "run_end"
    for run_id in ("run-0", "run-1", *(f"run-killed-{i}" for i in range(VICTIMS))):
        report = verify_run(str(home / "ledger.db"), run_id)
        assert report.faults == []
    living = "FROM runs WHERE run_id IN ('run-0', 'run-1')"
    total, allowed = database.execute(f"SELECT sum(calls_total), sum(calls_allowed) {living}").fetchone()
    assert total == allowed == calls * PRODUCERS
    assert {row[0] for row in database.execute(f"SELECT status {living}")} == {"SUCCEEDED"}
    counted = database.execute("SELECT sum(calls_total) FROM runs").fetchone()
    assert database.execute("SELECT count(*) FROM tool_calls").fetchone() == counted
    assert database.execute("SELECT DISTINCT status FROM runs WHERE run_id LIKE 'run-killed%'").fetchall() == [
        ("FAILED",)
    ]
    assert database.execute("SELECT count(*) FROM rejected").fetchone()[0] == 0
