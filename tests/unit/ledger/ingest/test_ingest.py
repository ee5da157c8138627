"""Journals are read exactly once, and a dead shim's journal is closed honestly before it goes."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.ledger import EventMaker, create_journal, spool_of
from subluminal.host.record.journal import journal_name, list_journals, open_journal, take_if_dead
from subluminal.ledger.fold.reading import MAX_LINE_BYTES
from subluminal.ledger.ingest import journals as ingest
from subluminal.ledger.ingest.journals import Spool
from subluminal.ledger.read.ledger import open_ledger
from subluminal.ledger.store.writer import Store
from subluminal.ledger.trace.verify import verify_run


class Ingesting:
    """A spool and a store as the daemon holds them, driven by hand."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.directory = spool_of(home)
        self.open()

    def open(self) -> None:
        self.store = Store(str(self.home / "ledger.db"))
        self.spool = Spool(str(self.directory), self.store)

    def close(self) -> None:
        self.spool.close()
        self.store.close()

    def killed(self) -> None:
        """As after SIGKILL: nothing of the process's memory survives."""
        self.spool.close()
        self.store.connection.close()
        self.open()

    def settle(self) -> None:
        for _ in range(50):
            while self.spool.scan() and self.spool.pump():
                pass
            if not self.spool.tend():
                return
        raise AssertionError("the spool never settled")

    def rows(self, sql: str) -> list[Any]:
        return self.store.connection.execute(sql).fetchall()


@pytest.fixture
def ingesting(tmp_path: Path) -> Iterator[Ingesting]:
    opened = Ingesting(tmp_path / "home")
    yield opened
    opened.close()


def lines_of(maker: EventMaker, calls: int) -> bytes:
    return b"".join(line + b"\n" for line in maker.whole_run(calls))


def test_a_living_journal_is_read_as_it_grows_and_stays(ingesting: Ingesting) -> None:
    journal = create_journal(str(ingesting.directory), "shim-1")
    data = lines_of(EventMaker("run-1", "shim-1"), 2)
    for start in range(0, len(data), 100):
        os.write(journal, data[start : start + 100])
        ingesting.settle()
    assert ingesting.rows("SELECT event_count, status FROM runs") == [(8, "SUCCEEDED")]
    assert list_journals(str(ingesting.directory)) == ["shim-1.jsonl"]
    os.close(journal)
    ingesting.settle()
    assert list_journals(str(ingesting.directory)) == []
    assert ingesting.rows("SELECT count(*) FROM journals") == [(0,)]


def test_the_offset_and_the_events_commit_together(ingesting: Ingesting) -> None:
    journal = create_journal(str(ingesting.directory), "shim-1")
    maker = EventMaker("run-1", "shim-1")
    os.write(journal, maker.run_start() + b"\n" + b"".join(line + b"\n" for line in maker.call()))
    ingesting.settle()
    ingesting.killed()
    os.write(journal, b"".join(line + b"\n" for line in maker.call()))
    ingesting.settle()
    ingesting.killed()
    ingesting.settle()
    assert ingesting.rows("SELECT event_count, calls_total FROM runs") == [(7, 2)]
    assert ingesting.rows("SELECT offset, lines FROM journals") == [(os.fstat(journal).st_size, 7)]
    os.close(journal)


def test_a_half_line_waits_for_its_rest(ingesting: Ingesting) -> None:
    journal = create_journal(str(ingesting.directory), "shim-1")
    line = EventMaker("run-1", "shim-1").run_start()
    os.write(journal, line[:50])
    ingesting.settle()
    assert ingesting.rows("SELECT coalesce(sum(count), 0) FROM spans") == [(0,)]
    os.write(journal, line[50:] + b"\n")
    ingesting.settle()
    assert ingesting.rows("SELECT coalesce(sum(count), 0) FROM spans") == [(1,)]
    os.close(journal)


def test_a_dead_shims_open_calls_and_run_are_closed_in_its_name(ingesting: Ingesting) -> None:
    maker = EventMaker("run-1", "shim-1")
    lines = [maker.run_start(), *maker.call(), *maker.call("BLOCK"), maker.start(), maker.decision(), maker.start()]
    path = ingesting.directory / "shim-1.jsonl"
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    os.utime(path, (1_700_000_005, 1_700_000_005))
    ingesting.settle()
    with open_ledger(ingesting.store.path) as ledger:
        run = ledger.run("run-1")
        events = list(ledger.timeline("run-1"))
        cut = ledger.call("shim-1-4")
    assert (run["status"], run["ended_at"]) == ("FAILED", "2023-11-14T22:13:25.000Z")
    assert (run["calls_total"], run["calls_allowed"], run["calls_blocked"], run["errors_total"]) == (4, 2, 1, 2)
    assert [event["type"] for event in events[-3:]] == ["tool_call_end", "tool_call_end", "run_end"]
    assert [event["source"]["seq"] for event in events] == list(range(1, 14))
    for event in events[-3:]:
        assert event["closed_by"] == "ledgerd" and event["closed_at"] > event["ts"]
        assert event["source"]["shim_id"] == "shim-1" and event["principal"] == "ann"
    assert events[-2]["error"] == {
        "class": "transport",
        "message": "shim ended before the reply",
        "retryable": True,
    }
    assert events[-1]["run"]["summary"] == {
        "calls_total": 4,
        "calls_allowed": 2,
        "calls_blocked": 1,
        "calls_throttled": 0,
        "errors_total": 2,
        "duration_ms": 5000,
    }
    assert (cut["status"], cut["error_class"], cut["decision"]) == ("ERROR", "transport", None)
    assert not path.exists()
    assert verify_run(ingesting.store.path, "run-1").ok


def test_closing_goes_on_after_a_kill_in_the_middle_of_it(ingesting: Ingesting) -> None:
    maker = EventMaker("run-1", "shim-1")
    path = ingesting.directory / "shim-1.jsonl"
    path.write_bytes(b"".join(line + b"\n" for line in [maker.run_start(), maker.start(), maker.start()]))
    while ingesting.spool.scan() and ingesting.spool.pump():
        pass
    assert ingesting.spool.tend()
    written = path.read_bytes().splitlines(keepends=True)
    assert len(written) == 6
    path.write_bytes(b"".join(written[:4]) + written[4][:30])
    ingesting.killed()
    ingesting.settle()
    with open_ledger(ingesting.store.path) as ledger:
        kinds = [event["type"] for event in ledger.timeline("run-1")]
    assert kinds == ["run_start", "tool_call_start", "tool_call_start", "tool_call_end", "tool_call_end", "run_end"]
    assert not path.exists()
    assert len(ingesting.rows("SELECT * FROM rejected")) == 1


def test_a_dead_shims_half_line_is_set_aside_and_reported(ingesting: Ingesting) -> None:
    data = lines_of(EventMaker("run-1", "shim-1"), 1)
    (ingesting.directory / "shim-1.jsonl").write_bytes(data[:-20])
    ingesting.settle()
    assert ingesting.rows("SELECT source, line_no FROM rejected") == [("shim-1.jsonl", 5)]
    aside = (ingesting.directory / "rejected" / "shim-1.jsonl").read_bytes()
    assert aside == data.splitlines(keepends=True)[-1][:-20] + b"\n"
    assert ingesting.rows("SELECT status FROM runs") == [("FAILED",)]


def test_a_bad_line_in_the_middle_is_set_aside_with_its_number_and_the_rest_kept(ingesting: Ingesting) -> None:
    lines = EventMaker("run-1", "shim-1").whole_run(2)
    secret = b'{"type":"run_start","token":"hunter2"'
    lines[3:3] = [secret]
    (ingesting.directory / "shim-1.jsonl").write_bytes(b"".join(line + b"\n" for line in lines))
    ingesting.settle()
    assert ingesting.rows("SELECT event_count, status FROM runs") == [(8, "SUCCEEDED")]
    [(line_no, reason)] = ingesting.rows("SELECT line_no, reason FROM rejected")
    assert line_no == 4 and "hunter2" not in reason
    aside = ingesting.directory / "rejected" / "shim-1.jsonl"
    assert aside.read_bytes() == secret + b"\n" and aside.stat().st_mode & 0o777 == 0o600


def test_a_line_longer_than_any_event_is_passed_over_in_bounded_memory(ingesting: Ingesting) -> None:
    maker = EventMaker("run-1", "shim-1")
    lines = maker.whole_run(1)
    endless = b'{"x":"' + b"y" * (3 * MAX_LINE_BYTES) + b'"}'
    lines[2:2] = [endless]
    (ingesting.directory / "shim-1.jsonl").write_bytes(b"".join(line + b"\n" for line in lines))
    ingesting.settle()
    assert ingesting.rows("SELECT event_count FROM runs") == [(5,)]
    assert [row[0] for row in ingesting.rows("SELECT reason FROM rejected")] == [
        f"a line longer than {MAX_LINE_BYTES} bytes"
    ]


def test_an_empty_journal_is_left_alone_until_its_shim_had_time_to_lock_it(
    ingesting: Ingesting, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = ingesting.directory / "young.jsonl"
    path.touch()
    ingesting.settle()
    assert path.exists()
    monkeypatch.setattr(ingest, "EMPTY_GRACE_S", 0.0)
    ingesting.settle()
    assert not path.exists()


def test_what_is_no_journal_of_ours_is_never_opened(ingesting: Ingesting, tmp_path: Path) -> None:
    outside = tmp_path / "outside.jsonl"
    outside.write_bytes(lines_of(EventMaker("run-1", "shim-1"), 1))
    (ingesting.directory / "link.jsonl").symlink_to(outside)
    os.mkfifo(ingesting.directory / "fifo.jsonl")
    (ingesting.directory / "directory.jsonl").mkdir()
    (ingesting.directory / ".hidden.jsonl").write_bytes(outside.read_bytes())
    ingesting.settle()
    assert ingesting.rows("SELECT coalesce(sum(count), 0) FROM spans") == [(0,)]
    assert outside.exists()


def test_a_journal_is_locked_from_the_moment_it_has_its_name(tmp_path: Path) -> None:
    journal = create_journal(str(tmp_path), "../../evil id")
    assert list_journals(str(tmp_path)) == [journal_name("../../evil id")] == ["______evil_id.jsonl"]
    other = open_journal(str(tmp_path), "______evil_id.jsonl")
    assert other is not None and not take_if_dead(other)
    os.close(journal)
    assert take_if_dead(other)
    os.close(other)


def test_a_burst_is_taken_in_bounded_pieces(ingesting: Ingesting) -> None:
    for i in range(3):
        data = lines_of(EventMaker(f"run-{i}", f"shim-{i}"), 1500)
        (ingesting.directory / f"shim-{i}.jsonl").write_bytes(data)
    sizes = []
    while ingesting.spool.scan():
        sizes.append(ingesting.spool.pump())
    assert len(sizes) > 1
    assert max(sizes) <= ingest.BATCH_BYTES + ingest.PIECE_BYTES
    assert ingesting.rows("SELECT sum(event_count) FROM runs") == [(3 * 4502,)]


def test_a_journal_read_twice_because_its_place_was_lost_adds_nothing(ingesting: Ingesting) -> None:
    journal = create_journal(str(ingesting.directory), "shim-1")
    os.write(journal, lines_of(EventMaker("run-1", "shim-1"), 3))
    ingesting.settle()
    ingesting.store.connection.execute("DELETE FROM journals")
    ingesting.killed()
    ingesting.settle()
    assert ingesting.rows("SELECT event_count, calls_total FROM runs") == [(11, 3)]
    os.close(journal)


def test_a_refused_line_is_set_aside_once_even_if_its_batch_is_read_again(ingesting: Ingesting) -> None:
    (ingesting.directory / "shim-1.jsonl").write_bytes(b"garbage\n")
    ingesting.spool.scan()
    real = ingesting.store.places.set

    def fail(*arguments: Any) -> None:
        raise OSError(28, "No space left on device")

    ingesting.store.places.set = fail  # type: ignore[method-assign]
    with pytest.raises(OSError, match="No space"):
        ingesting.spool.pump()
    ingesting.store.places.set = real  # type: ignore[method-assign]
    ingesting.settle()
    assert (ingesting.directory / "rejected" / "shim-1.jsonl").read_bytes() == b"garbage\n"
    assert len(ingesting.rows("SELECT * FROM rejected")) == 1


def test_closing_events_are_events_of_the_contract(ingesting: Ingesting) -> None:
    from subluminal.contracts.events import decode_event

    maker = EventMaker("run-1", "shim-1", identity=False)
    path = ingesting.directory / "shim-1.jsonl"
    path.write_bytes(maker.run_start() + b"\n" + maker.start() + b"\n")
    while ingesting.spool.scan() and ingesting.spool.pump():
        pass
    ingesting.spool.tend()
    lines = path.read_bytes().splitlines()
    events = [json.loads(line) for line in lines if decode_event(line)]
    assert [event["type"] for event in events] == ["run_start", "tool_call_start", "tool_call_end", "run_end"]
    assert [event.get("closed_by") for event in events] == [None, None, "ledgerd", "ledgerd"]
    assert {event["run_id"] for event in events} == {"run-1"}
