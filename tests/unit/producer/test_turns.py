"""The run's state on a loop: waited for without stopping others, given up by who leaves, and exact for all."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections import Counter
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path
from typing import Any

import pytest

from harness.engine import compiled, rule
from harness.in_process import isolate
from harness.sink import Spool
from harness.state_holder import holding
from harness.waiting import wait_for, wait_for_async
from subluminal.contracts.toolcall import ToolCall
from subluminal.core.engine.state import LocalState
from subluminal.host.run.state import SharedState
from subluminal.producer import state_queue
from subluminal.producer.producer import Producer, assemble
from subluminal.producer.turns import state_turn


def budget(limit: int, scope: str = "run") -> dict[str, Any]:
    return compiled(rule("b", "budget", scope=scope, limit_calls=limit, on_exceed="BLOCK"))


@pytest.fixture
def journals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Spool:
    isolate(tmp_path, monkeypatch)
    (tmp_path / "journals").mkdir()
    return Spool(tmp_path / "journals")


def opened(journals: Spool, run_id: str, limit: int = 1_000, scope: str = "run") -> Producer:
    environ = {**os.environ, "SUB_RUN_ID": run_id}
    producer = assemble(environ, events=f"dir:{journals.directory}", policy=budget(limit, scope))
    producer.open({})
    return producer


def judge(producer: Producer) -> str:
    record = producer.gate.judge(ToolCall("s", "t", b"{}", 2, "mcp_http"), 1, 1)
    producer.gate.settle(record, "OK", 1, 1, latency_ms=0)
    producer.hand_over()
    return record.decision.reason_code


async def call(producer: Producer) -> str:
    await state_turn(producer)
    return judge(producer)


def is_free(producer: Producer) -> bool:
    """Whether somebody else could have the state at once."""
    assert isinstance(producer.state, SharedState)
    with open(producer.state.path, "rb") as other:
        try:
            flock(other, LOCK_EX | LOCK_NB)
        except BlockingIOError:
            return False
    return True


def test_a_run_whose_state_another_process_holds_does_not_stop_the_others(journals: Spool) -> None:
    held, free = opened(journals, "held"), opened(journals, "free")

    async def case() -> None:
        with holding("held") as holder:
            waiting = [asyncio.create_task(call(held)) for _ in range(3)]
            others = [await call(free) for _ in range(50)]
            assert set(others) == {"DEFAULT_ALLOW"}
            await wait_for_async(lambda: bool(held.waiting), what="the calls to stand in the queue")
            assert not any(task.done() for task in waiting)
            holder.let_go()
            assert await asyncio.gather(*waiting) == ["DEFAULT_ALLOW"] * 3
        assert is_free(held)

    asyncio.run(case())


def test_a_machine_whose_state_another_process_holds_does_not_stop_the_loop(journals: Spool) -> None:
    wide, free = opened(journals, "wide", scope="machine"), opened(journals, "free")

    async def case() -> None:
        with holding("another", wide=True) as holder:
            waiting = [asyncio.create_task(call(wide)) for _ in range(3)]
            await wait_for_async(lambda: bool(wide.waiting), what="the calls to stand in the queue")
            assert {await call(free) for _ in range(50)} == {"DEFAULT_ALLOW"}
            assert not any(task.done() for task in waiting)
            assert is_free(wide), "those who wait for the machine's keep the run's from nobody"
            holder.let_go()
            assert await asyncio.gather(*waiting) == ["DEFAULT_ALLOW"] * 3
        with holding("another", wide=True) as holder:  # nothing of it was kept
            holder.let_go()

    asyncio.run(case())


def test_who_waits_for_a_run_does_not_keep_the_machine(journals: Spool) -> None:
    producer = opened(journals, "wide", scope="machine")
    state = producer.state
    assert isinstance(state, SharedState)

    async def case() -> None:
        with holding("another", wide=True) as machine:
            waiting = asyncio.create_task(call(producer))
            await wait_for_async(lambda: bool(producer.waiting), what="the call to stand in the queue")
            with holding("wide") as run:
                machine.let_go()
                await wait_for_async(lambda: state.missing is state.table.lock, what="the call to find the run's taken")
                with holding("a third", wide=True):
                    assert not waiting.done()
                run.let_go()
            assert await waiting == "DEFAULT_ALLOW"

    asyncio.run(case())


def test_a_holder_that_is_killed_lets_go(journals: Spool) -> None:
    producer = opened(journals, "r")

    async def case() -> None:
        with holding("r") as holder:
            waiting = asyncio.create_task(call(producer))
            await wait_for_async(lambda: bool(producer.waiting), what="the call to stand in the queue")
            holder.kill()
            assert await waiting == "DEFAULT_ALLOW"

    asyncio.run(case())


def test_whoever_is_cancelled_keeps_nothing_and_takes_nothing_from_the_others(journals: Spool) -> None:
    producer = opened(journals, "r")

    async def case() -> None:
        with holding("r") as holder:
            leaving, staying = (asyncio.create_task(call(producer)) for _ in range(2))
            await wait_for_async(lambda: producer.waiting, what="both", enough=lambda queue: queue and len(queue) == 2)
            leaving.cancel()
            await asyncio.gather(leaving, return_exceptions=True)
            assert leaving.cancelled()
            holder.let_go()
            assert await staying == "DEFAULT_ALLOW"
        assert not producer.waiting and is_free(producer)

    asyncio.run(case())


def test_who_is_cancelled_just_when_it_has_come_gives_it_back(journals: Spool) -> None:
    producer = opened(journals, "r")
    assert isinstance(producer.state, SharedState)
    lock = producer.state.table.lock

    async def case() -> None:
        with holding("r") as holder:
            waiting = asyncio.create_task(call(producer))
            await wait_for_async(lambda: bool(producer.waiting), what="the call to stand in the queue")
            holder.let_go()
            wait_for(lambda: not lock._granted.locked(), what="the lock, while the loop stands still")
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
            assert waiting.cancelled()
            assert is_free(producer)

    asyncio.run(case())


def test_who_leaves_before_it_comes_leaves_the_queue(journals: Spool) -> None:
    producer = opened(journals, "r")

    async def case() -> None:
        with holding("r") as holder:
            waiting = asyncio.create_task(call(producer))
            await wait_for_async(lambda: bool(producer.waiting), what="the call to stand in the queue")
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
            holder.let_go()
            await wait_for_async(lambda: is_free(producer), what="the thread to pass on what nobody wants")
            assert await call(producer) == "DEFAULT_ALLOW"

    asyncio.run(case())


def test_a_turn_that_nobody_uses_is_over_when_the_loop_comes_round(journals: Spool) -> None:
    producer = opened(journals, "r")

    async def case() -> None:
        await state_turn(producer)
        assert not is_free(producer), "it is ours until something else is awaited"
        await asyncio.sleep(0)
        assert is_free(producer)

    asyncio.run(case())


def test_a_state_that_nobody_lets_go_of_is_done_without(journals: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_queue, "LOCK_WAIT_SECONDS", 0.02)
    producer = opened(journals, "r")

    async def case() -> None:
        with holding("r") as holder:
            told = await asyncio.gather(*(call(producer) for _ in range(3)))
            assert told == ["EVALUATION_ERROR"] * 3
            holder.let_go()
            assert await call(producer) == "DEFAULT_ALLOW"

    asyncio.run(case())


def test_two_producers_of_one_run_wait_for_each_other_and_not_for_ever(journals: Spool) -> None:
    """Two agents of a run, each with an open file of its own: on one loop as on two."""
    first, second = opened(journals, "r", limit=15), opened(journals, "r", limit=15)

    async def case() -> Counter[str]:
        with holding("r") as holder:
            calls = [asyncio.create_task(call(producer)) for producer in (first, second) for _ in range(10)]
            await wait_for_async(lambda: bool(first.waiting and second.waiting), what="both to stand in the queue")
            holder.let_go()
            return Counter(await asyncio.gather(*calls))

    assert asyncio.run(case()) == {"DEFAULT_ALLOW": 15, "BUDGET_EXCEEDED": 5}


def test_a_state_of_our_own_is_had_at_once(journals: Spool) -> None:
    producer = opened(journals, "r")
    producer.state = producer.gate.state = LocalState()
    assert asyncio.run(call(producer)) == "DEFAULT_ALLOW"


def test_a_loop_that_has_ended_is_told_nothing(journals: Spool, capfd: pytest.CaptureFixture[str]) -> None:
    producer = opened(journals, "r")
    assert isinstance(producer.state, SharedState)
    lock = producer.state.table.lock
    with holding("r") as holder:
        loop = asyncio.new_event_loop()
        waiting = loop.create_task(call(producer))
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()
        holder.let_go()
        wait_for(lambda: not lock._granted.locked(), what="the lock")
        assert asyncio.run(call(producer)) == "DEFAULT_ALLOW"
        del waiting
    assert "Traceback" not in capfd.readouterr().err


OTHER_PROCESS = """
import json, os, sys
from collections import Counter
from subluminal.contracts.toolcall import ToolCall
from subluminal.producer.producer import assemble
runs, calls, policy = json.loads(sys.argv[1])
producers = [assemble({**os.environ, "SUB_RUN_ID": run}, events="none", policy=policy) for run in runs]
print(flush=True)
sys.stdin.readline()
allowed = Counter()
for _ in range(calls):
    for run, producer in zip(runs, producers):
        record = producer.gate.judge(ToolCall("s", "t", b"{}", 2, "mcp_http"), 1, 1)
        allowed[run] += record.decision.action == "ALLOW"
print(json.dumps(allowed), flush=True)
"""


def test_a_hundred_coroutines_and_two_other_processes_spend_ten_budgets_exactly(journals: Spool) -> None:
    runs, limit = [f"run-{number}" for number in range(10)], 60
    producers = [opened(journals, run, limit) for run in runs]
    argument = json.dumps([runs, 20, budget(limit)])
    others = [
        subprocess.Popen(
            [sys.executable, "-c", OTHER_PROCESS, argument], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    allowed: Counter[str] = Counter()

    async def work(producer: Producer) -> None:
        for _ in range(5):
            if await call(producer) == "DEFAULT_ALLOW":
                allowed[producer.gate.identity.run_id] += 1
            await asyncio.sleep(0)

    async def case() -> None:
        await asyncio.gather(*(work(producer) for producer in producers for _ in range(10)))

    try:
        for other in others:
            assert other.stdout is not None and other.stdin is not None
            other.stdout.readline()
        for other in others:
            assert other.stdin is not None
            other.stdin.write("\n")
            other.stdin.flush()
        asyncio.run(case())
        for other in others:
            allowed.update(json.loads(other.communicate()[0]))
    finally:
        for other in others:
            other.kill()
            other.wait()
    assert allowed == dict.fromkeys(runs, limit)
