"""What protection adds to an allowed call inside a server of the official SDK.

The middleware is driven directly, with the context the SDK gives it, around a handler that does nothing; in turns with
it the bare gate (judging and recording the same call), the floor for any adapter. Events go to a real journal. Many
short rounds: on a busy machine the tenth percentile is the nearest to what an idle one would show.

    python bench/in_process.py [--rounds N] [--limit US]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from types import SimpleNamespace
from typing import Any

import figures

CALLS = 20
RESULT = {"content": [{"type": "text", "text": "note 1"}], "structuredContent": {"result": "note 1"}, "isError": False}
POLICY: dict[str, Any] = {
    "policy_id": "bench",
    "version": "1",
    "mode": "guardrails",
    "defaults": {"decision_on_error": "BLOCK"},
    "selectors": {},
    "rules": [
        {
            "rule_id": f"rule-{number}",
            "kind": "budget" if number == 0 else "deny",
            "enabled": True,
            "severity": "warn",
            "match": {"tool_name": {"glob": ["add_*"] if number == 0 else [f"delete_{number}_*"]}},
            "effect": {"budget": {"scope": "run", "limit_calls": 10**9, "on_exceed": "BLOCK"}}
            if number == 0
            else {"action": "BLOCK"},
        }
        for number in range(10)
    ],
}


async def _handler(ctx: Any) -> dict[str, Any]:
    return RESULT


def _context(size: int) -> Any:
    params = {"name": "add_note", "arguments": {"text": "x" * size}}
    return SimpleNamespace(method="tools/call", request_id=1, params=params)


async def _per_call_us(stage: Any, ctx: Any) -> float:
    began = time.perf_counter_ns()
    for _ in range(CALLS):
        await stage(ctx)
    return (time.perf_counter_ns() - began) / CALLS / 1000


def _bare_gate(runtime: Any, size: int) -> Any:
    """The same call, judged, announced, settled and written with everything already in hand."""
    from subluminal.contracts.toolcall import ToolCall

    with runtime as producer:
        gate, sink = producer.gate, producer.sink
    args, result = b'{"text":"%b"}' % (b"x" * size), json.dumps(RESULT, separators=(",", ":")).encode()

    async def stage(ctx: Any) -> None:
        wall_ms, mono_ms = time.time_ns() // 1_000_000, time.monotonic_ns() // 1_000_000
        record = gate.judge(ToolCall("notes", "add_note", args, size, "in_process"), wall_ms, mono_ms)
        gate.announce(record, wall_ms)
        sink.write(gate.take())
        gate.settle(record, "OK", wall_ms, mono_ms, latency_ms=0, bytes_out=100, result_raw=result, overhead_us=1)
        sink.write(gate.take())

    return stage


async def _compare(middleware: Any, size: int, rounds: int) -> tuple[list[float], list[float]]:
    ctx = _context(size)

    async def protected(ctx: Any) -> Any:
        return await middleware(ctx, _handler)

    await _per_call_us(protected, ctx)
    bare_gate = _bare_gate(middleware.calls.runtime, size)
    bare, added = [], []
    for _ in range(rounds):
        handler = await _per_call_us(_handler, ctx)
        bare.append(await _per_call_us(bare_gate, ctx) - handler)
        added.append(await _per_call_us(protected, ctx) - handler)
    return sorted(bare), sorted(added)


def _append_us(path: str) -> float:
    """One plain append of the size of a call's events: what a journal write costs the event loop."""
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    line = b"x" * 900 + b"\n"
    took = []
    for _ in range(2000):
        began = time.perf_counter_ns()
        os.write(fd, line)
        took.append(time.perf_counter_ns() - began)
    os.close(fd)
    return statistics.median(took) / 1000


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--limit", type=float, default=60.0, help="fail above this many microseconds (100 B, p10)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        os.environ.update(SUB_HOME=home, HOME=home, SUB_RUN_ID="bench", SUB_EVENTS=f"file:{home}/events.jsonl")
        from subluminal.adapters.in_process.mcp_sdk import SubluminalMiddleware
        from subluminal.policy.compile.bundle import compile_bundle

        middleware = SubluminalMiddleware("notes", compile_bundle(json.dumps(POLICY).encode(), "bench.json"))
        print(f"journal append of 900 B: {_append_us(home + '/append'):.1f} us")
        print("allowed call            adds p10   p50 us    bare gate p10   p50 us   ratio p10")
        within, rows = 0.0, []
        for size in (10_240, 100):
            bare, added = asyncio.run(_compare(middleware, size, options.rounds))
            tenth, half = options.rounds // 10, options.rounds // 2
            within = added[tenth]
            row = (added[tenth], added[half], bare[tenth], bare[half], added[tenth] / bare[tenth])
            print("{:>7} B          {:11.1f} {:7.1f}     {:13.1f} {:7.1f}        {:.2f}".format(size, *row))
            rows.append((f"{size} B", *(f"{figure:.2f}" for figure in row)))
        middleware.close()
    header = ("allowed call", "adds p10 us", "adds p50 us", "bare gate p10 us", "bare gate p50 us", "ratio p10")
    figures.save("in_process", figures.table(header, rows))
    if within > options.limit:
        print(f"more than {options.limit} us", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
