"""A call that several doors saw is one: in lists, in counts, in groups and in the counts of its run."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.ledger import EventMaker, verify_all
from subluminal.contracts.filters import Filters
from subluminal.ledger.fold.joined import MAX_ALIKE
from subluminal.ledger.read.ledger import Ledger, open_ledger
from subluminal.ledger.read.timeline import timeline
from subluminal.ledger.store.prune import prune
from subluminal.ledger.store.writer import Store

COUNTS = ("calls_total", "calls_allowed", "calls_blocked", "calls_throttled", "errors_total")


class Record:
    """A ledger into which a hook and a shim of one run write."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.store = Store(path)
        self.hook, self.shim = EventMaker("run-1", "hook"), EventMaker("run-1", "shim")
        self.model = EventMaker("run-1", "model")
        self.add(self.hook.run_start(), self.shim.run_start())

    def add(self, *lines: bytes) -> None:
        """In one batch."""
        self.store.write(lambda: [self.store.add(line) for line in lines])

    def both(self, name: str, *, hook: str = "OK", shim: str = "OK", by_shim: str = "ALLOW") -> list[bytes]:
        """One call: the hook is asked, the shim sees it, and both say how it ended."""
        lines = [self.hook.seen("hook", name), self.hook.decision(), self.shim.seen("mcp_stdio", name)]
        return [*lines, self.shim.decision(by_shim), self.shim.end(shim), self.hook.end(hook)]

    def three(self, name: str, *, model: str = "OK", **others: str) -> list[bytes]:
        """One call that the model's answer showed before."""
        return [
            self.model.seen("messages_api", name),
            self.model.decision(),
            *self.both(name, **others),
            self.model.end(model),
        ]

    @property
    def ledger(self) -> Ledger:
        return open_ledger(self.path)

    def rows(self, **asked: list[str]) -> list[tuple[str, str, str]]:
        with self.ledger as ledger:
            return [(row["shim_id"], row["decision"], row["status"]) for row in ledger.calls(Filters(**asked)).rows]

    def counts(self) -> list[int]:
        with self.ledger as ledger:
            run = ledger.run("run-1")
            (listed,) = ledger.runs().rows
            assert [run[name] for name in COUNTS] == [listed[name] for name in COUNTS]
            assert ledger.count() == run["calls_total"]
            groups = ledger.group(by=["day"]) + ledger.group(by=["tool_name"])
            assert {group["calls"] for group in groups} == {run["calls_total"]}
            return [run[name] for name in COUNTS]


@pytest.fixture
def record(tmp_path: Path) -> Iterator[Record]:
    made = Record(str(tmp_path / "ledger.db"))
    yield made
    made.store.close()
    assert [report.faults for report in verify_all(made.path)] in ([[]], [])


def test_it_is_listed_and_counted_once_by_the_door_that_was_asked_first(record: Record) -> None:
    record.add(*record.both("toolu_1"), *record.hook.call())
    assert sorted(record.rows()) == [("hook", "ALLOW", "OK")] * 2
    assert record.counts() == [2, 2, 0, 0, 0]


def test_the_strictest_decision_stands_whatever_is_asked_for(record: Record) -> None:
    record.add(*record.both("toolu_1", by_shim="BLOCK", shim="ERROR", hook="ERROR"))
    assert record.rows() == [("shim", "BLOCK", "ERROR")]
    assert record.rows(decision=["ALLOW"]) == []
    assert record.counts() == [1, 0, 1, 0, 0]


def test_a_door_that_was_not_told_the_end_gives_way_to_one_that_was(record: Record) -> None:
    record.add(*record.both("toolu_1", hook="CANCELLED", shim="ERROR"))
    assert record.rows() == [("shim", "ALLOW", "ERROR")]
    assert record.counts() == [1, 1, 0, 0, 1]


def test_three_doors_are_one_call_by_the_first_the_strictest_or_the_one_that_knows(record: Record) -> None:
    record.add(*record.three("toolu_1"))
    record.add(*record.three("toolu_2", by_shim="BLOCK", shim="ERROR", hook="ERROR", model="ERROR"))
    record.add(*record.three("toolu_3", model="CANCELLED", hook="CANCELLED"))
    assert sorted(record.rows()) == [("model", "ALLOW", "OK"), ("shim", "ALLOW", "OK"), ("shim", "BLOCK", "ERROR")]
    assert record.counts() == [3, 2, 1, 0, 0]


@pytest.mark.parametrize("seed", range(4))
def test_it_does_not_matter_in_which_pieces_the_events_come(tmp_path: Path, seed: int) -> None:
    """The ledger that has heard all of it at once finds no fault in the one that heard it bit by bit."""
    chosen = random.Random(seed)
    made = Record(str(tmp_path / "ledger.db"))
    lines: list[bytes] = []
    for number in range(30):
        name = f"toolu_{chosen.randrange(20)}"
        statuses = {door: chosen.choice(("OK", "ERROR", "CANCELLED")) for door in ("hook", "shim", "model")}
        lines += made.three(name, by_shim=chosen.choice(("ALLOW", "BLOCK")), **statuses)
        if number % 7 == 0:
            lines += made.hook.call()
    while lines:
        count = chosen.randrange(1, 9)
        made.add(*lines[:count])
        del lines[:count]
    assert made.counts()[0] == 35
    made.store.close()
    assert [report.faults for report in verify_all(made.path)] == [[]]


def test_two_calls_of_one_door_are_two(record: Record) -> None:
    record.add(*record.both("toolu_1"), *record.both("toolu_1"))
    assert record.counts() == [2, 2, 0, 0, 0]


def test_an_id_that_is_used_over_and_over_names_no_call(record: Record) -> None:
    for _ in range(MAX_ALIKE // 2):
        record.add(*record.both("toolu_1"))
    assert record.counts()[0] == MAX_ALIKE // 2
    record.add(record.hook.seen("hook", "toolu_1"), record.hook.decision(), record.hook.end())
    assert record.counts()[0] == MAX_ALIKE + 1


def test_a_page_is_full_though_rows_are_passed_over(record: Record) -> None:
    for number in range(10):
        record.add(*record.both(f"toolu_{number}"))
    with record.ledger as ledger:
        page = ledger.calls(limit=4)
        assert len(page.rows) == 4
        found = [row["tool_use_id"] for row in page.rows]
        while page.next_cursor is not None:
            page = ledger.calls(limit=4, cursor=page.next_cursor)
            found += [row["tool_use_id"] for row in page.rows]
    assert found == [f"toolu_{number}" for number in reversed(range(10))]


def test_what_is_pruned_leaves_nothing_behind(record: Record) -> None:
    record.add(*record.both("toolu_1"), record.hook.run_end(), record.shim.run_end())
    assert len(prune(record.store, "2999-01-01T00:00:00.000Z")) == 1
    assert record.store.connection.execute("SELECT count(*) FROM joined").fetchone() == (0,)


def test_doors_are_told_in_the_order_of_time_whichever_journal_was_read_first(record: Record) -> None:
    record.model.ms, record.hook.ms, record.shim.ms = (record.model.ms + later for later in (100, 200, 300))
    model = [record.model.seen("messages_api", "toolu_1"), record.model.decision(), record.model.end("OK")]
    record.add(*record.both("toolu_1"), *model)
    with record.ledger as ledger:
        (call,) = [item for item in timeline(ledger, "run-1") if item["kind"] == "call"]
    assert [door["transport"] for door in call["doors"]] == ["messages_api", "hook", "mcp_stdio"]
