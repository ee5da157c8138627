"""The schema: every released version can be opened, a newer one is refused with a sentence."""

from __future__ import annotations

import gzip
import sqlite3
from pathlib import Path

import pytest

from harness import places
from harness.ledger import EventMaker, verify_all
from subluminal.contracts.errors import LedgerError
from subluminal.host.home import heads_path
from subluminal.ledger.fold.reading import BadEvent
from subluminal.ledger.read.ledger import open_ledger
from subluminal.ledger.store.chain import GENESIS, link
from subluminal.ledger.store.links import hash_at
from subluminal.ledger.store.schema import SCHEMA_VERSION, open_reader, open_writer
from subluminal.ledger.store.writer import Store

GOLDEN = places.FIXTURES / "ledger"

COUNTS = ("calls_total", "calls_allowed", "calls_blocked", "calls_throttled", "errors_total")

SPECIFIED = {
    "runs": "run_id agent_id client env started_at ended_at status metadata_json",
    "tool_calls": "call_id run_id server_name tool_name args_hash decision rule_id status latency_ms bytes_in bytes_out"
    " preview_truncated created_at",
    "previews": "call_id args_preview result_preview redaction_flags",
    "hints": "call_id hint_text suggested_args_json created_at",
    "policy_versions": "policy_id version mode rules_hash rules_json created_at",
}


def test_the_specified_tables_columns_and_indexes_exist(tmp_path: Path) -> None:
    connection = open_writer(str(tmp_path / "ledger.db"))
    for table, columns in SPECIFIED.items():
        present = {row[1] for row in connection.execute(f"PRAGMA table_info({table})")}
        assert set(columns.split()) <= present, table
    indexes = {
        tuple(column[2] for column in connection.execute(f"PRAGMA index_info({row[1]})"))
        for row in connection.execute("PRAGMA index_list(tool_calls)")
    }
    assert {("run_id", "created_at"), ("server_name", "tool_name"), ("decision", "status")} <= indexes
    by_args = connection.execute("SELECT sql FROM sqlite_schema WHERE name = 'tool_calls_args'").fetchone()[0]
    assert by_args.endswith("(substr(args_hash, 1, 8))"), "as much of it as finds it"
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    connection.close()


@pytest.mark.parametrize("version", range(1, SCHEMA_VERSION + 1))
def test_a_ledger_of_every_released_version_opens_verifies_and_goes_on(tmp_path: Path, version: int) -> None:
    path = migrated(tmp_path, f"schema-{version}")
    store = Store(path)
    assert store.connection.execute("PRAGMA user_version").fetchone() == (SCHEMA_VERSION,)
    lines = EventMaker("run-new", "shim-new").whole_run(2)
    store.write(lambda: [store.add(line) for line in lines])
    store.close()
    assert {report.run_id: report.faults for report in verify_all(path)} == {"run-golden": [], "run-new": []}
    with open_ledger(path) as ledger:
        assert ledger.run("run-golden")["calls_total"] == 3
        assert ledger.call("shim-golden-2")["decision"] == "BLOCK"


def migrated(tmp_path: Path, name: str) -> str:
    path = tmp_path / "ledger.db"
    path.write_bytes(gzip.decompress((GOLDEN / f"{name}.db.gz").read_bytes()))
    Path(heads_path(str(path))).write_bytes((GOLDEN / f"{name}.heads").read_bytes())
    Store(str(path)).close()
    return str(path)


def test_what_schema_5_kept_for_each_event_is_kept_by_segment_and_by_span(tmp_path: Path) -> None:
    """The golden ledger was written by the store of schema 5: two shims that take turns, one of which speaks of a
    call of the other's, doors that saw the same call, and a producer without numbers."""
    path = migrated(tmp_path, "schema-5-doors")
    (report,) = verify_all(path)
    assert (report.chain_ok, report.rows_ok, report.events) == (True, True, 295)
    assert [fault.part for fault in report.faults] == ["owners"]
    with open_ledger(path) as ledger:
        lines = list(ledger.lines("run-many"))
        connection = ledger.connection
        first, last = (hash_at(connection, 1, n) for n in (1, 295))
        assert first == link(GENESIS, lines[0]) and last is not None and last.hex() == report.head
        assert connection.execute("SELECT sum(count), max(count) FROM spans").fetchone()[:] == (295, 148)
        assert connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'events'").fetchone() is None
        assert ledger.count() == 95
    store = Store(path)
    assert store.write(lambda: [store.add(line) for line in lines]) == [False] * 295
    changed = lines[7].replace(b'"ann"', b'"eve"')
    with pytest.raises(BadEvent, match="other content"):
        store.write(lambda: store.add(changed))
    store.close()


@pytest.mark.parametrize(
    ("edit", "event"),
    [
        ("UPDATE events SET hash = zeroblob(32) WHERE id = (1 << 32) + 70", 70),
        ("DELETE FROM events WHERE id = (1 << 32) + 70", 70),
        ("DELETE FROM events WHERE id = (1 << 32) + 295", 295),
        ("DELETE FROM segments WHERE first_n > 200", 201),
    ],
)
def test_what_was_changed_under_schema_5_is_found_under_the_next(tmp_path: Path, edit: str, event: int) -> None:
    path = tmp_path / "ledger.db"
    path.write_bytes(gzip.decompress((GOLDEN / "schema-5-doors.db.gz").read_bytes()))
    with sqlite3.connect(path) as database:
        assert database.execute(edit).rowcount > 0
    database.close()
    Store(str(path)).close()
    (report,) = verify_all(str(path))
    assert (report.chain_ok, report.faults[0].event) == (False, event)


def test_the_numbers_that_were_changed_under_schema_5_are_found_under_the_next(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    path.write_bytes(gzip.decompress((GOLDEN / "schema-5-doors.db.gz").read_bytes()))
    with sqlite3.connect(path) as database:
        database.execute("UPDATE events SET seq = 999 WHERE id = (1 << 32) + 70")
    database.close()
    Store(str(path)).close()
    (report,) = verify_all(str(path))
    assert (report.chain_ok, report.rows_ok) == (True, False)
    assert "a span's row" in report.faults[0].what


def test_calls_that_schema_1_knew_by_their_first_decision_are_known_by_their_last(tmp_path: Path) -> None:
    """The golden ledger was written by the store of schema 1: six calls of one shim, four of them with two legs."""
    path = migrated(tmp_path, "schema-1-legs")
    assert [report.faults for report in verify_all(path)] == [[]]
    with open_ledger(path) as ledger:
        calls = {call["seq"]: call for call in ledger.calls().rows}
        decisions = [calls[number]["decision"] for number in range(1, 7)]
        assert decisions == ["BLOCK", "REJECT_WITH_HINT", "ALLOW", "ALLOW", "THROTTLE", None]
        assert (calls[3]["rule_id"], calls[5]["backoff_ms"]) == ("allow-log", 1000)
        assert ledger.call("shim-legs-2")["hint"]["hint_text"] == "Use a branch."
        assert [calls[number]["tool_use_id"] for number in (1, 2, 4)] == ["toolu_1", None, "toolu_4"]
        run = ledger.run("run-legs")
        counts = [run[name] for name in COUNTS]
        assert counts == [6, 2, 2, 1, 1]


def test_calls_that_schema_2_let_any_producer_change_are_their_owner_s(tmp_path: Path) -> None:
    """The golden ledger was written by the store of schema 2: in its rows a call that was blocked is allowed, by a
    claim that came before, and a call id that two producers used is one call."""
    path = migrated(tmp_path, "schema-2-shared")
    owner, claimant = "s018c018c018ca1a1a1a1a1a1a1a1", "s018d018d018db2b2b2b2b2b2b2b2"
    (report,) = verify_all(path)
    assert (report.chain_ok, report.rows_ok) == (True, True)
    assert [(fault.call_id, fault.shim_ids) for fault in report.faults] == [
        (f"{owner}-1", [owner, claimant]),
        ("call-1", ["ext-1", "ext-2"]),
    ]
    with open_ledger(path) as ledger:
        calls = {(call["shim_id"], call["call_id"]): call["decision"] for call in ledger.calls().rows}
        assert calls == {
            (owner, f"{owner}-1"): "BLOCK",
            (owner, f"{owner}-2"): "ALLOW",
            (claimant, f"{claimant}-2"): "ALLOW",
            ("ext-1", "call-1"): "ALLOW",
            ("ext-2", "call-1"): "BLOCK",
        }
        assert "forged" not in str(ledger.call(f"{owner}-1"))
        run = ledger.run("run-shared")
        assert [run[name] for name in COUNTS] == [5, 3, 2, 0, 0]


def test_a_migration_does_not_mend_what_was_edited_by_hand(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    path.write_bytes(gzip.decompress((GOLDEN / "schema-1-legs.db.gz").read_bytes()))
    with sqlite3.connect(path) as database:
        database.execute("UPDATE tool_calls SET status = 'OK' WHERE call_id = 'shim-legs-1'")
        database.execute("UPDATE tool_calls SET decision = 'BLOCK' WHERE call_id = 'shim-legs-4'")
    database.close()
    Store(str(path)).close()
    (report,) = verify_all(str(path))
    assert [fault.call_id for fault in report.faults] == ["shim-legs-1"]
    with open_ledger(str(path)) as ledger:
        assert ledger.call("shim-legs-4")["decision"] == "BLOCK"


def test_a_run_whose_record_is_damaged_does_not_stop_the_migration(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    path.write_bytes(gzip.decompress((GOLDEN / "schema-1-legs.db.gz").read_bytes()))
    with sqlite3.connect(path) as database:
        database.execute("UPDATE segments SET lines = x'00' WHERE id = 2")
    database.close()
    Store(str(path)).close()
    (report,) = verify_all(str(path))
    assert not report.ok


def test_a_ledger_of_a_newer_version_is_refused_by_readers_and_writers(tmp_path: Path) -> None:
    path = str(tmp_path / "ledger.db")
    open_writer(path).close()
    database = sqlite3.connect(path)
    database.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    database.commit()
    for opening in (open_reader, open_writer, Store):
        with pytest.raises(LedgerError, match="newer Subluminal"):
            opening(path)


def test_a_file_that_is_no_database_is_refused_with_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    path.write_bytes(b"this is no database, " * 100)
    for opening in (open_reader, Store):
        with pytest.raises(LedgerError, match="cannot be"):
            opening(str(path))


def test_a_directory_that_cannot_be_written_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(LedgerError, match="cannot be opened for writing"):
        Store(str(tmp_path / "file" / "ledger.db"))


def test_paths_with_odd_characters_are_opened_as_they_are(tmp_path: Path) -> None:
    odd = tmp_path / "a?b#c%20d"
    odd.mkdir()
    store = Store(str(odd / "ledger.db"))
    store.write(lambda: store.add(EventMaker("run-1", "shim-1").run_start()))
    store.close()
    reader = open_reader(str(odd / "ledger.db"))
    assert [tuple(row) for row in reader.execute("SELECT run_id FROM runs")] == [("run-1",)]
    reader.close()
    assert [path.name for path in tmp_path.iterdir()] == ["a?b#c%20d"], "and no other file was made"
