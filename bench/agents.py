"""How fast native agent events become AgentEvents, and whether memory stays flat: `python bench/agents.py`.

The streams are the recorded ones of the real CLIs, repeated. Reported per client: seconds for the events, microseconds
per event, and the growth of the process's peak memory between the first tenth and the end.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import figures

from subluminal.agents import claude_code, codex
from subluminal.agents.base import Mapper

FIXTURES = Path(__file__).parent.parent / "tests" / "fixtures" / "agent_streams"
CHUNK = 65_536
LIMIT_S = 3.0
LIMIT_GROWTH_KIB = 4096


def repeated(name: str, count: int) -> Iterator[bytes]:
    """Pieces of a stream of `count` lines, made while it is read, so that only the mapper's memory is seen."""
    lines = [
        line
        for path in sorted(FIXTURES.glob(f"{name}.*.jsonl"))
        if ".events." not in path.name
        for line in path.read_bytes().splitlines(keepends=True)
    ]
    held = bytearray()
    for number in range(count):
        held += lines[number % len(lines)]
        if len(held) >= CHUNK:
            yield bytes(held)
            held.clear()
    yield bytes(held)


def peak_kib() -> int:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak // 1024 if sys.platform == "darwin" else peak


def measure(name: str, mapper: Mapper, count: int) -> dict[str, object]:
    spent = 0.0
    produced = 0
    early_peak = 0
    done_bytes = 0
    for number, chunk in enumerate(repeated(name, count)):
        start = time.perf_counter()
        produced += len(mapper.feed(chunk))
        spent += time.perf_counter() - start
        done_bytes += len(chunk)
        if number == 20:
            early_peak = peak_kib()
    produced += len(mapper.finish())
    return {
        "client": name,
        "native_events": count,
        "agent_events": produced,
        "mib": round(done_bytes / 2**20, 1),
        "seconds": round(spent, 3),
        "us_per_event": round(spent / count * 1e6, 2),
        "peak_growth_kib": peak_kib() - early_peak,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--check", action="store_true", help="exit 1 when a figure is over its limit")
    options = parser.parse_args()
    good, rows = True, []
    for name, mapper in (("claude_code", claude_code.Mapper()), ("codex", codex.Mapper())):
        result = measure(name, mapper, options.events)
        print(json.dumps(result))
        rows.append(list(result.values()))
        header = list(result)
        good = (
            good
            and float(str(result["seconds"])) <= LIMIT_S
            and int(str(result["peak_growth_kib"])) <= LIMIT_GROWTH_KIB
        )
    figures.save("agents", figures.table(header, rows))
    return 0 if good or not options.check else 1


if __name__ == "__main__":
    sys.exit(main())
