"""The order of the record: forward, announce, hand over, answer, settle; stated as what happens, step by step."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from harness.engine import compiled, rule, tools
from harness.waiting import wait_for_async
from subluminal.adapters.stdio.framing import read_line
from subluminal.contracts.identity import Identity, Source
from subluminal.core.engine.stack import Engine, Stack
from subluminal.core.engine.state import LocalState
from subluminal.core.gate.gate import Gate
from subluminal.core.redact.redactor import Redactor
from subluminal.mcp.calls import Calls
from subluminal.mcp.exchange import Exchange
from subluminal.mcp.tools import ToolNotes
from subluminal.producer.later import Later
from subluminal.producer.turn import Turn


class Steps:
    """A producer and two sides that only note what they are given, in one list."""

    def __init__(self, *, on_loop: bool = False, **options: bool) -> None:
        identity = Identity("run")
        stack = Stack([Engine(compiled(rule("no", "deny", tools("bad"))), identity)])
        self.gate = Gate(identity, Source("h", "p", "s"), stack, LocalState(), Redactor())
        calls = Calls(self.gate, "srv", "mcp_stdio", ToolNotes())
        self.exchange = Exchange(calls)
        later = Later(self) if on_loop else None  # type: ignore[arg-type]
        self.turn = Turn(self, calls, self._forward, self._answer, later=later, **options)  # type: ignore[arg-type]
        self.steps: list[str] = []

    def _forward(self, messages: list[bytes]) -> None:
        self.steps.append(f"forward {len(messages)}")

    def _answer(self, messages: list[bytes]) -> None:
        self.steps.append(f"answer {len(messages)}")

    def hand_over(self) -> None:
        if self.gate.outbox:
            kinds = [json.loads(line)["type"].removeprefix("tool_call_") for line in self.gate.take().splitlines()]
            self.steps.append("hand over " + " ".join(kinds))

    def client(self, *messages: dict[str, Any] | list[Any]) -> list[str]:
        for message in messages:
            raw = json.dumps(message, separators=(",", ":")).encode()
            self.exchange.client_message(read_line(raw), raw, 1, 1)
        return self._carried_out()

    def server(self, *messages: dict[str, Any]) -> list[str]:
        for message in messages:
            self.exchange.server_message(json.dumps(message, separators=(",", ":")).encode(), 1)
        return self._carried_out()

    def _carried_out(self) -> list[str]:
        self.turn.carry_out(1, 1)
        return self.taken()

    def taken(self) -> list[str]:
        steps, self.steps = self.steps, []
        return steps


def call(id: int, tool: str = "good") -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": tool, "arguments": {}}}


def reply(id: int) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "result": {"content": []}}


def test_an_allowed_call_is_on_its_way_before_it_is_written_down() -> None:
    steps = Steps()
    assert steps.client(call(1)) == ["forward 1", "hand over start decision"]
    assert steps.server(reply(1)) == ["answer 1", "hand over end"]


def test_an_end_that_may_wait_goes_with_the_next_decision() -> None:
    steps = Steps(ends_wait=True)
    assert steps.client(call(1)) == ["forward 1", "hand over start decision"]
    assert steps.server(reply(1)) == ["answer 1"]
    assert steps.client(call(2), call(3, "bad")) == [
        "forward 1",
        "hand over end start decision start decision end",
        "answer 1",
    ]


def test_with_audit_before_the_ends_go_before_the_next_call_is_forwarded() -> None:
    steps = Steps(ends_wait=True, audit_before=True)
    assert steps.client(call(1)) == ["hand over start decision", "forward 1"]
    assert steps.server(reply(1)) == ["answer 1"]
    assert steps.client(call(2)) == ["hand over end start decision", "forward 1"]


def test_a_refusal_is_with_the_sink_before_anybody_hears_of_it() -> None:
    assert Steps().client(call(1, "bad")) == ["hand over start decision end", "answer 1"]


def test_one_turn_of_many_keeps_the_order_for_all_of_them() -> None:
    steps = Steps()
    batch = [call(3), call(4, "bad"), {"jsonrpc": "2.0", "id": 5, "method": "ping"}]
    assert steps.client(call(1), call(2, "bad"), batch) == [
        "forward 2",
        "hand over start decision start decision end start decision start decision end",
        "answer 1",
    ]
    assert steps.server(reply(1), reply(3), reply(5)) == ["answer 4", "hand over end end"]


def test_a_write_ahead_record_is_with_the_sink_before_anything_is_forwarded() -> None:
    steps = Steps(audit_before=True)
    assert steps.client(call(1), call(2, "bad")) == [
        "hand over start decision start decision end",
        "forward 1",
        "answer 1",
    ]


@pytest.mark.parametrize("audit_before", [False, True])
def test_what_is_no_call_leaves_nothing_in_the_record(audit_before: bool) -> None:
    steps = Steps(audit_before=audit_before)
    assert steps.client({"jsonrpc": "2.0", "id": 1, "method": "ping"}) == ["forward 1"]
    assert steps.server({"jsonrpc": "2.0", "id": 1, "result": {}}) == ["answer 1"]
    assert steps.client() == []


# -- on a loop ----------------------------------------------------------------------------------------------------


def on_loop(scene: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    def run() -> None:
        asyncio.run(asyncio.wait_for(scene(), 20))

    run.__name__ = scene.__name__
    return run


@on_loop
async def test_what_one_turn_of_the_loop_decides_is_handed_over_together_at_its_end() -> None:
    steps = Steps(on_loop=True)
    assert [steps.client(call(id)) for id in (1, 2, 3)] == [["forward 1"]] * 3
    await asyncio.sleep(0)
    assert steps.taken() == ["hand over" + 3 * " start decision"]
    await asyncio.sleep(0)
    assert steps.taken() == []


@on_loop
async def test_nobody_is_answered_while_a_decision_waits() -> None:
    steps = Steps(on_loop=True)
    assert steps.client(call(1)) == ["forward 1"]
    assert steps.server(reply(1)) == ["hand over start decision", "answer 1"]
    assert steps.client(call(2)) == ["forward 1"]
    assert steps.client(call(3, "bad")) == ["hand over end start decision start decision end", "answer 1"]
    assert steps.client(call(4), call(5, "bad")) == [
        "forward 1",
        "hand over start decision start decision end",
        "answer 1",
    ]


@on_loop
async def test_ends_wait_for_the_next_decisions_or_a_moment_and_no_longer() -> None:
    steps = Steps(on_loop=True)
    steps.client(call(1), call(2), call(3))
    await asyncio.sleep(0)
    steps.taken()
    assert steps.server(reply(1)) == ["answer 1"]
    assert steps.server(reply(2)) == ["answer 1"]
    steps.client(call(4))
    await asyncio.sleep(0)
    assert steps.taken() == ["hand over end end start decision"]
    assert steps.server(reply(3)) == ["answer 1"]
    assert await wait_for_async(steps.taken, what="the hand-over") == ["hand over end"]


@on_loop
async def test_a_write_ahead_record_waits_for_no_turn_of_the_loop() -> None:
    steps = Steps(on_loop=True, audit_before=True)
    assert steps.client(call(1)) == ["hand over start decision", "forward 1"]
