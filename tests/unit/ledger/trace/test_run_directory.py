"""A run recorded in a directory: its journals gathered into one order, and everything wrong with them told."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from harness.ledger import BASE_MS, OURS, EventMaker, timestamp
from subluminal.contracts.errors import LedgerError
from subluminal.ledger.trace.bundle import open_bundle
from subluminal.ledger.trace.bundle_proof import verify_bundle
from subluminal.ledger.trace.run_directory import EVENTS, OTHER_RUNS, RunDirectory, gathered
from subluminal.ledger.trace.seal import seal


def append(run: RunDirectory, shim_id: str, *lines: bytes, end: bytes = b"\n") -> None:
    with open(os.path.join(run.journals_dir, f"{shim_id}.jsonl"), "ab") as file:
        file.write(b"\n".join(lines) + end)


def lines_of(run: RunDirectory) -> list[bytes]:
    return Path(run.path).read_bytes().splitlines()


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return RunDirectory(str(tmp_path / "trace"), "run")


def test_events_are_ordered_by_time_over_all_shims_and_told_once(tmp_path: Path) -> None:
    heard: list[str] = []
    run = RunDirectory(str(tmp_path), "run", lambda event: heard.append(f"{event.source.shim_id}{event.source.seq}"))
    a, b = EventMaker("run", "a", start_ms=BASE_MS), EventMaker("run", "b", start_ms=BASE_MS + 1)
    append(run, "b", b.run_start(), b.run_end())
    append(run, "a", a.run_start(), a.run_end())
    run.pump(None)
    run.pump(None)
    assert heard == ["a1", "a2", "b1", "b2"]
    assert [b'"shim_id":"a"' in line for line in lines_of(run)] == [True, True, False, False]
    assert run.faults == [] and run.in_order


def test_a_shim_whose_clock_was_set_back_keeps_its_sequence(run: RunDirectory) -> None:
    maker = EventMaker("run", "a")
    first = maker.run_start()
    maker.ms -= 3_600_000
    append(run, "a", first, maker.run_end())
    run.pump(None)
    assert lines_of(run)[0] == first
    assert run.faults == []


def test_young_lines_wait_for_slower_shims_and_half_a_line_for_its_rest(run: RunDirectory) -> None:
    maker = EventMaker("run", "a")
    start, end = maker.run_start(), maker.run_end()
    append(run, "a", start, end[:20], end=b"")
    run.pump(timestamp(BASE_MS))
    assert lines_of(run) == []
    run.pump(timestamp(BASE_MS + 10))
    assert lines_of(run) == [start]
    append(run, "a", end[20:])
    run.pump(None)
    assert lines_of(run) == [start, end]


def test_a_line_that_came_too_late_is_put_in_its_place_at_the_end(run: RunDirectory) -> None:
    early, late = EventMaker("run", "a"), EventMaker("run", "b", start_ms=BASE_MS + 1_000)
    append(run, "b", late.run_start())
    run.pump(None)
    append(run, "a", early.run_start())
    run.pump(None)
    assert not run.in_order
    run.close()
    assert run.in_order
    assert [b'"shim_id":"a"' in line for line in lines_of(run)] == [True, False]


def test_gaps_bad_lines_cuts_and_removals_are_faults(run: RunDirectory) -> None:
    maker = EventMaker("run", "a")
    append(run, "a", maker.run_start())
    append(run, "gone", EventMaker("run", "gone").run_start())
    run.pump(None)
    maker.run_start()  # number 2 is never written
    append(run, "a", maker.run_end(), b"no event")
    os.unlink(os.path.join(run.journals_dir, "gone.jsonl"))
    run.pump(None)
    os.truncate(os.path.join(run.journals_dir, "a.jsonl"), 5)
    run.pump(None)
    assert run.faults == [
        "the journal gone.jsonl was removed while the run was on",
        "the journal a.jsonl goes from event 1 to 3",
        "line 3 of the journal a.jsonl is no event",
        "the journal a.jsonl was cut or replaced while the run was on",
    ]
    run.close()
    assert len(lines_of(run)) == 3, "what was read before the cut stays"


def test_events_of_another_run_are_kept_aside(run: RunDirectory) -> None:
    append(run, "x", EventMaker("other", "x").run_start())
    run.pump(None)
    assert lines_of(run) == []
    assert (Path(run.directory) / OTHER_RUNS).read_bytes().count(b"\n") == 1


def test_links_in_the_journals_are_not_followed(run: RunDirectory, tmp_path: Path) -> None:
    secret = tmp_path / "secret.jsonl"
    secret.write_bytes(EventMaker("run", "a").run_start() + b"\n")
    os.symlink(secret, os.path.join(run.journals_dir, "a.jsonl"))
    os.mkfifo(os.path.join(run.journals_dir, "b.jsonl"))
    run.pump(None)
    assert lines_of(run) == [] and list(gathered(run.journals_dir)) == []


def test_sealed_and_unsealed_bundles_read_alike(run: RunDirectory) -> None:
    a, b = EventMaker("run", "a"), EventMaker("run", "b")
    append(run, "a", *a.whole_run(3))
    append(run, "b", *b.whole_run(2))
    with open_bundle(run.directory) as bundle:
        unsealed = list(bundle.lines())
    assert verify_bundle(run.directory).ok
    run.close()
    seal(run.directory, "run", [])
    assert not os.path.exists(run.journals_dir)
    report = verify_bundle(run.directory)
    assert report.ok and report.events == len(unsealed) == 5 * 3 + 4
    with open_bundle(run.directory) as bundle:
        assert list(bundle.lines()) == unsealed


def test_an_unsealed_bundle_with_a_hole_does_not_verify(run: RunDirectory) -> None:
    lines = EventMaker("run", "a").whole_run(2)
    append(run, "a", *lines[:2], *lines[3:])
    report = verify_bundle(run.directory)
    assert not report.ok and "number 3 of its shim is missing" in report.faults[0].what


def test_a_sealed_bundle_that_was_changed_does_not_verify(run: RunDirectory) -> None:
    append(run, "a", *EventMaker("run", "a").whole_run(2))
    run.close()
    seal(run.directory, "run", [])
    path = Path(run.directory) / EVENTS
    path.write_bytes(path.read_bytes().replace(b"git_status", b"git_statuz", 1))
    assert not verify_bundle(run.directory).ok


def test_journals_behind_a_link_are_no_bundle(run: RunDirectory, tmp_path: Path) -> None:
    (tmp_path / "fake").mkdir()
    os.symlink(run.journals_dir, tmp_path / "fake" / "journals")
    with pytest.raises(LedgerError, match="is a link"), open_bundle(str(tmp_path / "fake")):
        pass


def test_a_journal_that_speaks_for_another_shim_is_a_fault(run: RunDirectory) -> None:
    own, forged = EventMaker("run", "a"), EventMaker("run", "a")
    append(run, "a", own.run_start(), *own.call("BLOCK"))
    append(run, "b", forged.run_start(), *forged.call())
    with open_bundle(run.directory) as bundle:
        assert len(list(bundle.lines())) == 4, "nor does it become part of the record"
    assert [fault.what for fault in verify_bundle(run.directory).faults] == [
        "the journal b.jsonl speaks for another shim"
    ]
    run.pump(None)
    assert run.faults == ["the journal b.jsonl speaks for another shim"]
    run.close()
    assert len(lines_of(run)) == 4
    assert (Path(run.directory) / OTHER_RUNS).read_bytes().count(b"\n") == 4


def test_a_shim_that_speaks_of_another_s_call_is_a_fault_that_names_both(run: RunDirectory) -> None:
    owner, other = EventMaker("run", OURS), EventMaker("run", "b")
    append(run, OURS, owner.start())
    other.reference = owner.reference
    append(run, "b", other.decision("ALLOW"))
    run.pump(None)
    assert run.faults == [f"shim b speaks of the call {OURS}-1, which is that of shim {OURS}"]
