"""Looking back: filters, pages, groups, runs and timelines, read-only and without a daemon."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.ledger import EventMaker
from subluminal.contracts.errors import LedgerError, UsageError
from subluminal.contracts.filters import Filters, RunFilters
from subluminal.ledger.read.ledger import GROUPS, Ledger, open_ledger
from subluminal.ledger.store.writer import Store

TOOLS = [("git", "git_status"), ("git", "git_push"), ("fs", "read"), ("fs", "write"), ("web", "fetch")]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Three runs, interleaved in time: 150 calls on five tools, every fifth refused, every seventh failed."""
    path = str(tmp_path_factory.mktemp("ledger") / "ledger.db")
    store = Store(path)
    makers = [EventMaker(f"run-{i}", f"shim-{i}", start_ms=1_700_000_000_000 + i) for i in range(3)]
    lines = [maker.run_start() for maker in makers]
    for number, maker in zip(range(150), itertools.cycle(makers), strict=False):
        server, tool = TOOLS[number % 4 if number % 25 else 4]
        action = "BLOCK" if number % 5 == 0 else "ALLOW"
        status = "ERROR" if number % 7 == 0 else "OK"
        lines += maker.call(action, status, server=server, tool=tool)
    lines += [maker.run_end() for maker in makers[:2]]
    store.write(lambda: [store.add(line) for line in lines])
    store.close()
    return path


@pytest.fixture
def ledger(path: str) -> Iterator[Ledger]:
    with open_ledger(path) as opened:
        yield opened


def every_call(ledger: Ledger) -> list[dict[str, Any]]:
    return ledger.calls(limit=1000).rows


def test_calls_come_newest_first(ledger: Ledger) -> None:
    calls = every_call(ledger)
    assert len(calls) == 150
    moments = [call["created_at"] for call in calls]
    assert moments == sorted(moments, reverse=True)


FILTERS: dict[str, tuple[dict[str, Any], Any]] = {
    "decision": ({"decision": ["block"]}, lambda c: c["decision"] == "BLOCK"),
    "allowed": ({"decision": ["ALLOW"]}, lambda c: c["decision"] == "ALLOW"),
    "both": ({"decision": ["ALLOW", "BLOCK"]}, lambda c: True),
    "failed": ({"status": ["ERROR"]}, lambda c: c["status"] == "ERROR" and c["decision"] == "ALLOW"),
    "fine": ({"status": ["OK", "PENDING"]}, lambda c: c["status"] == "OK"),
    "ended": (
        {"status": ["OK", "ERROR"]},
        lambda c: c["status"] in ("OK", "ERROR") and c["decision"] == "ALLOW",
    ),
    "failed but allowed": (
        {"status": ["ERROR"], "decision": ["ALLOW"]},
        lambda c: c["status"] == "ERROR" and c["decision"] == "ALLOW",
    ),
    "tool": ({"tool_name": ["git_push"]}, lambda c: c["tool_name"] == "git_push"),
    "tools": ({"tool_name": ["git_push", "fetch"]}, lambda c: c["tool_name"] in ("git_push", "fetch")),
    "glob": ({"tool_name": ["git_*"]}, lambda c: c["tool_name"].startswith("git_")),
    "server": ({"server_name": ["f?"]}, lambda c: c["server_name"] == "fs"),
    "server and tool": (
        {"server_name": ["fs"], "tool_name": ["*e"]},
        lambda c: (c["server_name"], c["tool_name"]) == ("fs", "write"),
    ),
    "no such tool": ({"tool_name": ["nope"]}, lambda c: False),
    "no such tool refused": ({"tool_name": ["nope"], "decision": ["BLOCK"], "rule_id": ["x"]}, lambda c: False),
    "after the end of time": ({"since_ms": 1 << 60}, lambda c: False),
    "run": ({"run_id": ["run-1"]}, lambda c: c["run_id"] == "run-1"),
    "runs": ({"run_id": ["run-1", "run-2", "run-1"]}, lambda c: c["run_id"] != "run-0"),
    "run and refused": (
        {"run_id": ["run-1"], "decision": ["BLOCK"]},
        lambda c: c["run_id"] == "run-1" and c["decision"] == "BLOCK",
    ),
    "rule": ({"rule_id": ["deny-writes"]}, lambda c: c["rule_id"] == "deny-writes"),
    "reason": ({"reason_code": ["DEFAULT_ALLOW"]}, lambda c: c["reason_code"] == "DEFAULT_ALLOW"),
    "severity": ({"severity": ["warn"]}, lambda c: c["severity"] == "warn"),
    "error class": ({"error_class": ["policy_block"]}, lambda c: c["error_class"] == "policy_block"),
    "args": ({"args_hash": f"{7:064x}"}, lambda c: c["args_hash"].endswith("07")),
    "since": ({"since_ms": 1_700_000_000_100}, lambda c: c["created_at"] >= "2023-11-14T22:13:20.100Z"),
    "until": ({"until_ms": 1_700_000_000_100}, lambda c: c["created_at"] < "2023-11-14T22:13:20.100Z"),
    "slow": ({"min_latency_ms": 4}, lambda c: False),
    "agent": ({"agent_id": ["repo-fixer"], "client": ["claude"]}, lambda c: True),
    "other agent": ({"agent_id": ["nobody"]}, lambda c: False),
    "text": ({"text": "PUSH"}, lambda c: c["tool_name"] == "git_push"),
    "text with wildcards": ({"text": "%"}, lambda c: False),
    "three conditions": (
        {"tool_name": ["git*"], "decision": ["BLOCK"], "run_id": ["run-0", "run-2"]},
        lambda c: c["server_name"] == "git" and c["decision"] == "BLOCK" and c["run_id"] != "run-1",
    ),
}


@pytest.mark.parametrize("name", [*FILTERS, "text", "reason"])
def test_without_patience_a_search_comes_in_pieces_and_misses_nothing(
    ledger: Ledger, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("subluminal.ledger.read.ledger.FIRST_PIECE", 7)
    others: dict[str, dict[str, Any]] = {"text": {"text": "clean"}, "reason": {"reason_code": ["DENYLIST_MATCH"]}}
    filters = Filters(**(others[name] if name in others else FILTERS[name][0]))
    for limit in (1, 10, 1000):
        found, cursor, pages = [], None, 0
        while pages == 0 or cursor is not None:
            page = ledger.calls(filters, limit=limit, cursor=cursor, patience_s=0.0)
            assert len(page.rows) <= limit
            found += page.rows
            cursor, pages = page.next_cursor, pages + 1
        assert found == ledger.calls(filters, limit=1000).rows
        assert pages > 5 or name not in others


@pytest.mark.parametrize("name", FILTERS)
def test_filters_find_exactly_what_a_plain_loop_finds(ledger: Ledger, name: str) -> None:
    conditions, matches = FILTERS[name]
    expected = [call for call in every_call(ledger) if matches(call)]
    filters = Filters(**conditions)
    assert ledger.calls(filters, limit=1000).rows == expected
    assert ledger.count(filters) == len(expected)
    assert sum(group["calls"] for group in ledger.group(filters, by=["tool_name"])) == len(expected)
    assert sum(group["calls"] for group in ledger.group(filters, by=["reason_code"])) == len(expected)


@pytest.mark.parametrize("name", ["both", "run", "runs", "glob", "decision"])
def test_pages_join_without_gap_or_overlap(ledger: Ledger, name: str) -> None:
    filters = Filters(**FILTERS[name][0])
    collected, cursor = [], None
    while True:
        page = ledger.calls(filters, limit=7, cursor=cursor)
        collected += page.rows
        cursor = page.next_cursor
        if cursor is None:
            break
    assert collected == ledger.calls(filters, limit=1000).rows


def test_groups_add_up(ledger: Ledger) -> None:
    calls = every_call(ledger)
    rows = ledger.group(by=["server_name", "tool_name"])
    assert len(rows) == len(TOOLS)
    assert sum(row["calls"] for row in rows) == len(calls)
    for row in rows:
        mine = [c for c in calls if (c["server_name"], c["tool_name"]) == (row["server_name"], row["tool_name"])]
        assert row["calls"] == len(mine)
        assert row["blocked"] == sum(c["decision"] == "BLOCK" for c in mine)
        assert row["errors"] == sum(c["status"] != "OK" and c["decision"] == "ALLOW" for c in mine)
        assert (row["latency_ms_avg"], row["latency_ms_max"]) == (3.0, 3)
        assert set(row) == {
            *("server_name", "tool_name", "calls", "allowed", "blocked", "throttled", "errors"),
            *("latency_ms_avg", "latency_ms_p50", "latency_ms_p95", "latency_ms_max"),
        }


@pytest.mark.parametrize("by", GROUPS)
def test_every_group_counts_every_call_once(ledger: Ledger, by: str) -> None:
    assert sum(row["calls"] for row in ledger.group(by=[by])) == 150


def test_runs_are_listed_latest_first_and_found_by_a_beginning(ledger: Ledger) -> None:
    first = ledger.runs(limit=2)
    second = ledger.runs(limit=2, cursor=first.next_cursor)
    assert [run["run_id"] for run in first.rows + second.rows] == ["run-2", "run-1", "run-0"]
    assert second.next_cursor is None
    assert [run["run_id"] for run in ledger.runs(RunFilters(status="RUNNING")).rows] == ["run-2"]
    assert ledger.resolve_run("last") == "run-2"
    assert ledger.resolve_run("run-1") == "run-1"
    with pytest.raises(LedgerError, match="More than one"):
        ledger.resolve_run("run")
    with pytest.raises(LedgerError, match="no run 'x'"):
        ledger.resolve_run("x")


def test_a_timeline_is_the_exact_events_in_order(ledger: Ledger) -> None:
    events = list(ledger.timeline("run-0"))
    assert [event["source"]["seq"] for event in events] == list(range(1, 153))
    assert list(ledger.timeline("run-0", after_n=150)) == events[150:]
    assert list(ledger.timeline("run-0", after_n=10, limit=5)) == events[10:15]


def test_one_call_is_found_by_a_beginning_of_its_id(ledger: Ledger) -> None:
    assert ledger.call("shim-0-50")["call_id"] == "shim-0-50"
    with pytest.raises(LedgerError, match="More than one"):
        ledger.call("shim-0-")
    with pytest.raises(LedgerError, match="no call"):
        ledger.call("shim-9")


def test_arrivals_go_on_where_they_stopped(path: str, ledger: Ledger) -> None:
    assert ledger.arrivals(ledger.newest_arrival()) == []
    everything = ledger.arrivals(0, limit=10_000)
    assert len(everything) == 3 + 450 + 2
    seen, after = [], 0
    while batch := ledger.arrivals(after, limit=10):
        seen += batch
        after = batch[-1][0]
    assert seen == everything
    assert ledger.arrivals(everything[200][0], limit=10_000) == everything[201:]


@pytest.mark.parametrize(
    "ask",
    [
        lambda ledger: ledger.calls(limit=0),
        lambda ledger: ledger.calls(cursor="'; --"),
        lambda ledger: ledger.group(by=["created_at; DROP TABLE runs"]),
        lambda ledger: ledger.group(by=[]),
        lambda ledger: ledger.calls(Filters(decision=["MAYBE"])),
    ],
)
def test_questions_that_make_no_sense_are_usage_errors(ledger: Ledger, ask: Any) -> None:
    with pytest.raises(UsageError):
        ask(ledger)


def test_a_ledger_that_is_not_there_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match="no ledger"):
        open_ledger(str(tmp_path / "none.db"))


def test_readers_cannot_write(ledger: Ledger) -> None:
    with pytest.raises(Exception, match="readonly"):
        ledger.connection.execute("DELETE FROM runs")


@pytest.mark.parametrize("patience_s", [None, 1.0], ids=["at once", "with patience"])
def test_a_page_of_the_past_does_not_walk_through_what_came_after_it(ledger: Ledger, patience_s: float | None) -> None:
    calls = every_call(ledger)
    early = Filters(until_ms=1_700_000_000_100)
    late = Filters()

    def steps(filters: Filters) -> int:
        counted = []
        ledger.connection.set_progress_handler(lambda: counted.append(1), 1)
        page = ledger.calls(filters, limit=2, patience_s=patience_s)
        ledger.connection.set_progress_handler(None, 0)
        assert len(page.rows) == 2
        return len(counted)

    assert sum(call["created_at"] >= "2023-11-14T22:13:20.100Z" for call in calls) > 30
    assert steps(early) < steps(late) + 30


def test_reading_imports_nothing_heavy() -> None:
    heavy = ("msgspec", "asyncio", "aiohttp", "rich", "click", "socket", "json", "re2")
    script = f"import sys; import subluminal.ledger.read.ledger; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.contract("LED-001")
def test_the_listing_queries_walk_an_index_and_sort_nothing(ledger: Ledger) -> None:
    from subluminal.ledger.read.plan import plan

    for conditions, _ in FILTERS.values():
        chosen = plan(ledger.connection, Filters(**conditions))
        for branch in chosen.branches:
            index, where, values = chosen.where(branch)
            order = "c.created_at DESC, c.id DESC" if branch.index == "tool_calls_run" else "c.id DESC"
            steps = ledger.connection.execute(
                f"EXPLAIN QUERY PLAN SELECT c.id FROM tool_calls c {index} WHERE {where} ORDER BY {order} LIMIT 5",
                values,
            ).fetchall()
            assert not any("TEMP B-TREE" in step["detail"] for step in steps), (
                conditions,
                [s["detail"] for s in steps],
            )
