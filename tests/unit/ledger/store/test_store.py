"""Event lines become rows, once each, whatever order and however often they come."""

from __future__ import annotations

import json
import sqlite3
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.ledger import EventMaker
from subluminal.contracts.filters import Filters
from subluminal.ledger.fold.reading import BadEvent
from subluminal.ledger.read.ledger import Ledger, known, open_ledger
from subluminal.ledger.store.writer import Store
from subluminal.ledger.trace.verify import verify_run


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store(str(tmp_path / "ledger.db"))
    yield opened
    opened.close()


def add_all(store: Store, lines: list[bytes]) -> list[bool]:
    return store.write(lambda: [store.add(line) for line in lines])


def read(store: Store) -> Ledger:
    return open_ledger(store.path)


def rows(store: Store, sql: str) -> list[Any]:
    return store.connection.execute(sql).fetchall()


@pytest.mark.contract("EVT-009")
def test_a_run_of_five_calls_with_two_blocked_is_counted_from_its_calls(store: Store) -> None:
    maker = EventMaker("run-1", "shim-1")
    lines = [maker.run_start()]
    for action in ("ALLOW", "BLOCK", "ALLOW", "BLOCK", "ALLOW"):
        lines += maker.call(action)
    add_all(store, [*lines, maker.run_end()])
    with read(store) as ledger:
        run = ledger.run("run-1")
    assert (run["calls_total"], run["calls_allowed"], run["calls_blocked"], run["errors_total"]) == (5, 3, 2, 0)
    assert run["status"] == "SUCCEEDED" and run["started_at"] < run["ended_at"]


def test_every_kind_of_refusal_has_its_counter(store: Store) -> None:
    maker = EventMaker("run-1", "shim-1")
    lines = [maker.run_start()]
    for action in ("ALLOW", "BLOCK", "THROTTLE", "REJECT_WITH_HINT", "TERMINATE_RUN"):
        lines += maker.call(action)
    lines += maker.call(status="TIMEOUT")
    add_all(store, lines)
    counted = rows(
        store, "SELECT calls_total, calls_allowed, calls_blocked, calls_throttled, errors_total, status FROM runs"
    )
    assert counted == [(6, 2, 3, 1, 1, "RUNNING")]


def test_a_line_offered_twice_is_stored_once(store: Store) -> None:
    lines = EventMaker("run-1", "shim-1").whole_run(4)
    assert add_all(store, lines) == [True] * 14
    assert add_all(store, lines) == [False] * 14
    assert add_all(store, [lines[3], lines[2]]) == [False, False]
    assert rows(store, "SELECT event_count, calls_total FROM runs") == [(14, 4)]
    assert rows(store, "SELECT coalesce(sum(count), 0) FROM spans") == [(14,)]


def test_what_comes_again_while_its_segment_is_damaged_is_refused_and_stops_nothing(store: Store) -> None:
    lines = EventMaker("run-1", "shim-1").whole_run(2)
    add_all(store, lines[:-1])
    store.connection.execute("UPDATE segments SET lines = x'789c00'")
    store.forget()
    with pytest.raises(BadEvent, match="other content"):
        store.write(lambda: store.add(lines[2]))
    assert add_all(store, lines[-1:]) == [True]


def test_the_same_number_with_other_content_is_refused_and_changes_nothing(store: Store) -> None:
    maker = EventMaker("run-1", "shim-1")
    lines = maker.whole_run(1)
    add_all(store, lines)
    forged = lines[2].replace(b'"ALLOW"', b'"BLOCK"')

    def work() -> None:
        with pytest.raises(BadEvent, match="other content"):
            store.add(forged)

    store.write(work)
    assert rows(store, "SELECT decision FROM tool_calls") == [("ALLOW",)]


def test_events_without_seq_are_told_apart_by_their_content(store: Store) -> None:
    lines = []
    for line in EventMaker("run-1", "shim-1").whole_run(2):
        event = json.loads(line)
        del event["source"]["seq"]
        lines.append(json.dumps(event).encode())
    assert all(add_all(store, lines)) and not any(add_all(store, lines))
    assert rows(store, "SELECT calls_total, status FROM runs") == [(2, "SUCCEEDED")]


def test_a_call_id_reused_by_another_shim_of_the_run_or_in_another_run_is_another_call(store: Store) -> None:
    one, two, three = EventMaker("run-1", "same"), EventMaker("run-1", "other"), EventMaker("run-2", "same")
    add_all(store, one.whole_run(1))
    two.shim_id = "same"
    lines = [line.replace(b'"shim_id":"same"', b'"shim_id":"other"') for line in two.whole_run(1)]
    add_all(store, [*lines, *three.whole_run(1)])
    assert rows(store, "SELECT run_id, call_id FROM tool_calls ORDER BY id, run_id") == [
        ("run-1", "same-1"),
        ("run-1", "same-1"),
        ("run-2", "same-1"),
    ]
    assert rows(store, "SELECT run_id, calls_total, event_count FROM runs") == [("run-1", 2, 10), ("run-2", 1, 5)]


def test_events_of_one_call_may_come_in_separate_batches_and_in_any_order(store: Store) -> None:
    maker = EventMaker("run-1", "shim-1")
    start, decision, end = maker.call()
    for line in (end, decision, start):
        add_all(store, [line])
    with read(store) as ledger:
        call = ledger.call("shim-1-1")
    assert (call["decision"], call["status"], call["bytes_in"], call["seq"]) == ("ALLOW", "OK", 170, 1)
    assert (call["args_preview"], call["result_preview"]) == ('{"path":"."}', "clean")
    assert [event["type"] for event in call["events"]] == ["tool_call_start", "tool_call_decision", "tool_call_end"]


@pytest.mark.parametrize(
    ("ends", "status"),
    [
        (["SUCCEEDED", "SUCCEEDED"], "SUCCEEDED"),
        (["SUCCEEDED", "CANCELLED"], "CANCELLED"),
        (["FAILED", "CANCELLED"], "FAILED"),
        (["TERMINATED", "FAILED"], "TERMINATED"),
        (["TERMINATED", None], "RUNNING"),
    ],
)
def test_a_run_ends_with_its_last_shim_and_as_badly_as_its_worst(
    store: Store, ends: list[str | None], status: str
) -> None:
    makers = [EventMaker("run-1", f"shim-{i}", start_ms=1_700_000_000_000 + 1000 * i) for i in range(2)]
    add_all(store, [maker.run_start() for maker in makers])
    for maker, end in zip(makers, ends, strict=True):
        if end:
            add_all(store, [maker.run_end(end)])
    with read(store) as ledger:
        run = ledger.run("run-1")
    assert run["status"] == status
    assert run["started_at"] == "2023-11-14T22:13:20.000Z"
    assert run["ended_at"] == (None if status == "RUNNING" else "2023-11-14T22:13:21.001Z")


def test_a_shim_that_joins_after_the_others_ended_opens_the_run_again(store: Store) -> None:
    add_all(store, EventMaker("run-1", "shim-1").whole_run(1))
    late = EventMaker("run-1", "shim-2")
    add_all(store, [late.run_start()])
    assert rows(store, "SELECT status, ended_at FROM runs") == [("RUNNING", None)]
    add_all(store, [late.run_end()])
    assert rows(store, "SELECT status FROM runs") == [("SUCCEEDED",)]


@pytest.mark.contract("ID-002")
def test_missing_principal_and_workload_are_absent_and_read_unknown(store: Store) -> None:
    add_all(store, EventMaker("run-1", "shim-1", identity=False).whole_run(1))
    with read(store) as ledger:
        run = ledger.run("run-1")
        assert run["principal"] is None and run["workload"] is None
        assert known(run["principal"]) == "unknown"
        assert ledger.group(by=["agent_id"])[0]["calls"] == 1
        assert ledger.calls(Filters(principal=["ann"])).rows == []


def test_identity_is_taken_from_the_first_event_that_knows_it(store: Store) -> None:
    unknown = EventMaker("run-1", "shim-1", identity=False)
    line = unknown.run_start().replace(b'"repo-fixer"', b'"unknown"').replace(b'"claude"', b'"unknown"')
    add_all(store, [line, EventMaker("run-1", "shim-2").run_start()])
    assert rows(store, "SELECT agent_id, client, principal FROM runs") == [("repo-fixer", "claude", "ann")]


def test_long_previews_are_deflated_and_read_back_as_they_were(store: Store) -> None:
    maker = EventMaker("run-1", "shim-1")
    long = "the same words again, " * 400
    add_all(store, [maker.start(preview=long), maker.decision(), maker.end(preview="short")])
    stored = rows(store, "SELECT args_preview, result_preview FROM previews")[0]
    assert zlib.decompress(stored[0]).decode() == long and stored[1] == "short"
    with read(store) as ledger:
        assert ledger.call("shim-1-1")["args_preview"] == long


def test_a_hint_is_kept_once_whether_the_decision_or_its_own_event_brings_it(store: Store) -> None:
    maker = EventMaker("run-1", "shim-1")
    hint = {"hint_text": "Use a branch.", "suggested_args": {"b": 1}, "retry_advice": None, "hint_kind": "SAFETY"}
    lines = [maker.start(), maker.decision("REJECT_WITH_HINT", hint=hint)]
    lines.append(maker.event("hint_issued", call={"call_id": "shim-1-1"}, hint=hint))
    add_all(store, lines)
    with read(store) as ledger:
        assert ledger.call("shim-1-1")["hint"] == hint
    assert rows(store, "SELECT count(*) FROM hints") == [(1,)]


def test_an_event_type_of_a_newer_pack_is_kept_in_the_chain(store: Store) -> None:
    maker = EventMaker("run-1", "shim-1")
    add_all(store, [maker.run_start(), maker.event("agent_thought", thought={"text": "hm"}), maker.run_end()])
    with read(store) as ledger:
        assert [event["type"] for event in ledger.timeline("run-1")] == ["run_start", "agent_thought", "run_end"]


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{}",
        b"[1]",
        b"null",
        b"\xff\xfe",
        b'{"type":"run_start"}',
        b"[" * 100_000,
        EventMaker("run-1", "shim-1").run_start().replace(b"2023-11-14", b"2023-13-45"),
        EventMaker("run-1", "shim-1").run_start().replace(b'"guardrails"', b'"yolo"'),
        EventMaker("", "shim-1").run_start(),
        EventMaker("run-1", "").run_start(),
        EventMaker("run-1", "shim-1").run_start().replace(b'"seq":1', b'"seq":99999999999999999999'),
        EventMaker("run-1", "shim-1").run_start().replace(b'"seq":1', b'"seq":-1'),
    ],
)
def test_what_is_no_event_is_refused_with_a_reason_and_without_a_trace(store: Store, line: bytes) -> None:
    def work() -> None:
        with pytest.raises(BadEvent):
            store.add(line)

    store.write(work)
    assert rows(store, "SELECT count(*) FROM runs") == [(0,)]


@pytest.mark.contract("EVT-004")
def test_no_event_without_a_run_is_stored_and_every_event_of_a_run_carries_its_id(store: Store) -> None:
    lines = EventMaker("run-1", "shim-1").whole_run(3)
    add_all(store, lines)
    orphan = EventMaker("run-1", "shim-2").run_start().replace(b'"run_id":"run-1",', b"")

    def work() -> None:
        with pytest.raises(BadEvent, match="run_id"):
            store.add(orphan)

    store.write(work)
    with read(store) as ledger:
        assert {event["run_id"] for event in ledger.timeline("run-1")} == {"run-1"}
    assert rows(store, "SELECT coalesce(sum(count), 0) FROM spans") == [(len(lines),)]


def test_a_failed_batch_leaves_nothing_and_the_next_goes_on(store: Store) -> None:
    lines = EventMaker("run-1", "shim-1").whole_run(2)

    def work() -> None:
        for line in lines:
            store.add(line)
        raise sqlite3.OperationalError("disk full")

    with pytest.raises(sqlite3.OperationalError):
        store.write(work)
    assert rows(store, "SELECT coalesce(sum(count), 0) FROM spans") == [(0,)]
    assert all(add_all(store, lines))
    assert rows(store, "SELECT event_count FROM runs") == [(8,)]


def test_calls_of_one_millisecond_keep_their_order_and_get_ids_of_their_own(store: Store) -> None:
    maker = EventMaker("run-1", "shim-1")
    lines = []
    for _ in range(5000):
        maker.ms = 1_700_000_000_000
        lines.append(maker.start())
    add_all(store, lines[:3000])
    add_all(store, lines[3000:])
    found = [row[0] for row in rows(store, "SELECT seq FROM tool_calls ORDER BY id")]
    assert found == list(range(1, 5001))


def test_text_that_sqlite_and_json_find_hard_survives(store: Store) -> None:
    maker = EventMaker("run-1", "shim-1")
    nasty = "a\u0000b \U0001f4a5 '; DROP TABLE runs; -- \u202e"
    add_all(store, [maker.start(tool=nasty, server=nasty, preview=nasty)])
    with read(store) as ledger:
        call = ledger.call("shim-1-1")
        assert (call["tool_name"], call["server_name"], call["args_preview"]) == (nasty, nasty, nasty)
        assert ledger.calls(Filters(tool_name=[nasty])).rows[0]["call_id"] == "shim-1-1"


def test_a_clock_that_jumps_loses_nothing_and_leaves_the_order_and_the_durations(tmp_path: Path) -> None:
    """Back by an hour and forward by a year, between calls, within one, and to a millisecond that was there before."""
    path = str(tmp_path / "ledger.db")
    maker = EventMaker("run-1", "shim-1")
    began = maker.ms
    lines = [maker.run_start()]
    for moment in (began, began - 3_600_000, began + 365 * 86_400_000, began):
        maker.ms = moment
        lines += maker.call()
    lines.append(maker.start())
    maker.ms -= 7_200_000
    lines += [maker.decision(), maker.end(), maker.run_end()]
    for line in lines:  # each in a process of its own: nothing is remembered of the ids that were given
        store = Store(path)
        add_all(store, [line])
        store.close()
    assert verify_run(path, "run-1").faults == []
    with open_ledger(path) as ledger:
        assert [event["source"]["seq"] for event in ledger.timeline("run-1")] == list(range(1, len(lines) + 1))
        run = ledger.run("run-1")
        assert (run["calls_total"], run["calls_allowed"], run["status"]) == (5, 5, "SUCCEEDED")
        assert {call["latency_ms"] for call in ledger.calls().rows} == {3}
        assert sorted(call["seq"] for call in ledger.calls().rows) == [1, 2, 3, 4, 5]
