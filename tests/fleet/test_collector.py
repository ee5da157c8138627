"""Every decision once, none lost: real collectors on real stores, killed and lied to."""

from __future__ import annotations

import http.client
import itertools
import json
import random
import subprocess
from pathlib import Path
from typing import Any

import pytest

from harness.collector import CollectorProcess, Machine, collector, segment_of
from harness.fleet_names import run_id, shim_id
from harness.ledger import EventMaker, sub_environment
from harness.stores import PostgresServer
from harness.waiting import GENEROUS_S, wait_for
from subluminal.contracts.filters import Filters
from subluminal.fleet.segments import Segment, encode
from subluminal.fleet.shipping.backlog import part
from subluminal.fleet.stores.base import open_store
from subluminal.fleet.stores.reading import Reader
from subluminal.fleet.stores.tables import ADDED_SINCE, CALLS, DOORS, RUNS, TABLES, Table
from subluminal.ledger.store.chain import GENESIS
from subluminal.ledger.store.links import follow


def recorded(fleet: CollectorProcess, token: str, calls: int = 20, number: int = 1) -> tuple[Segment, list[bytes]]:
    """A run of one shim, as one segment that was not sent yet."""
    lines = EventMaker(run_id(number), shim_id(number)).whole_run(calls)
    return segment_of(lines, run_id(number), shim_id(number)), lines


def calls_known(fleet: CollectorProcess, *arguments: str) -> list[str]:
    return [row["call_id"] for row in fleet.rows("query", "--limit", "0", *arguments)]


def test_a_machine_ships_its_ledger_and_the_fleet_tells_the_same_as_the_machine(store: str, tmp_path: Path) -> None:
    with collector(tmp_path / "collector", store) as fleet:
        machine = Machine(tmp_path / "build-7", fleet)
        one, two = EventMaker(run_id(1), shim_id(1)), EventMaker(run_id(1), shim_id(2))
        lines = [one.run_start(), two.run_start()]
        for action in ("ALLOW", "BLOCK", "THROTTLE", "ALLOW"):
            lines += [*one.call(action, tool="git_push"), *two.call(action, server="files", tool="read")]
        machine.record([*lines, one.run_end(), two.run_end("FAILED")])
        done = machine.ship()
        assert done.returncode == 0, done.stderr
        assert machine.standing()["unacked_events"] == 0

        for arguments in (
            ("query",),
            ("query", "--decision", "BLOCK"),
            ("query", "--tool", "git_*", "--status", "OK"),
            ("query", "--server", "f*", "--decision", "ALLOW", "--decision", "THROTTLE"),
            ("query", "--text", '"PATH"'),
            ("query", "--text", "never said"),
            ("query", "--run", "last", "--min-latency", "3"),
            ("query", "--group-by", "tool,decision"),
            ("query", "--group-by", "day,server"),
            ("query", "--group-by", "minute,agent"),
            ("query", "--run", run_id(1)[-6:], "--rule", "deny-writes"),
            ("query", "--since", "2023-11-14", "--until", "2023-11-15", "--plot"),
            ("query", "--status", "PENDING"),
            ("query", "--count", "--agent", "repo-fixer"),
            ("runs",),
            ("runs", "--decision", "BLOCK", "--status", "FAILED"),
            ("runs", "--tool", "nothing_*"),
        ):
            here = subprocess.run(
                [*machine.command()[:3], *arguments, "--json", "--no-sync"],
                env=sub_environment(machine.home),
                capture_output=True,
                text=True,
                check=True,
            )
            local = [without_place(json.loads(line)) for line in here.stdout.splitlines()]
            central = [without_place(row) for row in fleet.rows(*arguments)]
            assert sorted(map(str, central)) == sorted(map(str, local)), arguments

        shown = fleet.rows("show", "last")[0]
        assert shown["calls_total"] == 8 and shown["event_count"] == len(lines) + 2
        assert fleet.rows("show", f"{shim_id(1)}-2")[0]["decision"] == "BLOCK"
        report = fleet.rows("verify", run_id(1))[0]
        assert report["ok"] and report["events"] == report["witnessed"] == len(lines) + 2


def several_doors(chance: random.Random) -> list[bytes]:
    """Calls that a hook, a shim and a model's API see, each or not, often within one millisecond."""
    doors = {
        door: EventMaker(run_id(1), shim_id(at)) for at, door in enumerate(("hook", "mcp_stdio", "messages_api"), 1)
    }
    lines = [maker.run_start() for maker in doors.values()]
    for number in range(40):
        use_id = chance.choice([f"use-{number}", "use-again", "use-1"])
        seen = chance.sample(list(doors), chance.randrange(1, 4))
        for door in seen:
            doors[door].ms = max(maker.ms for maker in doors.values()) - chance.randrange(2)
            lines += [doors[door].seen(door, use_id), doors[door].decision(chance.choice(["ALLOW", "ALLOW", "BLOCK"]))]
        for door in seen:
            if chance.random() < 0.9:
                lines.append(doors[door].end(chance.choice(["OK", "CANCELLED", "ERROR"])))
    for _ in range(chance.choice([0, 70])):
        lines += [doors["hook"].seen("hook", "use-over-and-over"), doors["hook"].decision(), doors["hook"].end()]
    return [*lines, *(maker.run_end() for maker in doors.values())]


def test_a_call_that_several_doors_saw_is_one_as_on_the_machine(store: str, tmp_path: Path) -> None:
    with collector(tmp_path / "collector", store) as fleet:
        machine = Machine(tmp_path / "build-7", fleet)
        chance = random.Random(3)
        machine.record([*several_doors(chance), *EventMaker(run_id(2), shim_id(9)).whole_run(3)])
        assert machine.ship().returncode == 0
        for arguments in (
            ("query", "--limit", "0"),
            ("query", "--limit", "0", "--decision", "ALLOW"),
            ("query", "--decision", "BLOCK"),
            ("query", "--limit", "0", "--status", "OK", "--run", run_id(1)),
            ("query", "--count"),
            ("query", "--count", "--run", run_id(1), "--decision", "ALLOW"),
            ("query", "--group-by", "run,tool,decision,status"),
            ("query", "--text", "status"),
            ("runs",),
            ("runs", "--decision", "BLOCK"),
            ("runs", "--run", run_id(2), "--decision", "ALLOW"),
        ):
            command = [*machine.command()[:3], *arguments, "--json", "--no-sync"]
            environment = sub_environment(machine.home)
            here = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
            local = [without_place(json.loads(line)) for line in here.stdout.splitlines()]
            central = [without_place(row) for row in fleet.rows(*arguments)]
            assert local and sorted(map(str, central)) == sorted(map(str, local)), arguments
        pages = fleet.rows("query", "--limit", "7")
        rows = []
        while pages:
            rows += pages
            pages = fleet.rows("query", "--limit", "7", "--cursor", pages[-1]["cursor"])
        assert [row["call_id"] for row in rows] == [row["call_id"] for row in fleet.rows("query", "--limit", "0")]


def execute(opened: Any, *statements: str) -> None:
    for statement in statements:
        opened._do("write", lambda on, sql=statement: on.command(sql) if is_clickhouse(opened) else on.execute(sql))


def is_clickhouse(opened: Any) -> bool:
    return bool(opened.dialect.calls != "calls")


def made_at(opened: Any, version: int, table: Table, lacks: tuple[str, ...]) -> None:
    """As the migrations up to this one have left a store, whose table had fewer columns."""
    undone = [f"ALTER TABLE {table.name} DROP COLUMN {name}" for name in lacks]
    if is_clickhouse(opened):
        view = f"CREATE VIEW {table.name}_once AS SELECT tenant, run_id FROM {table.name} FINAL"
        versions = ["TRUNCATE TABLE migrations", f"INSERT INTO migrations SELECT number + 1 FROM numbers({version})"]
        execute(opened, f"DROP VIEW {table.name}_once", *undone, view, *versions)
    else:
        execute(opened, *undone, f"DELETE FROM migrations WHERE version > {version}")


def stored_call(**told: Any) -> list[Any]:
    row = {**dict.fromkeys(CALLS.names), "tenant": "t", "run_id": "r", "shim_id": "s", "day": "2026-01-01", **told}
    return [row[name] for name in CALLS.names]


def test_a_store_that_was_made_before_doors_were_joined_is_migrated(store: str) -> None:
    opened = open_store(store)
    opened.migrate(0)
    made_at(opened, 1, CALLS, ADDED_SINCE)
    opened.migrate(0)
    opened.write({"calls": [stored_call(call_id="c")]})
    assert Reader(opened, "t").count(Filters()) == 1
    opened.close()


def test_a_store_that_did_not_know_the_doors_of_a_run_learns_them(store: str) -> None:
    opened = open_store(store)
    opened.migrate(0)
    same = {"tool_use_id": "use-1", "server_name": "git", "tool_name": "log", "args_hash": "e", "created_ms": 1}
    doors = [stored_call(call_id=door, transport=door, **same) for door in ("hook", "mcp_stdio")]
    opened.write({"runs": [["t", "r", *[None] * (len(RUNS.names) - 2)]], "calls": doors})
    made_at(opened, 2, RUNS, DOORS)
    opened.migrate(0)
    assert Reader(opened, "t").count(Filters()) == 1
    opened.close()


def without_place(row: dict[str, Any]) -> dict[str, Any]:
    """And without recovery, for which a collector would have to tell every call of every run."""
    return {name: value for name, value in row.items() if name not in ("cursor", "recovery_rate")}


def test_pages_go_on_where_the_last_one_ended(store: str, tmp_path: Path) -> None:
    with collector(tmp_path / "collector", store) as fleet:
        token = fleet.token("acme", "m1")
        segment, _ = recorded(fleet, token, calls=25)
        assert fleet.send(segment, token) == 200
        seen: list[str] = []
        cursor: list[str] = []
        while True:
            rows = fleet.rows("query", "--limit", "7", *cursor)
            seen += [row["call_id"] for row in rows]
            if len(rows) < 7:
                break
            cursor = ["--cursor", rows[-1]["cursor"]]
        assert seen == [f"{shim_id(1)}-{n}" for n in range(25, 0, -1)]


def test_what_is_sent_twice_in_pieces_and_out_of_order_is_there_once(store: str, tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    print("seed", seed)
    chance = random.Random(seed)
    with collector(tmp_path / "collector", store) as fleet:
        token = fleet.token("acme", "m1")
        segment, lines = recorded(fleet, token, calls=30)
        cuts = sorted({0, len(lines), *chance.sample(range(1, len(lines)), 12)})
        pieces = [part(segment, *ends) for ends in itertools.pairwise(cuts)]
        pieces += [part(segment, *sorted(chance.sample(range(len(lines) + 1), 2))) for _ in range(6)]
        chance.shuffle(pieces)
        for piece in pieces:
            assert fleet.send(piece, token) == 200
        assert len(calls_known(fleet)) == 30
        assert {row["status"] for row in fleet.rows("query", "--limit", "0")} == {"OK"}
        assert fleet.ask(f"/v1/cursor?run_id={run_id(1)}&shim_id={shim_id(1)}", token)[2] == {"seq": len(lines)}
        report = fleet.rows("verify", run_id(1))[0]
        assert report["ok"] and report["events"] == len(lines)


def test_a_collector_that_dies_between_commit_and_ack_loses_nothing_and_doubles_nothing(
    store: str, tmp_path: Path
) -> None:
    fleet = CollectorProcess(tmp_path / "collector", store)
    machine = Machine(tmp_path / "m1", fleet)
    fleet.start(dies_at_commit=1)
    try:
        lines = EventMaker(run_id(1), shim_id(1)).whole_run(40)
        machine.record(lines)
        assert machine.ship().returncode == 1
        assert fleet.process is not None and fleet.process.wait(GENEROUS_S) == -9
        assert machine.standing()["events"] == 0  # nobody has told it
        fleet.start()
        assert calls_known(fleet) != []  # it was committed all the same
        assert machine.ship().returncode == 0
        assert sorted(calls_known(fleet)) == sorted(f"{shim_id(1)}-{n}" for n in range(1, 41))
        assert fleet.rows("verify", run_id(1))[0]["ok"]
    finally:
        fleet.kill()


def test_a_cursor_claims_nothing_that_was_not_stored_wherever_a_collector_dies_between_tables(
    chdb_store: str, tmp_path: Path
) -> None:
    """One commit is several inserts on ClickHouse. A machine that asks afterwards how far it got must not be told of
    events that never came: it would not send them again."""
    fleet = CollectorProcess(tmp_path / "collector", chdb_store)
    token = fleet.token("acme", "m1")
    try:
        for number, table in enumerate(TABLES, 1):
            segment, lines = recorded(fleet, token, calls=2, number=number)
            segment.head = (len(lines), follow(GENESIS, lines)[-1].hex())
            fleet.start(dies_before=table.name)
            with pytest.raises((OSError, http.client.HTTPException)):
                fleet.send(segment, token)
            assert fleet.process is not None and fleet.process.wait(GENEROUS_S) == -9
            fleet.start()
            place = f"/v1/cursor?run_id={run_id(number)}&shim_id={shim_id(number)}"
            claimed = fleet.ask(place, token)[2]["seq"]
            stored = fleet.ask(f"/v1/lines?run_id={run_id(number)}", fleet.reader)[2]["lines"]
            assert claimed <= len(stored), table.name
            assert fleet.send(segment, token) == 200
            assert fleet.ask(place, token)[2] == {"seq": len(lines)}
            assert fleet.rows("verify", run_id(number))[0]["ok"]
            fleet.kill()
    finally:
        fleet.kill()


def test_a_machine_that_cannot_send_keeps_everything_and_goes_on_later(store: str, tmp_path: Path) -> None:
    fleet = CollectorProcess(tmp_path / "collector", store)
    machine = Machine(tmp_path / "m1", fleet)
    maker = EventMaker(run_id(1), shim_id(1))
    machine.record([maker.run_start(), *maker.call()])
    assert machine.ship().returncode == 1
    assert machine.standing()["unacked_events"] == 4
    machine.record([*maker.call(), maker.run_end()])
    fleet.start()
    try:
        assert machine.ship().returncode == 0
        machine.record(EventMaker(run_id(2), shim_id(2)).whole_run(1))
        assert machine.ship().returncode == 0
        assert machine.standing()["unacked_events"] == 0
        assert len(calls_known(fleet)) == 3
        assert fleet.rows("verify", run_id(1))[0]["ok"]
    finally:
        fleet.kill()


def test_another_ledger_in_the_same_home_is_shipped_from_its_start_and_asks_what_is_known(
    one_store: str, tmp_path: Path
) -> None:
    with collector(tmp_path / "collector", one_store) as fleet:
        machine = Machine(tmp_path / "m1", fleet)
        lines = EventMaker(run_id(1), shim_id(1)).whole_run(5)
        machine.record(lines)
        assert machine.ship().returncode == 0
        for path in machine.home.glob("ledger*"):
            path.unlink()
        machine.record(lines)
        machine.record(EventMaker(run_id(2), shim_id(2)).whole_run(2))
        before = fleet.metric("subluminal_collector_events_total")
        assert machine.ship().returncode == 0
        assert fleet.metric("subluminal_collector_events_total") - before == 8  # only what is new
        assert len(calls_known(fleet)) == 7


def test_a_store_that_is_down_is_told_as_503_and_nothing_is_lost(
    postgres_server: PostgresServer, tmp_path: Path
) -> None:
    with collector(tmp_path / "collector", postgres_server.database()) as fleet:
        machine = Machine(tmp_path / "m1", fleet)
        token = fleet.token("acme", "m2")
        maker = EventMaker(run_id(1), shim_id(1))
        machine.record([maker.run_start(), *maker.call()])
        assert machine.ship().returncode == 0
        postgres_server.kill()
        try:
            machine.record([*maker.call(), maker.run_end()])
            assert machine.ship().returncode == 1
            status, headers, _ = fleet.ask("/v1/segments", token, encode(recorded(fleet, token, number=2)[0]))
            assert status == 503 and int(headers["Retry-After"]) >= 1
            assert fleet.ask("/health")[0] == 503
        finally:
            postgres_server.start()
        assert machine.ship().returncode == 0
        assert fleet.ask("/health")[0] == 200
        assert len(calls_known(fleet)) == 2 and fleet.rows("verify", run_id(1))[0]["ok"]


def test_a_collector_that_nobody_sends_to_is_ready_again_when_its_store_is(
    postgres_server: PostgresServer, tmp_path: Path
) -> None:
    """Whoever balances load sends nothing to one that is not ready: no commit would ever tell it."""
    with collector(tmp_path / "collector", postgres_server.database()) as fleet:
        token = fleet.token("acme", "m1")
        assert fleet.ask("/health")[0] == 200
        postgres_server.kill()
        try:
            assert fleet.send(recorded(fleet, token)[0], token) == 503
            assert fleet.ask("/health")[2] == {"store": "down"}
        finally:
            postgres_server.start()
        wait_for(lambda: fleet.ask("/health"), enough=lambda told: told[0] == 200, what="a collector that is ready")


def test_a_reused_number_with_other_bytes_stays_visible_and_alerts(store: str, tmp_path: Path) -> None:
    with collector(tmp_path / "collector", store) as fleet:
        first, second = fleet.token("acme", "m1"), fleet.token("acme", "m2")
        segment, lines = recorded(fleet, first, calls=3)
        assert fleet.send(segment, first) == 200
        other = [*lines]
        other[2] = lines[2].replace(b'"ALLOW"', b'"BLOCK"')
        forged = segment_of(other, run_id(1), shim_id(1))
        assert fleet.send(forged, second) == 200

        def conflicts() -> float:
            # A store that tells only when asked is asked with a later commit.
            fleet.send(forged, second)
            return fleet.metric("subluminal_collector_conflicts_total")

        assert wait_for(conflicts, what="the conflict to be counted") == 1
        reports = [json.loads(line) for line in fleet.sub("verify", run_id(1), "--json").stdout.splitlines()]
        told = [fault["what"] for report in reports for fault in report["faults"] if fault["part"] == "owners"]
        assert any("2 different lines" in what and "m1, m2" in what for what in told)
        assert len(calls_known(fleet)) == 3
        assert "CONFLICT" in (tmp_path / "collector" / "collector.log").read_text()


def test_two_machines_of_one_image_have_one_host_id_and_are_told_apart_by_their_credentials(
    one_store: str, tmp_path: Path
) -> None:
    with collector(tmp_path / "collector", one_store) as fleet:
        machines = [Machine(tmp_path / f"clone-{n}", fleet) for n in (1, 2)]
        shared = EventMaker(run_id(1), shim_id(1)).whole_run(3)
        for number, machine in enumerate(machines, 2):
            machine.record(shared)  # what the image had when it was copied
            machine.record(EventMaker(run_id(number), shim_id(number)).whole_run(4))
            assert machine.ship().returncode == 0
        assert len(calls_known(fleet)) == 11
        assert all(fleet.rows("verify", run_id(number))[0]["ok"] for number in (1, 2, 3))
        assert len(fleet.rows("verify", run_id(1))) == 2  # each has vouched for it


def test_the_tenant_is_that_of_the_credential_whatever_is_said(store: str, tmp_path: Path) -> None:
    with collector(tmp_path / "collector", store) as fleet:
        mallory = fleet.token("mallory", "m1")
        spying = fleet.token("mallory", "spy", may_read=True)
        acme = fleet.token("acme", "m1")
        segment, lines = recorded(fleet, acme, calls=2)
        assert fleet.send(segment, acme) == 200
        named = [line.replace(b'"ann"', b'"acme"') for line in lines]
        assert fleet.send(segment_of(named, run_id(1), shim_id(1)), mallory) == 200
        for place in (f"/v1/lines?run_id={run_id(1)}", "/v1/calls", "/v1/calls?principal=ann&tenant=acme"):
            status, _, told = fleet.ask(place, spying)
            assert status == 400 or '\\"ann\\"' not in json.dumps(told)
        assert fleet.rows("query", "--principal", "ann", "--count") == [{"count": 2}]
        assert fleet.rows("verify", run_id(1))[0]["ok"]
        assert fleet.ask("/v1/calls", acme)[0] == 401  # it may send, not read
        assert fleet.send(segment, spying) == 401
        assert fleet.ask("/v1/calls")[0] == fleet.ask("/v1/calls", "subf_guessed")[0] == 401


def test_a_gap_is_named_and_what_follows_it_is_still_proved(store: str, tmp_path: Path) -> None:
    with collector(tmp_path / "collector", store) as fleet:
        token = fleet.token("acme", "m1")
        segment, lines = recorded(fleet, token, calls=30)
        heads = follow(GENESIS, lines)
        for begin, end in ((0, 20), (40, 60), (60, len(lines))):
            piece = part(segment, begin, end)
            piece.head = (begin, heads[begin - 1].hex()) if begin else (end, heads[end - 1].hex())
            assert fleet.send(piece, token) == 200
        done = fleet.sub("verify", run_id(1), "--json")
        assert done.returncode == 1
        report = json.loads(done.stdout)
        assert [(fault["event"], fault["what"]) for fault in report["faults"]] == [
            (21, "events 21 to 40 have not arrived (machine m1)")
        ]
        assert fleet.ask(f"/v1/cursor?run_id={run_id(1)}&shim_id={shim_id(1)}", token)[2] == {"seq": 20}
        changed = segment_of([lines[27].replace(b'"clean"', b'"dirty"')], run_id(1), shim_id(1), 28)
        assert fleet.send(changed, token) == 200
        assert fleet.send(part(segment, 20, 27), token) == fleet.send(part(segment, 28, 40), token) == 200
        report = json.loads(fleet.sub("verify", run_id(1), "--json").stdout)
        assert [fault["event"] for fault in report["faults"]] == [40]
        assert "was changed" in report["faults"][0]["what"]


def test_a_tenant_at_a_hundred_times_its_quota_is_put_off_and_others_are_not(store: str, tmp_path: Path) -> None:
    with collector(tmp_path / "collector", store, "--quota", "10") as fleet:
        greedy, modest = fleet.token("greedy", "m1"), fleet.token("acme", "m1")
        statuses = []
        for number in range(2, 32):
            segment, _ = recorded(fleet, greedy, calls=10, number=number)
            statuses.append(fleet.send(segment, greedy))
        assert statuses[0] == 200 and statuses.count(429) >= 15
        status, headers, told = fleet.ask("/v1/segments", greedy, encode(recorded(fleet, greedy)[0]))
        assert status == 429 and int(headers["Retry-After"]) >= 1 and "beyond its quota" in told["error"]
        assert fleet.send(recorded(fleet, modest)[0], modest) == 200
        assert len(calls_known(fleet)) == 20


def test_events_of_old_and_new_versions_are_kept_and_another_major_is_set_aside(store: str, tmp_path: Path) -> None:
    with collector(tmp_path / "collector", store) as fleet:
        token = fleet.token("acme", "m1")
        maker = EventMaker(run_id(1), shim_id(1))
        lines = [maker.run_start(), *maker.call(), maker.event("tool_call_dreamt", dream=1), *maker.call()]
        lines = [line.replace(b'"v":"0.2.0"', b'"v":"0.9.0"') if b"dreamt" in line else line for line in lines]
        lines[0] = lines[0].replace(b'"v":"0.2.0"', b'"v":"0.1.0"')
        assert fleet.send(segment_of(lines, run_id(1), shim_id(1)), token) == 200
        assert len(calls_known(fleet)) == 2 and fleet.rows("verify", run_id(1))[0]["events"] == len(lines)
        later = EventMaker(run_id(2), shim_id(2)).run_start().replace(b'"v":"0.2.0"', b'"v":"1.0.0"')
        status, _, told = fleet.ask("/v1/segments", token, encode(segment_of([later], run_id(2), shim_id(2))))
        assert status == 422 and "upgrade what reads it" in told["error"]
