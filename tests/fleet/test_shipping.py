"""The shipper: what waits, what is refused, what pruning may take."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
import zlib
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from harness.collector import Machine, collector
from harness.fleet_names import run_id, shim_id
from harness.ledger import EventMaker, ledgerd, sub_environment
from harness.scripted_http import scripted_http
from harness.stores import need
from subluminal.fleet.shipping.backlog import read_piece
from subluminal.fleet.shipping.holding import may_go
from subluminal.fleet.shipping.progress import Ack, Progress, Refused, shipped_place
from subluminal.fleet.shipping.sending import Address, NoCredential
from subluminal.ledger.store.schema import open_reader
from subluminal.ledger.store.writer import Store


def record(home: Path, lines: list[bytes]) -> None:
    home.mkdir(mode=0o700, exist_ok=True)
    store = Store(str(home / "ledger.db"))
    with store.batch():
        for line in lines:
            store.add(line)
    store.close()


def test_lines_of_shims_that_took_turns_become_one_segment_of_each(tmp_path: Path) -> None:
    one, two = EventMaker(run_id(1), shim_id(1)), EventMaker(run_id(1), shim_id(2))
    lines = [one.run_start(), two.run_start()]
    for _ in range(100):
        lines += [*one.call(), *two.call()]
    record(tmp_path / "home", lines)
    reader = open_reader(str(tmp_path / "home" / "ledger.db"))
    piece = read_piece(reader, 0)
    assert piece is not None
    assert [(each.shim_id, each.first_seq, each.last_seq) for each in piece.segments] == [
        (shim_id(1), 1, 301),
        (shim_id(2), 1, 301),
    ]
    told = {n: line for each in piece.segments for n, line in zip(places(each.spans), each.lines, strict=True)}
    assert [told[n] for n in sorted(told)] == lines
    assert piece.segments[0].head == piece.segments[1].head and piece.segments[0].head[0] == len(lines)  # type: ignore[index]
    assert read_piece(reader, piece.place) is None
    reader.close()


def places(spans: list[tuple[int, int]]) -> list[int]:
    return [n for first, count in spans for n in range(first, first + count)]


def test_the_cursor_moves_with_its_acknowledgements_or_not_at_all(tmp_path: Path) -> None:
    record(tmp_path, EventMaker(run_id(1), shim_id(1)).whole_run(2))
    progress = Progress(str(tmp_path))
    assert progress.place() is None and shipped_place(str(tmp_path)) == 0
    progress.record(3, [Ack("run", "shim", 1, 9)], [], "now")
    with pytest.raises(Exception, match="NOT NULL"):
        progress.record(4, [Ack("run", "shim", 10, 12)], [Refused("run", "shim", 10, 4, 4, None)], "now")  # type: ignore[arg-type]
    assert progress.place() == 3
    progress.record(5, [], [Refused("run", "shim", 10, 4, 5, "why")], "now")
    assert progress.place() == 5
    assert shipped_place(str(tmp_path)) == 3  # what was refused must stay
    progress.close()


def test_a_line_that_is_refused_stands_alone_and_the_others_go_on(one_store: str, tmp_path: Path) -> None:
    """A collector of an earlier version: here, one line that only the machine's ledger holds to be an event."""
    with collector(tmp_path / "collector", one_store) as fleet:
        machine = Machine(tmp_path / "m1", fleet)
        maker = EventMaker(run_id(1), shim_id(1))
        machine.record([maker.run_start(), *maker.call(), *maker.call(), maker.run_end()])
        _spoil(machine.home, 3)
        assert machine.ship().returncode == 0
        standing = machine.standing()
        assert standing["refused"] == 1 and standing["unacked_events"] == 0
        assert standing["events"] == 7
        done = fleet.sub("verify", run_id(1), "--json")
        told = json.loads(done.stdout)
        assert [fault["event"] for fault in told["faults"]][:1] == [3]
        assert shipped_place(str(machine.home)) == 0


def test_a_ledger_that_was_put_back_from_an_earlier_copy_is_shipped_from_where_it_is(
    one_store: str, tmp_path: Path
) -> None:
    with collector(tmp_path / "collector", one_store) as fleet:
        machine = Machine(tmp_path / "m1", fleet)
        machine.record(EventMaker(run_id(1), shim_id(1)).whole_run(1))
        copy = (machine.home / "ledger.db").read_bytes()
        for number in (2, 3):
            machine.record(EventMaker(run_id(number), shim_id(number)).whole_run(1))
        assert machine.ship().returncode == 0 and machine.standing()["unacked_events"] == 0
        (machine.home / "ledger.db").write_bytes(copy)
        machine.record(EventMaker(run_id(4), shim_id(4)).whole_run(1))
        assert machine.standing()["unacked_events"] == 10, "what it holds is not taken for acknowledged"
        found = may_go("2030", str(machine.home))
        assert found is not None and found.place == 0, "nor for what may be pruned"
        assert machine.ship().returncode == 0 and machine.standing()["unacked_events"] == 0
        assert {row["run_id"] for row in fleet.rows("query", "--limit", "0")} == {run_id(n) for n in (1, 2, 3, 4)}


def test_a_held_line_that_is_refused_holds_nothing_up(one_store: str, tmp_path: Path) -> None:
    with collector(tmp_path / "collector", one_store) as fleet:
        machine = Machine(tmp_path / "m1", fleet)
        machine.record(EventMaker(run_id(1), shim_id(1)).whole_run(2))
        gone = EventMaker(run_id(2), shim_id(2))
        good = [gone.run_start(), gone.start(), gone.decision()]
        spoilt = [good[0].replace(b'"v":"0.2.0"', b'"v":"9.0.0"'), *good[1:]]
        progress = Progress(str(machine.home))
        held = [(run_id(2), shim_id(2), n, n, zlib.compress(line)) for n, line in enumerate(spoilt, 1)]
        progress.hold(held)
        assert machine.ship().returncode == 0
        standing = machine.standing()
        assert (standing["unacked_events"], standing["held"], standing["refused"]) == (0, 0, 1)
        assert len(fleet.rows("query", "--limit", "0")) == 3
        assert shipped_place(str(machine.home)) == progress.place(), "pruning does not wait for it"
        progress.let_go([(run_id(2), shim_id(2), 1)])
        progress.hold([(run_id(2), shim_id(2), 1, 1, zlib.compress(good[0]))])
        progress.close()
        assert machine.ship().returncode == 0  # a new process tries at once what was refused
        assert machine.standing()["refused"] == 0


def test_what_was_refused_and_is_gone_from_the_ledger_holds_nothing_up(one_store: str, tmp_path: Path) -> None:
    with collector(tmp_path / "collector", one_store) as fleet:
        machine = Machine(tmp_path / "m1", fleet)
        for number in (1, 2):
            machine.record(EventMaker(run_id(number), shim_id(number)).whole_run(2))
        assert machine.ship().returncode == 0
        place = shipped_place(str(machine.home))
        progress = Progress(str(machine.home))
        progress.refuse([Refused("pruned", shim_id(9), 4, 1, 1, "a test")], "now")
        assert shipped_place(str(machine.home)) == 0
        assert machine.ship().returncode == 0
        assert shipped_place(str(machine.home)) == place and progress.refused() == []
        progress.close()


def test_a_step_that_fails_has_ended_everywhere_before_it_is_told(tmp_path: Path) -> None:
    """One connection is told to come later while the others still wait for their commit."""
    need("zstandard")
    from subluminal.fleet.shipping.task import AT_ONCE, ShipTask

    for number in range(AT_ONCE):
        record(tmp_path / "m1", EventMaker(run_id(number), shim_id(number)).whole_run(1))
    at_work, all_came, lock = [0], threading.Barrier(AT_ONCE), threading.Lock()

    def answer(request: BaseHTTPRequestHandler) -> None:
        with lock:
            at_work[0] += 1
        first = all_came.wait(10) == 0
        if not first:
            time.sleep(0.3)  # it thinks about it
        body = b"{}"
        request.send_response(503 if first else 200)
        request.send_header("Content-Length", str(len(body)))
        with lock:
            at_work[0] -= 1
        request.end_headers()
        request.wfile.write(body)

    with scripted_http() as server:
        server.json("/v1/cursor", {"seq": 0})
        server.routes["/v1/segments"] = answer
        task = ShipTask(Address(server.origin), str(tmp_path / "m1"))
        assert task.step() > 0 and task.last_wait is not None
        assert at_work == [0]
        task.close()


def _spoil(home: Path, n: int) -> None:
    """Replace event n by a line that no collector reads, as a later version might have written it."""
    import sqlite3

    from subluminal.ledger.store.encoding import pack_lines, unpack_lines

    connection = sqlite3.connect(home / "ledger.db")
    number, stored = connection.execute("SELECT id, lines FROM segments").fetchone()
    lines = unpack_lines(stored)
    lines[n - 1] = lines[n - 1].replace(b'"v":"0.2.0"', b'"v":"9.0.0"')
    connection.execute("UPDATE segments SET lines = ? WHERE id = ?", (pack_lines(lines), number))
    connection.commit()
    connection.close()


def prune(home: Path, *arguments: str) -> dict[str, object]:
    command = [sys.executable, "-m", "subluminal", "prune", "--older-than", "1d", "--json", *arguments]
    done = subprocess.run(command, env=sub_environment(home), capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    told: dict[str, object] = json.loads(done.stdout)
    return told


def test_pruning_keeps_what_was_not_acknowledged(one_store: str, tmp_path: Path) -> None:
    with collector(tmp_path / "collector", one_store) as fleet:
        machine = Machine(tmp_path / "m1", fleet)
        machine.record(EventMaker(run_id(1), shim_id(1)).whole_run(2))
        assert machine.ship().returncode == 0
        machine.record(EventMaker(run_id(2), shim_id(2)).whole_run(2))
        assert prune(machine.home, "--dry-run")["runs"] == [run_id(1)]
        with ledgerd(machine.home):
            assert prune(machine.home)["runs"] == [run_id(1)]
        assert machine.ship().returncode == 0
        assert len(fleet.rows("query")) == 4
        assert prune(machine.home, "--dry-run")["runs"] == [run_id(2)]


def test_beyond_the_bound_decisions_stay_and_everything_else_goes_first(one_store: str, tmp_path: Path) -> None:
    with collector(tmp_path / "collector", one_store) as fleet:
        machine = Machine(tmp_path / "m1", fleet)
        home = str(machine.home)
        for number in (1, 2):
            maker = EventMaker(run_id(number), shim_id(number), start_ms=1_700_000_000_000 + number * 1000)
            lines = [maker.run_start(), *maker.call("BLOCK"), *maker.call(), maker.run_end()]
            record(machine.home, lines)
        Progress(home).close()
        reader = open_reader(str(machine.home / "ledger.db"))
        newest = reader.execute("SELECT length(lines) FROM segments ORDER BY id DESC LIMIT 1").fetchone()[0]
        reader.close()
        shipped = may_go("2026-01-01T00:00:00.000Z", home, bound=newest)
        assert shipped is not None and shipped.released == {run_id(1)}  # the oldest, until the rest is within the bound

        from subluminal.ledger.store.prune import prune as remove

        store = Store(str(machine.home / "ledger.db"))
        assert [run["run_id"] for run in remove(store, "2026-01-01T00:00:00.000Z", shipped)] == [run_id(1)]
        store.close()
        assert machine.ship().returncode == 0
        known = {row["call_id"]: row["decision"] for row in fleet.rows("query", "--limit", "0")}
        assert known == {
            f"{shim}-{n}": word for shim in (shim_id(1), shim_id(2)) for n, word in ((1, "BLOCK"), (2, "ALLOW"))
        }
        faults = json.loads(fleet.sub("verify", run_id(1), "--json").stdout)["faults"]
        assert any("not arrived" in fault["what"] for fault in faults)
        assert fleet.rows("verify", run_id(2))[0]["ok"]


def test_the_keeper_of_a_machine_that_was_joined_with_a_collector_has_a_task_that_ships(
    one_store: str, tmp_path: Path
) -> None:
    need("tuf")
    from subluminal.fleet.joined import Joined
    from subluminal.fleet.keeper.tasks import tasks_of

    with collector(tmp_path / "collector", one_store) as fleet:
        machine = Machine(tmp_path / "m1", fleet)
        machine.record(EventMaker(run_id(1), shim_id(1)).whole_run(3))
        said: list[str] = []
        joined = Joined(url="https://fleet.example", collector=fleet.url, token_file=str(machine.token_file))
        tasks = {task.name: task for task in tasks_of(joined, str(machine.home), said.append)}  # type: ignore[arg-type]
        assert tasks["ship"].step() > 0 and not said
        assert len(fleet.rows("query")) == 3
        elsewhere = Joined(url="https://fleet.example", collector="http://collector.example")
        assert "ship" not in {task.name for task in tasks_of(elsewhere, str(machine.home), said.append)}  # type: ignore[arg-type]
        assert "nothing is shipped" in said[0]


def test_a_variable_that_should_hold_the_token_and_does_not_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    address = Address("https://collector.example", token_env="A_TOKEN")
    monkeypatch.setenv("A_TOKEN", "t")
    assert address.headers() == {"Authorization": "Bearer t"}
    monkeypatch.delenv("A_TOKEN")
    with pytest.raises(NoCredential, match="The variable A_TOKEN is not set"):
        address.headers()
    assert Address("https://collector.example").headers() == {}
