"""The model API through `sub proxy messages`, beside the same API asked directly, in one run.

    python bench/model_api.py [--rounds N] [--quick] [--streams N]

The upstream (bench/model_upstream.py) writes each event by itself, with the time of its writing as its text, so that
one event's delay is known at the client. First token: from the request's last byte to the first text. Throughput: a
long answer as fast as it is taken. Streams: so many answers at once, each with a tool call that is held and judged.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
from pathlib import Path
from statistics import median
from time import monotonic_ns
from typing import Any

from figures import save, table
from mcp_http import POLICY, SUB, Subject, environment, first_line, spawn

from subluminal.native.chosen import NAME

HERE = Path(__file__).resolve().parent
BODY = json.dumps({"model": "bench", "max_tokens": 64, "stream": True, "messages": [{"role": "user", "content": "go"}]})
MARK = b'"text":"'


class Stream:
    """One answer as a client reads it: raw, looking for nothing but the texts."""

    def __init__(self) -> None:
        self.first_us = 0.0
        self.delays_us: list[float] = []
        self.size = 0

    async def ask(self, port: int, query: str, every: bool) -> Stream:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
        head = f"POST /v1/messages?{query} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\ncontent-type: application/json\r\n"
        writer.write(f"{head}content-length: {len(BODY)}\r\n\r\n{BODY}".encode())
        began = monotonic_ns()
        last = b""
        while b'"message_stop"}\n\n' not in last:
            data = await reader.read(1 << 18)
            now = monotonic_ns()
            if not data:
                sys.exit(f"bench: the answer was cut: {last[-300:]!r}")
            self.size += len(data)
            if every or not self.first_us:
                self._look(data, now, began)
            last = (last + data)[-400:]
        writer.close()
        return self

    def _look(self, data: bytes, now: int, began: int) -> None:
        at = data.find(MARK)
        while at >= 0:
            end = data.find(b'"', at + len(MARK))
            if data[at + len(MARK) : end].isdigit():
                if not self.first_us:
                    self.first_us = (now - began) / 1e3
                self.delays_us.append((now - int(data[at + len(MARK) : end])) / 1e3)
            at = data.find(MARK, end)


async def first_tokens(port: int, count: int) -> dict[str, float]:
    found = sorted([(await Stream().ask(port, "events=1", False)).first_us for _ in range(count)])
    return {"p50_us": found[count // 2], "p99_us": found[int(count * 0.99)]}


async def throughput(port: int, events: int) -> dict[str, float]:
    began = monotonic_ns()
    stream = await Stream().ask(port, f"events={events}", False)
    seconds = (monotonic_ns() - began) / 1e9
    return {"events_per_s": events / seconds, "mb_per_s": stream.size / seconds / 1e6}


async def many(port: int, streams: int, tool_bytes: int) -> dict[str, float]:
    query = f"events=50&us=100000&tool={tool_bytes}"
    asked = [asyncio.create_task(Stream().ask(port, query, True)) for _ in range(streams)]
    delays = sorted(delay for stream in await asyncio.gather(*asked) for delay in stream.delays_us)
    return {"p50_us": delays[len(delays) // 2], "p99_us": delays[int(len(delays) * 0.99)]}


def highest_kib(subject: Subject) -> int:
    return int(Path(f"/proc/{subject.process.pid}/status").read_text().split("VmHWM:")[1].split()[0])


def rounds(count: int, found: list[Subject], measure: Any) -> dict[str, list[dict[str, float]]]:
    results: dict[str, list[dict[str, float]]] = {}
    for _ in range(count):
        for subject in found:
            results.setdefault(subject.name, []).append(asyncio.run(measure(subject.port)))
    return results


def middle(results: dict[str, list[dict[str, float]]], key: str) -> dict[str, float]:
    return {name: median(figures[key] for figures in found) for name, found in results.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="fewer of everything, two rounds")
    parser.add_argument("--streams", type=int, default=1000)
    arguments = parser.parse_args()
    count = 2 if arguments.quick else arguments.rounds
    rows: list[tuple[str, ...]] = []
    raw: dict[str, Any] = {}

    def row(what: str, results: dict[str, list[dict[str, float]]], key: str, note: Any) -> None:
        values = middle(results, key)
        rows.append((what, *(f"{values[name]:,.1f}" for name in ("direct", "ours")), note(values)))

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home:
        upstream = spawn([sys.executable, "-P", str(HERE / "model_upstream.py")])
        direct = Subject("direct", int(first_line(upstream)), "", upstream)
        command = [str(SUB), "proxy", "messages", "--upstream", f"http://127.0.0.1:{direct.port}", "--json"]
        Path(home, NAME).mkdir()
        process = spawn([*command, "--policy", str(POLICY)], env=environment(home, NAME))
        listening = json.loads(first_line(process))["listening"]
        ours = Subject("ours", int(listening.rpartition(":")[2]), "", process)
        found = [direct, ours]
        try:
            idle = ours.rss_kib
            first = raw["first"] = rounds(count, found, lambda port: first_tokens(port, 40 if arguments.quick else 200))
            row("first text us, p50", first, "p50_us", lambda of: f"{of['ours'] - of['direct']:+,.0f} us (goal +3,000)")
            row("first text us, p99", first, "p99_us", lambda of: f"{of['ours'] - of['direct']:+,.0f} us")
            events = 5_000 if arguments.quick else 50_000
            long = raw["long"] = rounds(count, found, lambda port: throughput(port, events))
            row(
                f"events/s, {events:,} texts",
                long,
                "events_per_s",
                lambda of: f"{of['ours'] / of['direct']:.2f}x (goal 0.9x)",
            )
            streams = raw["streams"] = rounds(1, found, lambda port: many(port, arguments.streams, 64_000))
            row(f"text's delay us, p50, {arguments.streams:,} streams", streams, "p50_us", lambda of: "")
            row(f"text's delay us, p99, {arguments.streams:,} streams", streams, "p99_us", lambda of: "")
            highest = raw["highest_kib"] = highest_kib(ours)
            each = (highest - idle) / arguments.streams
            rows.append(
                (
                    "highest RSS KiB",
                    "",
                    f"{highest:,}",
                    f"idle {idle:,}; {each:,.1f} KiB a stream, 64 KB of arguments each",
                )
            )
        finally:
            for subject in reversed(found):
                subject.process.terminate()
                subject.process.wait(30)
    load = f"Load average at the end, on {os.cpu_count()} cores: {os.getloadavg()[0]:.1f}."
    text = table(("what", "direct", "ours", ""), rows)
    print(text, load, sep="\n\n")
    save("model_api", f"{text}\n\n{load}")
    (HERE / "results" / "model_api.json").write_text(json.dumps(raw, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
