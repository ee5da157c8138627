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
        from subluminal.core.gate.gate import Gate
        from subluminal.core.redact.redactor import Redactor
        from subluminal.host.identity import discover, make_source
        from subluminal.host.record.sinks import open_sink
        from subluminal.host.run.state import SharedState
        from subluminal.mcp.exchange import Session
        from subluminal.producer.policies import PolicyWatch

        source = make_source()
        identity = discover(os.environ, source.host_id, None)
        stack = PolicyWatch(os.environ, home, str(POLICY), identity).stack
        self.gate = Gate(identity, source, stack, SharedState.open(identity.run_id), Redactor(()))
        self.session = Session(self.gate, "bench")
        self.sink = open_sink("ledger", source.shim_id)
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
        session, gate, sink, clock = self.session, self.gate, self.sink, perf_counter_ns
        marks = [clock()]
        data = os.read(self.from_client, READ_BYTES)
        read_ns, wall_ms = monotonic_ns(), time_ns() // 1_000_000
        (line, _rest) = data.split(b"\n")
        marks.append(clock())
        session.client_line(line, wall_ms, read_ns)
        marks.append(clock())
        os.write(self.to_server[1], session.to_server[0])
        session.to_server.clear()
        session.forwarded(read_ns, monotonic_ns())
        marks.append(clock())
        session.announce(wall_ms)
        marks.append(clock())
        sink.write(gate.take())
        marks.append(clock())
        data = os.read(self.from_server, READ_BYTES)
        read_ns, wall_ms = monotonic_ns(), time_ns() // 1_000_000
        (line, _rest) = data.split(b"\n")
        marks.append(clock())
        session.server_line(line, wall_ms, read_ns)
        marks.append(clock())
        os.write(self.to_client[1], session.to_client[0])
        session.to_client.clear()
        marks.append(clock())
        session.settle(wall_ms, monotonic_ns(), read_ns)
        marks.append(clock())
        sink.write(gate.take())
        marks.append(clock())
        assert os.read(self.to_server[0], READ_BYTES) == request, "the call was not allowed"
        assert os.read(self.to_client[0], READ_BYTES) == reply
        return [after - before for before, after in pairwise(marks)]


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
