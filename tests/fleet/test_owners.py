"""A shim is of the machine that was first to send anything of it: what another brings is kept, alerts, and replaces
nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from harness.collector import CollectorProcess, collector, segment_of
from harness.fleet_names import run_id, shim_id
from harness.ledger import BASE_MS, EventMaker
from harness.waiting import wait_for
from subluminal.fleet.stores.base import open_store
from subluminal.fleet.stores.reading import Reader
from subluminal.fleet.stores.tables import CONTESTED, EVENTS, PRODUCERS

from .test_collector import execute, is_clickhouse

OF = (run_id(1), shim_id(1))


def decisions(fleet: CollectorProcess) -> dict[str, tuple[str, str | None]]:
    """By the number of the call, as it is listed; and what is counted is what is listed."""
    rows = fleet.rows("query", "--limit", "0")
    for word in ("ALLOW", "BLOCK"):
        counted = fleet.rows("query", "--count", "--decision", word)[0]["count"]
        assert counted == sum(row["decision"] == word for row in rows)
    return {row["call_id"].rpartition("-")[2]: (row["decision"], row["status"]) for row in rows}


def conflicts(fleet: CollectorProcess, token: str) -> float:
    """A store that tells only when asked is asked with a later commit."""

    def counted() -> float:
        fleet.send(segment_of(EventMaker(run_id(9), shim_id(9)).whole_run(1), run_id(9), shim_id(9)), token)
        return fleet.metric("subluminal_collector_conflicts_total")

    return wait_for(counted, what="a conflict to be counted")


def owner_faults(fleet: CollectorProcess) -> list[str]:
    reports = [json.loads(line) for line in fleet.sub("verify", run_id(1), "--json").stdout.splitlines()]
    return [fault["what"] for report in reports for fault in report["faults"] if fault.get("part") == "owners"]


def test_another_machine_cannot_change_what_a_call_became(store: str, tmp_path: Path) -> None:
    with collector(tmp_path / "collector", store) as fleet:
        mine, theirs = fleet.token("acme", "m1"), fleet.token("acme", "m2")
        maker = EventMaker(*OF)
        lines = [maker.run_start(), *maker.call(), maker.start(), maker.decision()]
        assert fleet.send(segment_of(lines, *OF), mine) == 200
        before = decisions(fleet)
        assert before == {"1": ("ALLOW", "OK"), "2": ("ALLOW", None)}

        under_the_same = [line.replace(b'"ALLOW"', b'"BLOCK"') for line in lines]
        maker.seq = 900
        under_another = [maker.decision("BLOCK")]
        for forged, seq in ((under_the_same, 1), (under_another, 901)):
            assert fleet.send(segment_of(forged, *OF, seq), theirs) == 200
        assert decisions(fleet) == before
        assert {call["decision"] for call in shown_calls(fleet)} == {"ALLOW"}
        assert conflicts(fleet, mine) == sum(a != b for a, b in zip(lines, under_the_same, strict=True)) + 1
        assert any("2 different lines" in what for what in owner_faults(fleet))
        assert any("event 901" in what and "the shim is of machine m1" in what for what in owner_faults(fleet))
        assert "CONFLICT" in (tmp_path / "collector" / "collector.log").read_text()

        maker.seq = len(lines)
        assert fleet.send(segment_of([maker.end("ERROR")], *OF, len(lines) + 1), mine) == 200
        assert decisions(fleet) == {"1": ("ALLOW", "OK"), "2": ("ALLOW", "ERROR")}


def shown_calls(fleet: CollectorProcess) -> list[dict[str, Any]]:
    """As they are folded from the lines that the collector gives out."""
    return [fleet.rows("show", f"{shim_id(1)}-{number}")[0] for number in (1, 2)]


def test_a_home_that_goes_on_under_another_name_loses_nothing(store: str, tmp_path: Path) -> None:
    """A volume that outlives its pod: the next pod sends what the first has left, in the middle of a call."""
    with collector(tmp_path / "collector", store) as fleet:
        first, second = fleet.token("acme", "pod-1"), fleet.token("acme", "pod-2")
        lines = EventMaker(*OF).whole_run(6)
        assert fleet.send(segment_of(lines[:9], *OF), first) == 200
        assert fleet.send(segment_of(lines[9:], *OF, 10), second) == 200
        assert decisions(fleet) == {str(number): ("ALLOW", "OK") for number in range(1, 7)}
        shown = fleet.rows("show", run_id(1))[0]
        assert shown["event_count"] == len(lines) and shown["status"] == "SUCCEEDED"
        told = fleet.ask(f"/v1/lines?run_id={run_id(1)}", fleet.reader)[2]["lines"]
        assert told == [line.decode() for line in lines]
        assert owner_faults(fleet)


def test_of_a_shim_id_that_two_machines_use_the_first_is_told_and_all_is_kept(store: str, tmp_path: Path) -> None:
    with collector(tmp_path / "collector", store) as fleet:
        first, second = fleet.token("acme", "m1"), fleet.token("acme", "m2")
        ours, maker = EventMaker(*OF).whole_run(3), EventMaker(*OF, start_ms=BASE_MS + 5)
        theirs = [maker.run_start(), *(line for _ in range(5) for line in maker.call("BLOCK"))]
        pieces = [(ours[:4], 1, first), (theirs, 1, second), (ours[4:], 5, first)]
        for lines, seq, token in pieces:
            assert fleet.send(segment_of(lines, *OF, seq), token) == 200
        assert decisions(fleet) == {
            **{str(number): ("ALLOW", "OK") for number in (1, 2, 3)},
            **{str(number): ("BLOCK", "ERROR") for number in (4, 5)},
        }
    reader = Reader(open_store(store), "acme")
    for machine, lines in (("m1", ours), ("m2", theirs)):
        known = reader.lines(*OF, 1, len(lines))
        for seq, line in enumerate(lines, 1):
            assert line.decode() in {text for whose, text in known[seq] if whose == machine or len(known[seq]) == 1}


def test_the_first_claim_stands_whoever_asks_and_however_clocks_go(store: str, tmp_path: Path) -> None:
    stores = [open_store(store) for _ in range(1 if store.startswith("chdb") else 2)]
    stores[0].migrate(0)
    key = ("acme", *OF)
    first = "2026-01-02T00:00:00.000Z m1"
    assert stores[0].claim([(*key, first, first[:10])]) == {key: first}
    for opened in stores:
        for moment in ("2026-01-01T00:00:00.000Z", "2026-03-01T00:00:00.000Z"):
            assert opened.claim([(*key, f"{moment} m2", moment[:10])]) == {key: first}
        assert Reader(opened, "acme").owners(OF[0]) == {OF[1]: "m1"}
        assert str(opened.select("SELECT max(day) FROM producers", {})[0][0]) == "2026-03-01"  # kept while it is used
    for opened in stores:
        opened.close()


def test_a_store_that_did_not_know_whose_a_shim_is_learns_it(store: str) -> None:
    opened = open_store(store)
    opened.migrate(0)
    names = (*EVENTS.names, "line_hash")
    if is_clickhouse(opened):
        execute(opened, "DROP VIEW events_once", "DROP VIEW conflicts", "DROP TABLE contested", "DROP TABLE producers")
        execute(opened, f"CREATE VIEW events_once AS SELECT {', '.join(names)} FROM events FINAL")
        execute(opened, "CREATE VIEW conflicts AS SELECT tenant FROM events", "TRUNCATE TABLE migrations")
        execute(opened, "INSERT INTO migrations SELECT number + 1 FROM numbers(5)")
    else:
        execute(opened, "DROP VIEW events_once", "DROP VIEW conflicts", "DROP TABLE producers")
        execute(opened, "ALTER TABLE contested RENAME TO conflicts")
        execute(opened, "ALTER TABLE conflicts RENAME CONSTRAINT contested_pkey TO conflicts_pkey")
        execute(opened, "CREATE VIEW events_once AS SELECT * FROM events", "DELETE FROM migrations WHERE version > 5")
    columns = 'tenant, run_id, machine, shim_id, first_n, first_seq, "count", day'
    for machine, day in (("m1", "2026-01-03"), ("m2", "2026-01-02")):
        values = f"'acme', '{OF[0]}', '{machine}', '{OF[1]}', 1, 1, 1, '{day}'"
        execute(opened, f"INSERT INTO spans ({columns}) VALUES ({values})")
    opened.migrate(0)
    assert Reader(opened, "acme").owners(OF[0]) == {OF[1]: "m2"}
    key = ("acme", *OF)
    assert opened.claim([(*key, "2026-01-02T00:00:00.000Z m1", "2026-01-02")]) == {key: "2026-01-02 m2"}
    for table in (CONTESTED, PRODUCERS):
        opened.select(f"SELECT {', '.join(table.names)} FROM {table.name}", {})
    assert opened.select("SELECT * FROM conflicts", {}) == []
    opened.close()
