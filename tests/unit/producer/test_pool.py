"""Many runs in one process: each with its own identity, budget, journal and end."""

from __future__ import annotations

import os
from collections.abc import Hashable
from pathlib import Path

import pytest

from harness.engine import compiled, rule
from harness.in_process import isolate
from harness.sink import Spool
from subluminal.contracts.toolcall import ToolCall
from subluminal.producer.pool import IDLE_NS, Pool
from subluminal.producer.producer import Producer, assemble

POLICY = compiled(rule("two", "budget", scope="run", limit_calls=2, on_exceed="BLOCK"))


@pytest.fixture
def journals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Spool:
    isolate(tmp_path, monkeypatch)
    (tmp_path / "journals").mkdir()
    return Spool(tmp_path / "journals")


def pool(journals: Spool, limit: int = 10) -> Pool:
    def open_producer(run_id: Hashable) -> Producer:
        environ = {**os.environ, "SUB_RUN_ID": str(run_id)}
        producer = assemble(environ, events=f"dir:{journals.directory}", policy=POLICY)
        producer.open({"server_name": "s"})
        return producer

    return Pool(open_producer, limit)


def call(producer: Producer) -> str:
    record = producer.gate.judge(ToolCall("s", "t", b"{}", 2, "mcp_http"), 1, 1)
    producer.gate.announce(record, 1)
    producer.hand_over()
    return record.decision.action


def test_runs_share_neither_budgets_nor_journals(journals: Spool) -> None:
    runs = pool(journals)
    actions = {run_id: [call(runs.get(run_id)) for _ in range(3)] for run_id in ("a", "b", "c")}
    assert set(map(tuple, actions.values())) == {("ALLOW", "ALLOW", "BLOCK")}
    runs.close()
    by_run: dict[str, set[str]] = {}
    for event in journals.events():
        by_run.setdefault(event["run_id"], set()).add(event["source"]["shim_id"])
    assert {run_id: len(shims) for run_id, shims in by_run.items()} == {"a": 1, "b": 1, "c": 1}
    assert len(set().union(*by_run.values())) == 3
    assert len(journals.events_of("run_end")) == 3


def test_the_run_asked_for_longest_ago_ends_first_and_comes_back_with_its_budget_spent(
    journals: Spool,
) -> None:
    runs = pool(journals, limit=2)
    assert [call(runs.get("a")), call(runs.get("a"))] == ["ALLOW", "ALLOW"]
    runs.get("b")
    runs.get("a")
    runs.get("c")
    assert [event["run_id"] for event in journals.events_of("run_end")] == ["b"]
    runs.get("b")
    assert len(runs) == 2
    assert call(runs.get("a")) == "BLOCK"
    runs.close()
    assert len(runs) == 0


def test_a_run_that_nobody_asks_for_ends(journals: Spool) -> None:
    runs = pool(journals)
    producer = runs.get("a")
    runs.close_idle(producer.check_at_ns)
    assert len(runs) == 1
    runs.close_idle(producer.check_at_ns + 2 * IDLE_NS)
    assert len(runs) == 0
    assert [event["run"]["status"] for event in journals.events_of("run_end")] == ["SUCCEEDED"]
