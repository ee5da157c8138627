"""Where the microseconds of one allowed call go: each phase of the shim's path timed in one process.

    python bench/profile_call.py [--calls N]

The objects are the shim's own (session, gate, shared run state, journal); the pipes are real but both ends are here, so
no other process is woken and nothing waits. What the phases do not show: poll(), waking and switching processes, and
the server's own time. The table of bench/shim.py has the whole.
"""

from __future__ import annotations

import argparse
import gc
import os
import statistics
import tempfile
from itertools import pairwise
from pathlib import Path
from time import monotonic_ns, perf_counter_ns, time_ns

import figures

POLICY = Path(__file__).resolve().parent / "guardrails.yaml"
SIZES = (100, 10240)
WARM_UP = 500
READ_BYTES = 64 * 1024
FILL = rb"def f(x): return x + 1  # note\n"
PHASES = (
    "read the request",
    "judge (parse, canonical form, rules, run state)",
    "forward to the server",
    "announce (hash, preview, two events)",
    "journal: start and decision",
    "read the reply",
    "match the reply to its call",
    "pass the reply on",
    "settle (preview, end event, breakers)",
    "journal: end",
)


class Bench:
    """The shim's objects between four pipes."""

    def __init__(self, home: str) -> None:
        from subluminal.adapters.stdio.framing import read_line, split_lines
        from subluminal.mcp.calls import Calls
        from subluminal.mcp.exchange import Exchange
        from subluminal.mcp.tools import ToolNotes
        from subluminal.producer.producer import assemble
        from subluminal.producer.turn import Turn

        self.producer = assemble(os.environ, events="ledger", policy=str(POLICY))
        self.gate, self.sink = self.producer.gate, self.producer.sink
        calls = Calls(self.gate, "bench", "mcp_stdio", ToolNotes())
        calls.tools.learn({"tools": [{"name": "echo"}]})
        self.exchange = Exchange(calls)
        self.turn = Turn(self, calls, self._forward, self._answer)  # type: ignore[arg-type]  # hands over with marks
        self.read_line, self.split_lines = read_line, split_lines
        self.marks: list[int] = []
        self.from_client, self.client = os.pipe()
        self.to_server = os.pipe()
        self.from_server, self.server = os.pipe()
        self.to_client = os.pipe()
        self.calls = 0

    def call(self, size: int) -> list[int]:
        """Nanoseconds of each phase, in the order in which the relay goes through them."""
        self.calls += 1
        request, reply = messages(self.calls, size)
        os.write(self.client, request)
        os.write(self.server, reply)
        self.marks = marks = [perf_counter_ns()]
        data = os.read(self.from_client, READ_BYTES)
        read_ns, wall_ms = monotonic_ns(), time_ns() // 1_000_000
        line = self.split_lines(data)[0]
        self.mark()
        self.exchange.client_message(self.read_line(line), line, wall_ms, read_ns)
        self.mark()
        self.turn.carry_out(wall_ms, read_ns)
        data = os.read(self.from_server, READ_BYTES)
        read_ns, wall_ms = monotonic_ns(), time_ns() // 1_000_000
        line = self.split_lines(data)[0]
        self.mark()
        self.exchange.server_message(line, read_ns)
        self.mark()
        self.turn.carry_out(wall_ms, read_ns)
        assert os.read(self.to_server[0], READ_BYTES) == request, "the call was not allowed"
        assert os.read(self.to_client[0], READ_BYTES) == reply
        return [after - before for before, after in pairwise(marks)]

    def mark(self) -> None:
        self.marks.append(perf_counter_ns())

    def _forward(self, messages: list[bytes]) -> None:
        os.write(self.to_server[1], messages[0] + b"\n")
        self.mark()

    def _answer(self, messages: list[bytes]) -> None:
        os.write(self.to_client[1], messages[0] + b"\n")
        self.mark()

    def hand_over(self) -> None:
        if self.gate.outbox:
            self.mark()
            self.sink.write(self.gate.take())
            self.mark()


def messages(number: int, size: int) -> tuple[bytes, bytes]:
    """As bench/c/driver.c asks and bench/c/echo.c answers."""
    head = b'{"path":"/src/main.py","n":%d,"text":"' % number
    arguments = head + (FILL * (size // len(FILL) + 1))[: size - len(head) - 2].rstrip(b"\\") + b'"}'
    params = b'{"name":"echo","arguments":%s}' % arguments
    request = b'{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":%s}\n' % (number, params)
    content = b'{"content":[{"type":"text","text":"ok"}],"structuredContent":%s}' % arguments
    return request, b'{"jsonrpc":"2.0","id":%d,"result":%s}\n' % (number, content)


def profile(bench: Bench, size: int, calls: int) -> list[float]:
    """Microseconds: the median of each phase."""
    for _ in range(WARM_UP):
        bench.call(size)
    taken = [bench.call(size) for _ in range(calls)]
    return [statistics.median(phase) / 1000 for phase in zip(*taken, strict=True)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=5000)
    arguments = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    with tempfile.TemporaryDirectory() as home:
        os.environ.update(SUB_HOME=home, HOME=home, SUB_RUN_ID="bench")
        bench = Bench(home)
        gc.collect()
        gc.freeze()
        gc.disable()  # as in the shim
        columns = [profile(bench, size, arguments.calls) for size in SIZES]
        bench.sink.close()
    rows = []
    for at, phase in enumerate(PHASES):
        cells = [cell for column in columns for cell in (f"{column[at]:.1f}", f"{column[at] / sum(column):.0%}")]
        rows.append((phase, *cells))
    rows.append(("sum", *(cell for column in columns for cell in (f"{sum(column):.1f}", "100%"))))
    text = figures.table(("phase", "100 B, us", "share", "10 KiB, us", "share"), rows)
    print(text)
    figures.save("profile", text)


if __name__ == "__main__":
    main()
