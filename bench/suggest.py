"""What `sub policy suggest` makes of 1,000 generated runs, by the real engine: medians over ten seeds.

    .venv/bin/python bench/suggest.py                       the table of docs/suggest.md
    .venv/bin/python bench/suggest.py --abuses FILE         other abuses, as tests/fixtures/suggest/README.md says
    .venv/bin/python bench/suggest.py --seeds 3 --missed    fewer seeds; name what was let through

Each seed is learned twice: as it is, and with every abuse in two of the runs that are learned from. An abuse counts as
refused if the engine refuses one of its calls, at the end of an ordinary run of the newest.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "tests"))

from harness.agents_at_work import load_abuses, measured, runs_of  # noqa: E402

OWN = os.path.join(ROOT, "tests", "fixtures", "suggest", "abuses.yaml")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--abuses", default=OWN)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--runs", type=int, default=1_000)
    parser.add_argument("--target", type=float, default=0.02)
    parser.add_argument("--missed", action="store_true")
    options = parser.parse_args()
    abuses = load_abuses(options.abuses)
    print("| runs | ordinary calls refused | near misses let through | abuses refused | target reached |")
    print("|---|---|---|---|---|")
    for times, name in ((0, "as they are"), (2, "each abuse in two of the runs learned from")):
        found = []
        began = time.perf_counter()
        for seed in range(1, options.seeds + 1):
            found.append(measured(runs_of(seed, options.runs), abuses, seed, times, options.target))
        refused = [one.refusals for one in found]
        near = [one.near_miss_admission for one in found]
        caught = [one.recall for one in found]
        spread = [
            f"{statistics.median(each):.1%} ({min(each):.1%} to {max(each):.1%})" for each in (refused, near, caught)
        ]
        reached = sum(one.reached for one in found)
        print(f"| {name} | {' | '.join(spread)} | {reached} of {len(found)} |")
        if options.missed:
            missed = sorted(name for one in found for name in one.missed)
            for name in sorted(set(missed)):
                print(f"    let through in {missed.count(name)} of {len(found)}: {name}", file=sys.stderr)
        print(f"    {time.perf_counter() - began:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
