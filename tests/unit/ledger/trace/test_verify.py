"""Any edit, removal, reordering or cut of the record is found and the first bad event named."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

import pytest

from harness.ledger import EventMaker, verify_all
from subluminal.contracts.errors import LedgerError
from subluminal.host.home import heads_path
from subluminal.ledger.store.chain import GENESIS, link, read_heads
from subluminal.ledger.store.encoding import pack_lines, unpack_lines
from subluminal.ledger.store.links import follow, hash_at, marks
from subluminal.ledger.store.prune import prune
from subluminal.ledger.store.writer import Store
from subluminal.ledger.trace.report import Fault
from subluminal.ledger.trace.verify import verify_run

EVENTS = 2 * (2 + 3 * 4)
FORGED_MARK = "CAST(substr(marks, 1, 8) || zeroblob(4) || substr(marks, 13) AS BLOB)"


@pytest.fixture
def path(tmp_path: Path) -> str:
    """Two shims of one run, interleaved, in several batches; a second run beside it."""
    path = str(tmp_path / "ledger.db")
    store = Store(path)
    one, two = EventMaker("run-1", "a").whole_run(4), EventMaker("run-1", "b").whole_run(4)
    for batch in zip(*[iter([line for pair in zip(one, two, strict=True) for line in pair])] * 7, strict=True):
        store.write(lambda batch=batch: [store.add(line) for line in batch])
    other = EventMaker("run-2", "c").whole_run(1)
    store.write(lambda: [store.add(line) for line in other])
    store.close()
    return path


def change(path: str, *statements: str) -> None:
    database = sqlite3.connect(path)
    for statement in statements:
        assert database.execute(statement).rowcount != 0, statement
    database.commit()
    database.close()


def first_fault(path: str) -> Fault:
    report = verify_run(path, "run-1")
    assert len(report.faults) == 1
    assert verify_run(path, "run-2").ok
    return report.faults[0]


def test_an_untouched_ledger_verifies(path: str) -> None:
    report = verify_run(path, "run-1")
    assert (report.ok, report.events) == (True, EVENTS)
    assert [r.ok for r in verify_all(path)] == [True, True]
    assert read_heads(heads_path(path))["run-1"].hash.hex() == report.head


def test_the_chain_is_sha256_over_the_previous_hash_and_the_exact_line(path: str) -> None:
    database = sqlite3.connect(path)
    head = GENESIS
    for (stored,) in database.execute("SELECT lines FROM segments WHERE run_no = 1 ORDER BY first_n"):
        for line in unpack_lines(stored):
            head = link(head, line)
    assert database.execute("SELECT chain_head FROM runs WHERE run_no = 1").fetchone()[0] == head


def test_the_hash_after_any_event_can_be_told_from_its_segment(path: str) -> None:
    database = sqlite3.connect(path)
    lines = [
        line
        for (stored,) in database.execute("SELECT lines FROM segments WHERE run_no = 1 ORDER BY first_n")
        for line in unpack_lines(stored)
    ]
    assert [hash_at(database, 1, n) for n in range(EVENTS + 1)] == [GENESIS, *follow(GENESIS, lines)]
    assert hash_at(database, 1, EVENTS + 1) is None and hash_at(database, 9, 1) is None
    database.execute("UPDATE segments SET lines = x'789c00' WHERE first_n = 15")
    assert hash_at(database, 1, 16) is None and hash_at(database, 1, 14) is not None


def edit_lines(path: str, edit: str) -> None:
    """Change the third segment (events 15 to 21) the way an attacker with a SQLite shell would."""
    database = sqlite3.connect(path)
    number, stored = database.execute("SELECT id, lines FROM segments WHERE first_n = 15").fetchone()
    lines = unpack_lines(stored)
    if edit == "byte":
        lines[2] = lines[2].replace(b"ann", b"bob")
    elif edit == "swap":
        lines[2], lines[3] = lines[3], lines[2]
    elif edit == "drop":
        del lines[2]
    elif edit == "insert":
        lines.insert(3, lines[2])
    database.execute("UPDATE segments SET lines = ? WHERE id = ?", (pack_lines(lines), number))
    database.commit()


@pytest.mark.parametrize(("edit", "event"), [("byte", 17), ("swap", 17), ("drop", 17), ("insert", 18)])
def test_a_changed_moved_dropped_or_added_line_is_named(path: str, edit: str, event: int) -> None:
    edit_lines(path, edit)
    assert first_fault(path).event == event


def test_a_damaged_segment_is_a_fault_and_no_crash(path: str) -> None:
    change(path, "UPDATE segments SET lines = x'789c00' WHERE first_n = 15")
    assert first_fault(path).event == 15


@pytest.mark.parametrize(
    ("statement", "event"),
    [
        ("DELETE FROM segments WHERE first_n = 8", 8),
        ("DELETE FROM segments WHERE first_n = 22", 22),
        (f"UPDATE segments SET marks = {FORGED_MARK} WHERE run_no = 1 AND first_n = 1", 3),
        ("UPDATE segments SET marks = substr(marks, 1, 8) WHERE first_n = 8", 10),
        ("UPDATE segments SET marks = CAST(marks || zeroblob(4) AS BLOB) WHERE first_n = 8", 15),
        ("UPDATE segments SET head = zeroblob(32) WHERE first_n = 8", 14),
        ("UPDATE runs SET event_count = 27 WHERE run_no = 1", 29),
        ("UPDATE runs SET chain_head = zeroblob(32) WHERE run_no = 1", 28),
    ],
)
def test_a_missing_or_forged_row_is_named(path: str, statement: str, event: int) -> None:
    change(path, statement)
    assert first_fault(path).event == event


def test_a_clean_cut_at_the_end_is_found_by_the_witness(path: str) -> None:
    head = sqlite3.connect(path).execute("SELECT head FROM segments WHERE first_n = 15").fetchone()[0].hex()
    change(
        path,
        "DELETE FROM spans WHERE run_no = 1 AND first_n > 21",
        "DELETE FROM segments WHERE run_no = 1 AND first_n > 21",
        f"UPDATE runs SET event_count = 21, chain_head = x'{head}' WHERE run_no = 1",
    )
    fault = first_fault(path)
    assert fault.event == 22 and "witness knows 28" in fault.what


def test_a_cut_stays_visible_after_the_daemon_has_gone_on_writing(path: str) -> None:
    test_a_clean_cut_at_the_end_is_found_by_the_witness(path)
    store = Store(path)
    more = EventMaker("run-1", "d").whole_run(4)
    store.write(lambda: [store.add(line) for line in more])
    store.close()
    assert first_fault(path).event == 28


def test_a_chain_written_anew_differs_from_its_witness(path: str) -> None:
    database = sqlite3.connect(path)
    head = GENESIS
    for number, stored in database.execute(
        "SELECT id, lines FROM segments WHERE run_no = 1 ORDER BY first_n"
    ).fetchall():
        lines = [line.replace(b'"ann"', b'"bob"') for line in unpack_lines(stored)]
        heads = follow(head, lines)
        head = heads[-1]
        forged = (pack_lines(lines), head, marks(heads), number)
        database.execute("UPDATE segments SET lines = ?, head = ?, marks = ? WHERE id = ?", forged)
    database.execute("UPDATE runs SET chain_head = ? WHERE run_no = 1", (head,))
    database.commit()
    assert "witness" in first_fault(path).what


@pytest.mark.parametrize(
    ("statement", "what"),
    [
        ("UPDATE tool_calls SET decision = 'BLOCK' WHERE call_id = 'a-2'", "decision"),
        ("UPDATE tool_calls SET tool_name = 'ls' WHERE call_id = 'a-2'", "tool_name"),
        ("UPDATE tool_calls SET start_event = 1 WHERE call_id = 'a-2'", "start_event"),
        ("DELETE FROM tool_calls WHERE call_id = 'a-2'", "is missing"),
        ("DELETE FROM previews WHERE call_id = 'a-2'", "args_preview"),
        ("UPDATE previews SET result_preview = 'fine' WHERE call_id = 'a-2'", "result_preview"),
        ("UPDATE runs SET calls_blocked = 1 WHERE run_no = 1", "calls_blocked"),
        ("UPDATE runs SET principal = 'eve' WHERE run_no = 1", "principal"),
        ("UPDATE producers SET status = 'FAILED' WHERE shim_id = 'b'", "status"),
    ],
)
def test_a_row_that_disagrees_with_the_events_counts_as_an_edit(path: str, statement: str, what: str) -> None:
    change(path, statement)
    assert what in first_fault(path).what


def test_a_row_that_no_event_speaks_of_is_found(path: str) -> None:
    columns = "server_name, tool_name, args_hash, preview_truncated, created_at, producer_no"
    change(
        path,
        f"INSERT INTO tool_calls (id, call_id, run_id, {columns}) SELECT 7, 'zzz', run_id, {columns}"
        " FROM tool_calls WHERE call_id = 'a-1'",
    )
    assert "no event speaks of it" in first_fault(path).what


def test_a_whole_run_that_vanished_is_found_and_one_that_was_pruned_is_not(path: str) -> None:
    store = Store(path)
    assert [run["run_id"] for run in prune(store, "2024-01-01T00:00:00.000Z")] == ["run-2", "run-1"]
    store.close()
    assert verify_all(path) == []
    database = sqlite3.connect(path)
    assert database.execute("SELECT run_id, event_count FROM tombstones ORDER BY 1").fetchall() == [
        ("run-1", 28),
        ("run-2", 5),
    ]
    for table in ("runs", "tool_calls", "previews", "spans", "segments", "producers"):
        assert database.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,)


def test_a_run_deleted_by_hand_is_reported_as_missing(path: str) -> None:
    change(path, "DELETE FROM runs WHERE run_id = 'run-1'")
    by_run = {report.run_id: report for report in verify_all(path)}
    assert by_run["run-2"].ok and "whole run is missing" in by_run["run-1"].faults[0].what
    assert not verify_run(path, "run-1").ok


def test_a_run_that_never_was_is_an_error(path: str) -> None:
    with pytest.raises(LedgerError, match="no run nobody"):
        verify_run(path, "nobody")


def test_a_witness_that_lags_is_caught_up_and_no_fault(path: str, tmp_path: Path) -> None:
    heads = Path(heads_path(path))
    heads.write_bytes(heads.read_bytes()[:-20])
    assert [report.ok for report in verify_all(path)] == [True, True]
    Store(path).close()
    assert read_heads(str(heads)).keys() == {"run-1", "run-2"}
    assert [report.ok for report in verify_all(path)] == [True, True]


def test_run_ids_with_spaces_and_newlines_do_not_confuse_the_witness(tmp_path: Path) -> None:
    path = str(tmp_path / "ledger.db")
    store = Store(path)
    names = ["a b 3 " + "0" * 64, "line\nfeed", "é pruned", "run pruned"]
    for name in names:
        lines = EventMaker(name, "shim").whole_run(1)
        store.write(lambda lines=lines: [store.add(line) for line in lines])
    store.close()
    assert read_heads(heads_path(path)).keys() == set(names)
    assert all(report.ok for report in verify_all(path))


def test_a_forged_tombstone_does_not_excuse_a_run_that_is_gone(path: str) -> None:
    change(
        path,
        "INSERT INTO tombstones SELECT run_id, event_count, chain_head, ended_at, ended_at FROM runs"
        " WHERE run_id = 'run-1'",
        "DELETE FROM runs WHERE run_id = 'run-1'",
    )
    assert [fault.what for report in verify_all(path) for fault in report.faults] == [
        f"the whole run is missing; its witness knows {EVENTS} events"
    ]


def test_a_prune_that_fails_leaves_a_run_that_verifies_and_is_witnessed_again(path: str) -> None:
    def fail() -> None:
        raise sqlite3.OperationalError("disk full")

    store = Store(path)
    with pytest.raises(sqlite3.OperationalError):
        store.remove_run("run-1", fail)
    store.close()
    assert all(report.ok for report in verify_all(path))
    Store(path).close()
    assert not read_heads(heads_path(path))["run-1"].pruned


@pytest.mark.parametrize("kind", ["absent", "fifo", "directory", "garbage"])
def test_a_run_without_a_witness_is_sound_but_said_to_have_none(path: str, kind: str) -> None:
    assert [report.witnessed for report in verify_all(path)] == [EVENTS, 5]
    witness = Path(heads_path(path))
    witness.unlink()
    if kind == "fifo":
        os.mkfifo(witness)
    elif kind == "directory":
        witness.mkdir()
    elif kind == "garbage":
        witness.write_bytes(bytes(range(256)) * 4)
    assert [(report.ok, report.witnessed) for report in verify_all(path)] == [(True, 0), (True, 0)]


def test_a_policy_text_that_has_not_the_hash_of_the_events_is_a_fault(path: str) -> None:
    change(path, "UPDATE policy_versions SET rules_json = '{}'")
    report = verify_run(path, "run-1")
    assert [fault.what for fault in report.faults if "is not the one that was in force" in fault.what], report.faults
