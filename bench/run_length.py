"""What a call costs, and what the shim holds, as its run grows to a million calls.

    python bench/run_length.py [--calls 10000,100000,1000000]

The objects are the shim's own, in one process, without pipes; run state is shared and events go nowhere. No two calls
have the same arguments, so that whatever is kept for each of them would be seen. Medians are over the last thousand.
"""

from __future__ import annotations

import argparse
import gc
import os
import statistics
import tempfile
import time
from collections import deque
from pathlib import Path

import figures
from open_calls import POLICY, Door

from subluminal.producer.producer import assemble

LAST = 1_000


def rss_kib() -> int:
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024


def measure(lengths: list[int]) -> list[tuple[str, ...]]:
    producer = assemble(os.environ, events="none", policy=str(POLICY))
    door, done, rows = Door(producer), 0, []
    gc.collect()
    gc.freeze()
    gc.disable()  # as in the shim
    for length in lengths:
        taken: deque[int] = deque(maxlen=LAST)
        while done < length:
            began = time.perf_counter_ns()
            door.call()
            taken.append(time.perf_counter_ns() - began)
            done += 1
        state = sum(path.stat().st_size for path in Path(os.environ["SUB_HOME"], "run").glob("*"))
        rows.append((f"{length:,}", f"{statistics.median(taken) / 1000:.1f}", f"{rss_kib():,}", f"{state / 1024:,.0f}"))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", default="10000,100000,1000000")
    lengths = [int(length) for length in parser.parse_args().calls.split(",")]
    with tempfile.TemporaryDirectory() as home:
        os.environ.update(SUB_HOME=home, HOME=home, SUB_RUN_ID="bench")
        rows = measure(lengths)
    text = figures.table(("calls of the run", "call, p50 us", "RSS KiB", "run state KiB"), rows)
    print(text)
    figures.save("run_length", text)


if __name__ == "__main__":
    main()
