"""Runs of a fleet that were folded for a page: brought up to date, let go, and never more than a few."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from harness.ledger import EventMaker
from subluminal.contracts.errors import FleetError, LedgerError
from subluminal.fleet import folded
from subluminal.fleet.folded import MOST_EVENTS, FoldedRuns


class Lines:
    """What a collector has of a run. `asked`: from where on it was asked for them."""

    def __init__(self, run_id: str = "run-1") -> None:
        self.maker = EventMaker(run_id, f"shim-{run_id}")
        self.known = [self.maker.run_start(), *self.maker.call()]
        self.asked: list[int] = []

    def __call__(self, after: int) -> Iterable[bytes]:
        self.asked.append(after)
        return self.known[after:]


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FoldedRuns]:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    made = FoldedRuns(str(tmp_path / "home"))
    yield made
    made.close()
    assert not any(name.startswith("sub-fleet-") for name in os.listdir(tmp_path))


def calls(runs: FoldedRuns, lines: Lines, events: int | None = None) -> int:
    run_id = lines.maker.run_id
    with runs.ledger(run_id, len(lines.known) if events is None else events, lines) as ledger:
        return int(ledger.run(run_id)["calls_total"])


def test_a_run_is_fetched_once_and_then_only_what_is_new_of_it(runs: FoldedRuns) -> None:
    lines = Lines()
    assert [calls(runs, lines), calls(runs, lines)] == [1, 1] and lines.asked == [0]
    lines.known += lines.maker.call()
    assert calls(runs, lines) == 2 and lines.asked == [0, 4]


def test_where_what_is_new_stands_before_what_was_fetched_it_is_folded_anew(runs: FoldedRuns) -> None:
    lines = Lines()
    calls(runs, lines)
    other = EventMaker("run-1", "shim-other")
    lines.known = [other.run_start(), *other.call(), *lines.known]
    with runs.ledger("run-1", len(lines.known), lines) as ledger:
        assert ledger.run("run-1")["event_count"] == 8
    assert lines.asked == [0, 4, 0]


def test_whoever_reads_goes_on_while_it_is_folded_anew(runs: FoldedRuns) -> None:
    lines = Lines()
    with runs.ledger("run-1", 4, lines) as before:
        lines.known = [*EventMaker("run-1", "shim-other").whole_run(2), *lines.known]
        assert calls(runs, lines) == 3
        assert before.run("run-1")["calls_total"] == 1


def test_a_collector_that_breaks_off_leaves_what_there_was(runs: FoldedRuns) -> None:
    lines = Lines()
    calls(runs, lines)

    def breaks_off(after: int) -> Iterator[bytes]:
        yield lines.maker.start()
        raise FleetError("gone")

    with pytest.raises(FleetError), runs.ledger("run-1", 9, breaks_off):
        pass
    assert calls(runs, lines) == 1


def test_what_is_too_large_is_a_sentence(runs: FoldedRuns, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = Lines()
    with pytest.raises(LedgerError, match="100,001 events: too much"):
        calls(runs, lines, MOST_EVENTS + 1)
    assert lines.asked == []
    monkeypatch.setattr(folded, "MOST_BYTES", 1000)
    with pytest.raises(LedgerError, match="too much to be fetched for a page"):
        calls(runs, lines)


def test_a_few_are_kept_those_that_were_looked_at_last(runs: FoldedRuns, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folded, "MOST_RUNS", 2)
    one, two, three = Lines("run-1"), Lines("run-2"), Lines("run-3")
    with runs.ledger("run-1", 4, one) as held:
        for lines in (two, three):
            calls(runs, lines)
        assert held.run("run-1")["calls_total"] == 1, "whoever uses it keeps it"
    for lines in (three, two, one):
        calls(runs, lines)
    assert len(three.asked) == 1 and len(one.asked) == 2
    monkeypatch.setattr(folded, "KEPT_BYTES", 0)
    calls(runs, one)
    calls(runs, three)
    assert len(three.asked) == 2
