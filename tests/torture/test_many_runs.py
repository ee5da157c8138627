"""500 runs through a process that has room for 64: budgets exact, every event there once, whatever ends when."""

from __future__ import annotations

import asyncio
import json
import os
import random
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest

from harness.engine import rule
from harness.in_process import isolate
from harness.sink import Spool
from subluminal.contracts.toolcall import ToolCall
from subluminal.host.config import load_config
from subluminal.host.run.state import SharedState
from subluminal.producer.pool import NoRoom
from subluminal.producer.producer import Producer
from subluminal.producer.turns import state_turn
from subluminal.producer.visitor import Visitor
from subluminal.producer.visitors import Visitors

SEED = 20_26
RUNS, ROOM, BUDGET, CALLS = 500, 64, 5, 7
AT_ONCE = 100


class Serving:
    """A door in small: calls that wait for the state, are judged, stay open for a while, and end."""

    def __init__(self, events: str) -> None:
        self.open: Counter[Producer] = Counter()
        self.allowed: Counter[str] = Counter()
        self.turned_away = 0
        config = load_config(os.environ)
        self.visitors = Visitors(
            os.environ, config=config, meta={}, events=events, limit=ROOM, busy=self.open.__getitem__
        )

    async def call(self, who: Visitor, rounds: int) -> None:
        producer = await self._producer(who)
        await state_turn(producer)
        record = producer.gate.judge(ToolCall("s", "t", b"{}", 2, "mcp_http"), 1, 1)
        producer.gate.announce(record, 1)
        producer.hand_over()
        self.open[producer] += 1
        for _ in range(rounds):
            await asyncio.sleep(0)
        if record.decision.action == "ALLOW":
            self.allowed[producer.gate.identity.run_id] += 1
            producer.gate.settle(record, "OK", 1, 1, latency_ms=1)
        else:
            producer.gate.settle_refused(record, 1, 1, 0)
        producer.hand_over()
        self.open[producer] -= 1
        if not self.open[producer]:
            del self.open[producer]

    async def _producer(self, who: Visitor) -> Producer:
        while True:
            try:
                return self.visitors.producer_for(who)
            except NoRoom:
                self.turned_away += 1
                await asyncio.sleep(0)


@pytest.fixture
def journals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Spool:
    isolate(tmp_path, monkeypatch)
    (tmp_path / "sub").mkdir(mode=0o700)
    (tmp_path / "journals").mkdir()
    budget = rule("five", "budget", scope="run", limit_calls=BUDGET, on_exceed="BLOCK")
    policy: dict[str, Any] = {"policy_id": "p", "version": "1", "mode": "guardrails", "rules": [budget]}
    policy |= {"defaults": {"decision_on_error": "BLOCK"}, "selectors": {}}
    (tmp_path / "sub" / "policy.yaml").write_text(json.dumps(policy))
    return Spool(tmp_path / "journals")


async def all_calls(serving: Serving, dice: random.Random) -> None:
    order = [f"run-{number}" for number in range(RUNS) for _ in range(CALLS)]
    dice.shuffle(order)
    waiting = iter(order)

    async def work() -> None:
        for run_id in waiting:
            await serving.call(Visitor("s", run_id=run_id), dice.randrange(4))

    await asyncio.gather(*(work() for _ in range(AT_ONCE)))


@pytest.mark.contract("POL-003")
def test_five_hundred_runs_in_a_room_for_sixty_four_spend_their_budgets_exactly(journals: Spool) -> None:
    before = len(os.listdir("/proc/self/fd"))
    serving = Serving(f"dir:{journals.directory}")
    asyncio.run(all_calls(serving, random.Random(SEED)))
    assert len(serving.visitors.pool) == ROOM
    assert len(os.listdir("/proc/self/fd")) <= before + 4 * ROOM
    serving.visitors.close()
    assert len(os.listdir("/proc/self/fd")) <= before + 2

    assert serving.allowed == {f"run-{number}": BUDGET for number in range(RUNS)}
    assert serving.turned_away, "the test did not do its work: there was always room"
    by_shim: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for event in journals.events():
        by_shim[event["source"]["shim_id"]].append(event)
    assert len(by_shim) > 2 * RUNS, "the test did not do its work: few runs had to go and come back"
    types: Counter[tuple[str, str]] = Counter()
    for events in by_shim.values():
        assert [event["source"]["seq"] for event in events] == list(range(1, len(events) + 1))
        assert (events[0]["type"], events[-1]["type"]) == ("run_start", "run_end")
        assert len({event["run_id"] for event in events}) == 1
        types.update((event["run_id"], event["type"]) for event in events)
    for number in range(RUNS):
        run_id = f"run-{number}"
        assert types[run_id, "tool_call_start"] == types[run_id, "tool_call_end"] == CALLS
        assert types[run_id, "run_start"] == types[run_id, "run_end"]
    state = SharedState.open("run-0")
    assert isinstance(state, SharedState)
    state.begin()
    assert state.table.calls + state.table.plain_calls == CALLS
    state.abandon()
