"""`ledger.recording`: journals of one run gathered into one order, and everything that is wrong with them told."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from harness.ledger import BASE_MS, EventMaker, timestamp
from subluminal.contracts.errors import LedgerError
from subluminal.ledger.trace.bundle import open_bundle, verify_bundle
from subluminal.ledger.trace.run_directory import EVENTS, OTHER_RUNS, Recording, gathered
from subluminal.ledger.trace.seal import seal


def append(recording: Recording, shim_id: str, *lines: bytes, end: bytes = b"\n") -> None:
    with open(os.path.join(recording.journals_dir, f"{shim_id}.jsonl"), "ab") as file:
        file.write(b"\n".join(lines) + end)


def lines_of(recording: Recording) -> list[bytes]:
    return Path(recording.path).read_bytes().splitlines()


@pytest.fixture
def recording(tmp_path: Path) -> Recording:
    return Recording(str(tmp_path / "trace"), "run")


def test_events_are_ordered_by_time_over_all_shims_and_told_once(tmp_path: Path) -> None:
    heard: list[str] = []
    recording = Recording(str(tmp_path), "run", lambda event: heard.append(f"{event.source.shim_id}{event.source.seq}"))
    a, b = EventMaker("run", "a", start_ms=BASE_MS), EventMaker("run", "b", start_ms=BASE_MS + 1)
    append(recording, "b", b.run_start(), b.run_end())
    append(recording, "a", a.run_start(), a.run_end())
    recording.pump(None)
    recording.pump(None)
    assert heard == ["a1", "a2", "b1", "b2"]
    assert [b'"shim_id":"a"' in line for line in lines_of(recording)] == [True, True, False, False]
    assert recording.faults == [] and recording.in_order


def test_a_shim_whose_clock_was_set_back_keeps_its_sequence(recording: Recording) -> None:
    maker = EventMaker("run", "a")
    first = maker.run_start()
    maker.ms -= 3_600_000
    append(recording, "a", first, maker.run_end())
    recording.pump(None)
    assert lines_of(recording)[0] == first
    assert recording.faults == []


def test_young_lines_wait_for_slower_shims_and_half_a_line_for_its_rest(recording: Recording) -> None:
    maker = EventMaker("run", "a")
    start, end = maker.run_start(), maker.run_end()
    append(recording, "a", start, end[:20], end=b"")
    recording.pump(timestamp(BASE_MS))
    assert lines_of(recording) == []
    recording.pump(timestamp(BASE_MS + 10))
    assert lines_of(recording) == [start]
    append(recording, "a", end[20:])
    recording.pump(None)
    assert lines_of(recording) == [start, end]


def test_a_line_that_came_too_late_is_put_in_its_place_at_the_end(recording: Recording) -> None:
    early, late = EventMaker("run", "a"), EventMaker("run", "b", start_ms=BASE_MS + 1_000)
    append(recording, "b", late.run_start())
    recording.pump(None)
    append(recording, "a", early.run_start())
    recording.pump(None)
    assert not recording.in_order
    recording.close()
    assert recording.in_order
    assert [b'"shim_id":"a"' in line for line in lines_of(recording)] == [True, False]


def test_gaps_bad_lines_cuts_and_removals_are_faults(recording: Recording) -> None:
    maker = EventMaker("run", "a")
    append(recording, "a", maker.run_start())
    append(recording, "gone", EventMaker("run", "gone").run_start())
    recording.pump(None)
    maker.run_start()  # number 2 is never written
    append(recording, "a", maker.run_end(), b"no event")
    os.unlink(os.path.join(recording.journals_dir, "gone.jsonl"))
    recording.pump(None)
    os.truncate(os.path.join(recording.journals_dir, "a.jsonl"), 5)
    recording.pump(None)
    assert recording.faults == [
        "the journal gone.jsonl was removed while the run was on",
        "the journal a.jsonl goes from event 1 to 3",
        "line 3 of the journal a.jsonl is no event",
        "the journal a.jsonl was cut or replaced while the run was on",
    ]
    recording.close()
    assert len(lines_of(recording)) == 3, "what was read before the cut stays"


def test_events_of_another_run_are_kept_aside(recording: Recording) -> None:
    append(recording, "x", EventMaker("other", "x").run_start())
    recording.pump(None)
    assert lines_of(recording) == []
    assert (Path(recording.directory) / OTHER_RUNS).read_bytes().count(b"\n") == 1


def test_links_in_the_journals_are_not_followed(recording: Recording, tmp_path: Path) -> None:
    secret = tmp_path / "secret.jsonl"
    secret.write_bytes(EventMaker("run", "a").run_start() + b"\n")
    os.symlink(secret, os.path.join(recording.journals_dir, "a.jsonl"))
    os.mkfifo(os.path.join(recording.journals_dir, "b.jsonl"))
    recording.pump(None)
    assert lines_of(recording) == [] and list(gathered(recording.journals_dir)) == []


def test_sealed_and_unsealed_bundles_read_alike(recording: Recording) -> None:
    a, b = EventMaker("run", "a"), EventMaker("run", "b")
    append(recording, "a", *a.whole_run(3))
    append(recording, "b", *b.whole_run(2))
    with open_bundle(recording.directory) as bundle:
        unsealed = list(bundle.lines())
    assert verify_bundle(recording.directory).ok
    recording.close()
    seal(recording.directory, "run", [])
    assert not os.path.exists(recording.journals_dir)
    report = verify_bundle(recording.directory)
    assert report.ok and report.events == len(unsealed) == 5 * 3 + 4
    with open_bundle(recording.directory) as bundle:
        assert list(bundle.lines()) == unsealed


def test_an_unsealed_bundle_with_a_hole_does_not_verify(recording: Recording) -> None:
    lines = EventMaker("run", "a").whole_run(2)
    append(recording, "a", *lines[:2], *lines[3:])
    report = verify_bundle(recording.directory)
    assert not report.ok and "number 3 of its shim is missing" in report.faults[0].what


def test_a_sealed_bundle_that_was_changed_does_not_verify(recording: Recording) -> None:
    append(recording, "a", *EventMaker("run", "a").whole_run(2))
    recording.close()
    seal(recording.directory, "run", [])
    path = Path(recording.directory) / EVENTS
    path.write_bytes(path.read_bytes().replace(b"git_status", b"git_statuz", 1))
    assert not verify_bundle(recording.directory).ok


def test_journals_behind_a_link_are_no_bundle(recording: Recording, tmp_path: Path) -> None:
    (tmp_path / "fake").mkdir()
    os.symlink(recording.journals_dir, tmp_path / "fake" / "journals")
    with pytest.raises(LedgerError, match="is a link"), open_bundle(str(tmp_path / "fake")):
        pass


def test_a_journal_that_speaks_for_another_shim_is_a_fault(recording: Recording) -> None:
    append(recording, "b", EventMaker("run", "a").run_start())
    recording.pump(None)
    assert recording.faults == ["the journal b.jsonl speaks for another shim"]
