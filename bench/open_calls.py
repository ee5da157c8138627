"""What a tick and a call cost while many calls are open, with a timeout set.

    python bench/open_calls.py

The exchange and the gate are the shim's own, in one process, without pipes. "tick": what runs every few milliseconds
while calls come in. "call": one more call, from its line to its end, beside those that are open. "all due": the tick
at which every open call has timed out, for each of them.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

import figures

from subluminal.adapters.stdio.framing import read_line
from subluminal.mcp.calls import Calls
from subluminal.mcp.exchange import Exchange
from subluminal.mcp.tools import ToolNotes
from subluminal.producer.producer import Producer, assemble
from subluminal.producer.turn import Turn

POLICY = Path(__file__).resolve().parent / "guardrails.yaml"
OPEN = (1, 10, 100, 1_000, 10_000)
TIMEOUT_MS = 60_000
ROUNDS = 300


class Door:
    number = 0  # no two calls of a run are the same

    def __init__(self, producer: Producer) -> None:
        calls = Calls(producer.gate, "bench", "mcp_stdio", ToolNotes(), timeout_ms=TIMEOUT_MS)
        calls.tools.learn({"tools": [{"name": "echo"}]})
        self.exchange = Exchange(calls)
        self.turn = Turn(producer, calls, len, len)  # type: ignore[arg-type]  # messages go nowhere

    def ask(self) -> None:
        Door.number += 1
        head = b'{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"echo","arguments":{"n":%d}}}'
        line = head % (self.number, self.number)
        now = time.monotonic_ns()
        self.exchange.client_message(read_line(line), line, time.time_ns() // 1_000_000, now)
        self.turn.carry_out(time.time_ns() // 1_000_000, now)

    def call(self) -> None:
        self.ask()
        now = time.monotonic_ns()
        self.exchange.server_message(b'{"jsonrpc":"2.0","id":%d,"result":{"content":[]}}' % self.number, now)
        self.turn.carry_out(time.time_ns() // 1_000_000, now)

    def tick(self, later_ns: int = 0) -> None:
        self.exchange.expire(time.monotonic_ns() + later_ns)
        self.turn.carry_out(time.time_ns() // 1_000_000, time.monotonic_ns())


def p50_us(door: Door, work: str) -> float:
    times = []
    for _ in range(ROUNDS):
        began = time.perf_counter_ns()
        getattr(door, work)()
        times.append(time.perf_counter_ns() - began)
    return statistics.median(times) / 1_000


def main() -> int:
    rows = []
    for count in OPEN:
        with tempfile.TemporaryDirectory() as home:  # so many timeouts end a run
            os.environ["SUB_HOME"] = home
            door = Door(assemble(os.environ, events="none", policy=str(POLICY)))
            for _ in range(count):
                door.ask()
            assert door.exchange.calls_open == count, f"{door.exchange.calls_open} of {count}"
            tick, call = p50_us(door, "tick"), p50_us(door, "call")
            began = time.perf_counter_ns()
            door.tick(2 * TIMEOUT_MS * 1_000_000)
            due = (time.perf_counter_ns() - began) / 1_000 / count
            rows.append((f"{count:,}", f"{tick:.1f}", f"{call:.1f}", f"{due:.1f}"))
    text = figures.table(("open calls", "tick, p50 us", "call, p50 us", "all due, us each"), rows)
    print(text)
    figures.save("open_calls", text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
