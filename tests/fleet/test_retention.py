"""What is older than it is to be kept goes, of every table and on both stores; what is younger stays."""

from __future__ import annotations

import time
from typing import Any

import pytest

from harness.collector import segment_of
from harness.fleet_names import run_id, shim_id
from harness.ledger import EventMaker
from subluminal.contracts.moments import DAY_MS
from subluminal.fleet.collector.rows import rows_of
from subluminal.fleet.segments import Segment
from subluminal.fleet.stores.base import Store, open_store
from subluminal.fleet.stores.tables import FILED, RUNS, TABLES

from .test_collector import execute, is_clickhouse

TODAY_MS = time.time_ns() // 1_000_000


def filed(store: Store, number: int, ts_ms: int, arrived_ms: int) -> None:
    """A run of one shim, whose clock said `ts_ms` when the collector's said `arrived_ms`."""
    maker = EventMaker(run_id(number), shim_id(number))
    maker.ms = ts_ms
    lines = maker.whole_run(2)
    segment = Segment(run_id(number), shim_id(number), 1, lines, [(1, len(lines))], (len(lines), "ab" * 32))
    store.write(rows_of(segment, "acme", "m1", arrived_ms).rows())


def expired(opened: Any, days: int) -> dict[str, set[str]]:
    """The runs that each table still knows, once the engine has done what it does in its own time."""
    opened.expire(days)
    for table in TABLES:
        if opened.dialect.calls != "calls":
            opened._do("write", lambda client, name=table.name: client.command(f"OPTIMIZE TABLE {name} FINAL"))
    return {table.name: {row[0] for row in opened.select(f"SELECT run_id FROM {table.name}", {})} for table in TABLES}


def test_retention_removes_what_is_older_of_every_table_and_nothing_else(store: str) -> None:
    opened = open_store(store)
    opened.migrate(0)
    old_ms = TODAY_MS - 40 * DAY_MS
    filed(opened, 1, old_ms, old_ms)
    filed(opened, 2, TODAY_MS, TODAY_MS)
    filed(opened, 3, TODAY_MS - 5000 * DAY_MS, TODAY_MS)  # its clock was wrong: it is filed under the day it arrived
    assert expired(opened, 0) == {table.name: {run_id(1), run_id(2), run_id(3)} for table in TABLES}
    assert expired(opened, 30) == {table.name: {run_id(2), run_id(3)} for table in TABLES}
    opened.close()


def test_a_run_that_goes_on_is_kept_with_what_is_young_of_it(store: str) -> None:
    opened = open_store(store)
    opened.migrate(30)
    maker = EventMaker(run_id(1), shim_id(1))
    maker.ms = TODAY_MS - 31 * DAY_MS
    first = [maker.run_start(), *maker.call()]
    maker.ms = TODAY_MS
    second = maker.call()
    for seq, lines in ((1, first), (len(first) + 1, second)):
        opened.write(rows_of(segment_of(lines, run_id(1), shim_id(1), seq), "acme", "m1", TODAY_MS).rows())
    known = expired(opened, 30)
    assert known["runs"] == known["events"] == known["spans"] == {run_id(1)}
    assert len(opened.select(f"SELECT seq FROM {opened.dialect.events}", {})) == len(second)
    opened.close()


@pytest.mark.parametrize("age_days", [5, 40])
def test_a_run_that_was_stored_without_its_day_goes_when_it_is_old(store: str, age_days: int) -> None:
    opened = open_store(store)
    opened.migrate(0)
    execute(opened, f"ALTER TABLE runs DROP COLUMN {FILED[0]}")
    if is_clickhouse(opened):
        execute(opened, "DROP VIEW runs_once", "TRUNCATE TABLE migrations")
        execute(opened, "INSERT INTO migrations SELECT number + 1 FROM numbers(4)")
    else:
        execute(opened, "DELETE FROM migrations WHERE version > 4")
    last_ms = TODAY_MS - age_days * DAY_MS
    names = [name for name in RUNS.names if name not in FILED]
    values = ", ".join({"tenant": "'t'", "run_id": "'r'", "last_ms": str(last_ms)}.get(name, "NULL") for name in names)
    execute(opened, f"INSERT INTO runs ({', '.join(names)}) VALUES ({values})")
    opened.migrate(0)
    assert expired(opened, 30)["runs"] == ({"r"} if age_days < 30 else set())
    opened.close()
