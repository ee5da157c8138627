"""Agent events in the ledger: rows beside the calls, in the chain, proved by verify and bounded."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.ledger import EventMaker, verify_all
from subluminal.contracts.agent_event import MAX_DATA_BYTES, MAX_MESSAGE_BYTES, MAX_TEXT_BYTES
from subluminal.ledger.store.prune import prune
from subluminal.ledger.store.writer import Store
from subluminal.ledger.trace.verify import verify_run

SAID = {"agent_kind": "codex", "kind": "TextOutput", "channel": "assistant", "text": "I will push."}
CALLED = {"agent_kind": "codex", "kind": "ToolCall", "channel": "tool", "data": {"phase": "start", "id": "item_2"}}


class Record:
    """A ledger with one run of a shim and of an agent that tells what it does."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self.store = Store(self.path)
        self.agent = EventMaker("run-1", "agent-1")

    def add(self, *lines: bytes) -> None:
        self.store.write(lambda: [self.store.add(line) for line in lines])

    def told(self, **agent: Any) -> bytes:
        return self.agent.event("agent_event", agent={"agent_kind": "codex", "kind": "Status", **agent})

    def rows(self, columns: str) -> list[Any]:
        return self.store.connection.execute(f"SELECT {columns} FROM agent_events ORDER BY id").fetchall()

    def faults(self) -> list[Any]:
        self.store.witness()
        return verify_run(self.path, "run-1").faults


@pytest.fixture
def record(tmp_path: Path) -> Iterator[Record]:
    record = Record(tmp_path / "ledger.db")
    yield record
    record.store.close()


def test_what_an_agent_said_is_a_row_and_a_link_of_the_chain(record: Record) -> None:
    shim = EventMaker("run-1", "shim-1")
    record.add(shim.run_start(), record.told(**SAID), *shim.call(), record.told(**CALLED))
    assert record.rows("agent_kind, kind, channel, text, message, tool_id") == [
        ("codex", "TextOutput", "assistant", "I will push.", None, None),
        ("codex", "ToolCall", "tool", None, None, "item_2"),
    ]
    assert json.loads(record.rows("data_json")[1][0]) == CALLED["data"]
    assert [n & 0xFFFFFFFF for (n,) in record.rows("id")] == [2, 6]
    assert record.faults() == []


def test_a_row_that_was_edited_removed_or_put_in_is_found(record: Record) -> None:
    record.add(record.told(**SAID), record.told(message="turn.started"))
    assert record.faults() == []
    database = sqlite3.connect(record.path, isolation_level=None)
    for change, words in (
        ("UPDATE agent_events SET text = 'I will not.' WHERE text IS NOT NULL", "disagrees with the events in text"),
        ("DELETE FROM agent_events WHERE text IS NOT NULL", "is missing"),
        (
            "INSERT INTO agent_events (id, run_id, at, agent_kind, kind)"
            " SELECT max(id) + 1, run_id, at, agent_kind, kind FROM agent_events",
            "no event speaks of it",
        ),
    ):
        database.execute("BEGIN")
        database.execute(change)
        database.execute("COMMIT")
        assert words in record.faults()[0].what
        database.execute("DELETE FROM agent_events")
        database.executemany(
            "INSERT INTO agent_events (id, run_id, at, agent_kind, kind, channel, text, message)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            _again(record),
        )
        assert record.faults() == []
    database.close()


def _again(record: Record) -> list[tuple[Any, ...]]:
    """The rows as they must be, written by hand."""
    first = 1 << 32
    stamps = [f"2023-11-14T22:13:20.00{i}Z" for i in (1, 2)]
    return [
        (first + 1, "run-1", stamps[0], "codex", "TextOutput", "assistant", "I will push.", None),
        (first + 2, "run-1", stamps[1], "codex", "Status", None, None, "turn.started"),
    ]


def test_the_same_event_twice_is_one_row(record: Record) -> None:
    line = record.told(**SAID)
    record.add(line, line)
    record.add(line)
    assert len(record.rows("id")) == 1


def test_a_producer_that_keeps_no_bounds_gets_a_bounded_row(record: Record) -> None:
    record.add(record.told(kind="TextOutput", text="ä" * 90_000, message="m" * 9_000, channel="c" * 500))
    record.add(record.told(kind="ToolCall", data={"id": "i" * 5_000, "blob": "x" * 90_000}))
    record.add(record.told(kind="ToolCall", data=[1, {"id": "x"}]), record.told(kind="ToolCall", data={"id": 7}))
    for text, message, channel, data, tool_id in record.rows("text, message, channel, data_json, tool_id"):
        assert len((text or "").encode()) <= MAX_TEXT_BYTES
        assert len((message or "").encode()) <= MAX_MESSAGE_BYTES
        assert len((data or "").encode()) <= MAX_DATA_BYTES
        assert channel is None and tool_id is None
    assert json.loads(record.rows("data_json")[1][0]) == {"dropped": {"reason": "oversize"}}
    assert record.faults() == []


def test_a_kind_of_a_newer_version_is_kept_in_the_chain_and_makes_no_row(record: Record) -> None:
    record.add(record.told(kind="Thought", text="hm"), record.told(**SAID))
    assert record.rows("kind") == [("TextOutput",)]
    assert record.faults() == []


def test_pruning_a_run_takes_its_agent_events_with_it(record: Record) -> None:
    record.add(record.told(**SAID), record.agent.run_end())
    assert [run["run_id"] for run in prune(record.store, "2100-01-01T00:00:00.000Z")] == ["run-1"]
    assert record.rows("id") == []
    assert verify_all(record.path) == []
