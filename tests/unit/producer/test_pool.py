"""Many runs in one process: each with its own identity, budget, journal and end."""

from __future__ import annotations

import os
from collections.abc import Hashable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from harness.engine import compiled, rule
from harness.in_process import isolate
from harness.sink import Spool
from harness.state_holder import holding
from subluminal.contracts.toolcall import ToolCall
from subluminal.host.run.lock import QueuedLock
from subluminal.producer import pool as pool_module
from subluminal.producer.pool import IDLE_NS, NoRoom, Pool
from subluminal.producer.producer import Producer, assemble

POLICY = compiled(rule("two", "budget", scope="run", limit_calls=2, on_exceed="BLOCK"))


@pytest.fixture
def journals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Spool:
    isolate(tmp_path, monkeypatch)
    (tmp_path / "journals").mkdir()
    return Spool(tmp_path / "journals")


def pool(journals: Spool, limit: int = 10, **callbacks: Any) -> Pool:
    def open_producer(run_id: Hashable) -> Producer:
        environ = {**os.environ, "SUB_RUN_ID": str(run_id)}
        producer = assemble(environ, events=f"dir:{journals.directory}", policy=POLICY)
        producer.open({"server_name": "s"})
        return producer

    return Pool(open_producer, limit, **callbacks)


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


def test_a_run_that_nobody_asks_for_ends_and_says_so(journals: Spool) -> None:
    heard: list[Producer] = []
    runs = pool(journals, ended=heard.append)
    producer = runs.get("a")
    assert runs.close_idle(producer.check_at_ns) == []
    assert len(runs) == 1
    assert runs.close_idle(producer.check_at_ns + 2 * IDLE_NS) == heard == [producer]
    assert len(runs) == 0
    (end,) = journals.events_of("run_end")
    assert (end["run"]["status"], end["run"]["ended_by"]) == ("SUCCEEDED", "idle")


def test_a_run_that_had_to_make_room_ended_by_idleness_and_one_at_the_end_of_the_process_did_not(
    journals: Spool,
) -> None:
    runs = pool(journals, limit=1)
    runs.get("a")
    runs.get("b")
    assert runs.close("CANCELLED") == []
    ends = {event["run_id"]: event["run"] for event in journals.events_of("run_end")}
    assert (ends["a"]["status"], ends["a"]["ended_by"]) == ("SUCCEEDED", "idle")
    assert ends["b"]["status"] == "CANCELLED" and "ended_by" not in ends["b"]


def test_a_run_with_something_open_does_not_end_and_is_new_again_when_it_is_done(journals: Spool) -> None:
    busy: set[Producer] = set()
    runs = pool(journals, limit=2, busy=busy.__contains__)
    first, second = runs.get("a"), runs.get("b")
    busy.add(first)
    late = first.check_at_ns + 2 * IDLE_NS
    assert runs.close_idle(late) == [second]
    busy.clear()
    assert runs.close_idle(late + IDLE_NS) == [], "its time begins when it was last seen busy"
    busy.add(first)
    third = runs.get("c")
    busy.add(third)
    with pytest.raises(NoRoom):
        runs.get("d")
    assert set(runs) == {first, third}, "nobody had to go for it"
    busy.remove(third)
    assert runs.get("d") is not third and set(runs) == {first, runs.get("d")}
    runs.close()


def test_runs_that_end_leave_no_descriptor_behind(journals: Spool) -> None:
    runs = pool(journals, limit=4)
    runs.get("first")
    before = len(os.listdir("/proc/self/fd"))
    for number in range(40):
        call(runs.get(number))
        assert len(os.listdir("/proc/self/fd")) <= before + 2 * 3
    runs.close()
    assert len(os.listdir("/proc/self/fd")) < before


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long anybody was ready to wait for a state that others hold."""
    asked: list[float] = []
    take = QueuedLock.take

    def noting(lock: QueuedLock, seconds: float) -> bool:
        asked.append(seconds)
        return take(lock, min(seconds, 0.01))

    monkeypatch.setattr(QueuedLock, "take", noting)
    return asked


def test_the_end_of_a_run_waits_for_nobody_while_the_process_goes_on(journals: Spool, waits: list[float]) -> None:
    runs = pool(journals, limit=2)
    producer = runs.get("a")
    call(producer)
    with holding("a") as holder:
        waits.clear()
        assert runs.close_idle(producer.check_at_ns + 2 * IDLE_NS) == [], "the next time"
        runs.get("b")
        runs.get("c")
        assert producer not in runs, "but where there is no room, at once"
        assert set(waits) == {0}
        holder.let_go()
    runs.close()


def test_the_end_of_the_process_waits_for_all_together_and_no_longer(
    journals: Spool, waits: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = pool(journals, limit=20)
    for number in range(6):
        call(runs.get(number))
    with ExitStack() as held:
        for number in range(3):
            held.enter_context(holding(str(number)))
        waits.clear()
        monkeypatch.setattr(pool_module, "CLOSE_NS", -1)
        runs.close()
        assert waits == [0, 0, 0]
    assert len(journals.events_of("run_end")) == 6
