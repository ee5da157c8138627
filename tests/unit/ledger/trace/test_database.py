"""Whatever is changed in any table, index or trigger of the file is named, or is said not to be covered."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from harness.ledger import OURS, THEIRS, EventMaker
from subluminal.contracts.filters import Filters
from subluminal.ledger.read.ledger import open_ledger
from subluminal.ledger.store.prune import prune
from subluminal.ledger.store.schema import open_writer
from subluminal.ledger.store.writer import Store
from subluminal.ledger.trace import database as checks
from subluminal.ledger.trace.database import NOT_COVERED
from subluminal.ledger.trace.report import DatabaseReport, Report
from subluminal.ledger.trace.verify import verify_database, verify_ledger, verify_run

HINT = {"hint_text": "Use a branch.", "suggested_args": None, "retry_advice": None, "hint_kind": "ARG_FIX"}


@pytest.fixture
def path(tmp_path: Path) -> str:
    """One run that fills every table which events fill, and another run beside it."""
    path = str(tmp_path / "ledger.db")
    store = Store(path)
    a, b = EventMaker("run-1", OURS), EventMaker("run-1", THEIRS)
    lines = [a.run_start(), b.run_start(), *a.call("BLOCK"), *b.call(status="ERROR")]
    lines += [a.start("git_push"), a.decision("REJECT_WITH_HINT", hint=HINT), a.end("ERROR")]
    told = {"agent_kind": "claude", "kind": "TextOutput", "channel": None, "text": "Hm.", "message": None, "data": None}
    lines.append(a.event("agent_event", agent=told))
    seen = {"kind": "tool", "name": "push", "fingerprint": "f", "state": "new", "classes": ["new"]}
    lines.append(a.event("tools_seen", tools={"server_name": "git", "launch": "", "items": [seen]}))
    for half in (lines[:7], lines[7:]):
        store.write(lambda half=half: [store.add(line) for line in half])
    other = EventMaker("run-2", "c").whole_run(2)
    store.write(lambda: [store.add(line) for line in other])
    store.close()
    return path


@pytest.fixture
def claimed(tmp_path: Path) -> str:
    """A run in which one shim claimed a call of another."""
    path = str(tmp_path / "claimed.db")
    store = Store(path)
    owner, other = EventMaker("run-1", OURS), EventMaker("run-1", THEIRS)
    lines = owner.call("BLOCK")
    other.reference = owner.reference
    lines.append(other.decision("ALLOW"))
    store.write(lambda: [store.add(line) for line in lines])
    store.close()
    return path


def change(path: str, *statements: str) -> None:
    database = sqlite3.connect(path)
    for statement in statements:
        cursor = database.execute(statement)
        assert cursor.rowcount != 0, statement
    database.commit()
    database.close()


def faults(path: str) -> list[str]:
    database, reports = verify_ledger(path)
    return [fault.what for report in (database, *reports) for fault in report.faults]


def parts(found: tuple[DatabaseReport, list[Report]]) -> set[str]:
    return {fault.part for report in (found[0], *found[1]) for fault in report.faults}


def test_an_untouched_ledger_is_sound_and_every_table_covered(path: str) -> None:
    database, reports = verify_ledger(path)
    assert database.ok and database.covered and database.integrity == "full"
    assert [(report.ok, report.chain_ok, report.rows_ok) for report in reports] == [(True, True, True)] * 2


TAMPERED = {
    "runs": ("UPDATE runs SET agent_id = 'eve' WHERE run_no = 1", "agent_id"),
    "tool_calls": ("UPDATE tool_calls SET decision = 'ALLOW' WHERE decision = 'BLOCK'", "decision"),
    "tool_calls, by its id": (
        "UPDATE tool_calls SET id = id - (3600000 << 16) WHERE decision = 'BLOCK'",
        "disagrees with the events in id_ms",
    ),
    "tool_calls, of another producer": (
        "UPDATE tool_calls SET producer_no = producer_no + 1 WHERE decision = 'BLOCK'",
        "shim_id",
    ),
    "previews": ("UPDATE previews SET args_preview = '{}'", "args_preview"),
    "previews, orphaned": ("INSERT INTO previews (id, call_id) VALUES (5, 'x')", "1 previews of no call"),
    "hints": ("UPDATE hints SET hint_text = 'Go on.'", "hint_text"),
    "hints, orphaned": (
        "INSERT INTO hints (id, call_id, hint_text, created_at, hint_kind) VALUES (5, 'x', 'x', 'x', 'OTHER')",
        "1 hints of no call",
    ),
    "policy_versions": ("UPDATE policy_versions SET mode = 'observe'", "a mode of which no event speaks"),
    "policy_versions, by its moment": (
        "UPDATE policy_versions SET created_at = '2020-01-01T00:00:00.000Z'",
        "was not first named at 2020",
    ),
    "policy_versions, by its text": ("UPDATE policy_versions SET rules_json = '{}'", "not the one that was in force"),
    "policy_versions, removed": ("DELETE FROM policy_versions", "is missing in policy_versions"),
    "policy_versions, put in": (
        "INSERT INTO policy_versions VALUES ('x', '1', 'observe', 'h', NULL, '2020-01-01T00:00:00.000Z')",
        "no event speaks of it",
    ),
    "server_tools, removed": ("DELETE FROM server_tools WHERE tool_name = 'git_push'", "is missing in server_tools"),
    "server_tools, put in": ("INSERT INTO server_tools VALUES ('git', 'rm')", "of which no event speaks"),
    "producers": ("UPDATE producers SET host_id = 'elsewhere' WHERE producer_no = 1", "host_id"),
    "producers, put in": (
        "INSERT INTO producers VALUES (99, 'x', 'no-run', 'h', 'p', NULL, 0, '2020-01-01T00:00:00.000Z', NULL, NULL)",
        "1 producers of no run",
    ),
    "spans, by their producer": (
        "UPDATE spans SET producer_no = 99 WHERE run_no = 1 AND first_n = 1",
        "a span's row disagrees with the events in shim_id",
    ),
    "spans, by their numbers": (
        "UPDATE spans SET first_seq = 99 WHERE run_no = 1 AND first_n = 1",
        "a span's row disagrees with the events in first_seq",
    ),
    "spans, by how many they are": ("UPDATE spans SET count = 2 WHERE run_no = 1 AND first_n = 1", "in count"),
    "spans, taken away": ("DELETE FROM spans WHERE run_no = 1 AND first_n = 1", "a span's row is missing"),
    "spans, of no run": ("INSERT INTO spans VALUES (9, 1, 1, 1, 99)", "1 spans of no run"),
    "segments": ("UPDATE segments SET lines = x'00' WHERE id = 1", "its line is missing"),
    "segments, by their head": ("UPDATE segments SET head = zeroblob(32) WHERE id = 1", "changed, moved or put in"),
    "segments, without a head": ("UPDATE segments SET head = NULL WHERE id = 1", "changed, moved or put in"),
    "segments, without marks": ("UPDATE segments SET marks = NULL WHERE id = 1", "changed, moved or put in"),
    "segments, of no run": (
        "INSERT INTO segments VALUES (99, 9, 1, x'00', x'00', x'00')",
        "1 segments of no run",
    ),
    "segments, in another order": (
        "UPDATE segments SET id = 99 WHERE id = 1",
        "1 segments out of the order of their run",
    ),
    "tool_versions": ("UPDATE tool_versions SET state = 'pinned'", "a tool version's row disagrees"),
    "tool_versions, removed": ("DELETE FROM tool_versions", "a tool version's row is missing"),
    "tool_versions, of no run": ("UPDATE tool_versions SET run_id = 'no-run'", "1 tool_versions of no run"),
    "agent_events": ("UPDATE agent_events SET text = 'Fine.'", "text"),
    "agent_events, of another event": (
        "UPDATE agent_events SET id = id + (5 << 32)",
        "an agent event's row is missing",
    ),
    "agent_events, of no run": ("UPDATE agent_events SET run_id = 'no-run'", "1 agent_events of no run"),
    "tool_calls, of no run": (
        "UPDATE tool_calls SET run_id = 'no-run' WHERE decision = 'BLOCK'",
        "1 tool_calls of no run",
    ),
    "joined, put in": (
        "INSERT INTO joined SELECT id, run_id FROM tool_calls WHERE decision = 'BLOCK'",
        "the call's row in joined is there",
    ),
    "joined, as of another run": (
        "INSERT INTO joined SELECT id, 'run-2' FROM tool_calls WHERE decision = 'BLOCK'",
        "the call's row in joined is there",
    ),
    "joined, orphaned": ("INSERT INTO joined VALUES (5, 'run-1')", "1 joined of no call"),
    "conflicts, put in": ("INSERT INTO conflicts VALUES ('run-1', 'x', 'y', 'z', 1)", "a conflict's row is there"),
    "conflicts, of no run": ("INSERT INTO conflicts VALUES ('no-run', 'x', 'y', 'z', 1)", "1 conflicts of no run"),
    "tombstones": (
        "INSERT INTO tombstones VALUES ('run-0', 1, x'00', NULL, '2020-01-01T00:00:00.000Z')",
        "the tombstone of run run-0 is not what ledger.heads announces",
    ),
}


@pytest.mark.parametrize("where", TAMPERED)
def test_an_edit_in_any_table_is_named(path: str, where: str) -> None:
    statement, what = TAMPERED[where]
    change(path, statement)
    assert [fault for fault in faults(path) if what in fault], faults(path)


def test_every_table_is_tampered_with_here_or_named_as_not_covered(path: str) -> None:
    named = {words.partition(",")[0] for words in TAMPERED}
    named |= {name.partition(".")[0] for text in NOT_COVERED for name in text.partition(":")[0].split(", ")}
    tables = {row[0] for row in sqlite3.connect(path).execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    assert tables - named == {"sqlite_sequence"}


def test_a_conflict_that_was_wiped_out_is_named_by_the_events(claimed: str) -> None:
    change(claimed, "DELETE FROM conflicts")
    assert faults(claimed) == ["a conflict's row is missing", f"shim {THEIRS} speaks of a call of shim {OURS}"]
    assert parts(verify_ledger(claimed)) == {"rows", "owners"}


SCHEMA = {
    "an index that is missing": ("DROP INDEX tool_calls_decision", "the index tool_calls_decision is missing"),
    "an index that leaves rows out": (
        "DROP INDEX tool_calls_decision;"
        "CREATE INDEX tool_calls_decision ON tool_calls (decision, status) WHERE decision = 'THROTTLE'",
        "the index tool_calls_decision is not as Subluminal makes it",
    ),
    "a trigger": (
        "CREATE TRIGGER quiet AFTER INSERT ON tool_calls BEGIN DELETE FROM tool_calls WHERE decision = 'BLOCK'; END",
        "the trigger quiet is not Subluminal's",
    ),
    "a view": ("CREATE VIEW calls AS SELECT * FROM tool_calls", "the view calls is not Subluminal's"),
    "a table": ("CREATE TABLE extra (x)", "the table extra is not Subluminal's"),
    "a column": ("ALTER TABLE tool_calls ADD COLUMN extra", "the table tool_calls is not as Subluminal makes it"),
    "a view in the place of a table": (
        "DROP TABLE server_tools; CREATE VIEW server_tools AS SELECT 'git' AS server_name, 'ls' AS tool_name",
        "the table server_tools is not as Subluminal makes it",
    ),
}


@pytest.mark.parametrize("how", SCHEMA)
def test_a_schema_that_was_changed_is_named_for_one_run_too(path: str, how: str) -> None:
    statements, what = SCHEMA[how]
    database = sqlite3.connect(path)
    database.executescript(statements)
    database.close()
    assert what in [fault.what for fault in verify_database(path).faults]
    assert what in faults(path)


def test_an_index_that_was_rebuilt_without_a_row_is_named(path: str) -> None:
    """`sub query --decision BLOCK` goes by this index alone: without its entry the call is hidden, the table whole."""
    database = sqlite3.connect(path, isolation_level=None)
    honest = database.execute("SELECT sql FROM sqlite_schema WHERE name = 'tool_calls_decision'").fetchone()[0]
    database.execute("DROP INDEX tool_calls_decision")
    database.execute(honest.replace("WHERE ", "WHERE decision <> 'BLOCK' AND (") + ")")
    database.execute("PRAGMA writable_schema = ON")
    database.execute("UPDATE sqlite_schema SET sql = ? WHERE name = 'tool_calls_decision'", (honest,))
    database.close()
    with open_ledger(path) as ledger:
        assert ledger.calls(Filters(decision=["BLOCK"])).rows == []
    assert any("missing from index tool_calls_decision" in fault for fault in faults(path)), faults(path)


def test_a_damaged_page_is_named_and_no_crash(path: str) -> None:
    data = bytearray(Path(path).read_bytes())
    size = int.from_bytes(data[16:18], "big")
    for page in range(3, len(data) // size):
        data[page * size : page * size + 40] = b"\xff" * 40
    Path(path).write_bytes(data)
    assert any("SQLite finds damage" in fault for fault in faults(path))


def test_a_large_ledger_is_checked_quickly_for_one_run_and_fully_for_all(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "FULL_BELOW_BYTES", 1)
    change(path, "INSERT INTO previews (id, call_id) VALUES (5, 'x')")
    report = verify_database(path)
    assert report.ok and (report.integrity, report.covered) == ("quick", False)
    assert verify_run(path, "run-1").ok
    assert not verify_ledger(path)[0].ok


def test_what_only_pruned_runs_have_named_is_no_fault(path: str) -> None:
    store = Store(path)
    old = EventMaker("run-0", "old")
    lines = [old.run_start(), *old.call(tool="rm"), old.run_end()]
    store.write(lambda: [store.add(line) for line in lines])
    assert [run["run_id"] for run in prune(store, "2024-01-01T00:00:00.000Z")] == ["run-0", "run-2"]
    store.close()
    database, _ = verify_ledger(path)
    assert database.faults == [] and database.covered
    store = Store(path)
    store.write(lambda: [store.add(line) for line in lines])
    store.close()
    assert faults(path) == [], "nor is one that has come again, from a bundle"


def test_analyze_is_no_fault(path: str) -> None:
    sqlite3.connect(path).execute("ANALYZE").connection.close()
    assert faults(path) == []


def test_a_migrated_schema_is_the_expected_one(tmp_path: Path) -> None:
    open_writer(str(tmp_path / "new.db")).close()
    assert verify_database(str(tmp_path / "new.db")).ok
