"""Canonical JSON against `json.loads` + `json.dumps(sort_keys=True)` on the same bytes, in the same run.

    python bench/canonical.py [--limit 1.5]

Prints one line per input: microseconds for both (best of several rounds, interleaved) and their ratio. Exits with 1
if a ratio is over the limit. Rows in brackets are known to be over it and are not held to it.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable

import figures

from subluminal.contracts.canonical import read_args

ROUNDS = 15
ROUND_SECONDS = 0.01


def inputs() -> dict[str, bytes]:
    small = {"path": "/srv/app/config.yaml", "line": 42, "force": False, "text": "x" * 40}
    records = [{"id": n, "name": f"file {n}", "size": n * 1021, "hidden": False} for n in range(180)]
    points = [{"id": n, "x": n * 1.25, "y": -n / 3, "label": f"point {n}"} for n in range(160)]
    prose = {"path": "notes.md", "text": ("The quick brown fox; " * 480)}
    accents = {"path": "notes.md", "text": ("Là où l’été dure. " * 400)}
    compact = {"separators": (",", ":"), "ensure_ascii": False}
    return {
        "100 B, compact": json.dumps(small, **compact).encode(),
        "100 B, spaces": json.dumps(small).encode(),
        "100 B, one fraction": json.dumps({**small, "line": 4.25}, **compact).encode(),
        "100 B, spaces and fractions": json.dumps({**small, "line": [4.25, 1e-7]}).encode(),
        "10 KiB, one string": json.dumps(prose, **compact).encode(),
        "10 KiB, escaped non-ASCII": json.dumps(accents).encode(),
        "10 KiB, records": json.dumps(records, **compact).encode(),
        "10 KiB, records indented": json.dumps(records, indent=2).encode(),
        "10 KiB, fractions": json.dumps(points, **compact).encode(),
        "10 KiB, fractions indented": json.dumps(points, indent=2).encode(),
        "[10 KiB, tiny numbers only]": json.dumps([n * 1e-9 for n in range(1, 600)]).encode(),
        "10 KiB, escaped <>&": json.dumps(records, **compact).replace("file ", "file\\u003c").encode(),
        "10 KiB, escaped colons": json.dumps(records, **compact).replace("file ", "file\\u003a").encode(),
        "[10 KiB, exact path forced]": json.dumps(records).replace("file ", "file\\\\u003a").encode(),
    }


def both(ours: Callable[[], object], theirs: Callable[[], object]) -> tuple[float, float]:
    """Best seconds per call of each; rounds alternate, so that a noisy neighbour disturbs both alike."""
    best = [float("inf"), float("inf")]
    for _ in range(ROUNDS):
        for which, work in enumerate((ours, theirs)):
            calls = 0
            start = time.perf_counter()
            while (elapsed := time.perf_counter() - start) < ROUND_SECONDS:
                for _ in range(10):
                    work()
                calls += 10
            best[which] = min(best[which], elapsed / calls)
    return best[0], best[1]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--limit", type=float, default=1.5, help="the highest ratio that passes")
    limit = parser.parse_args().limit
    worst, rows = 0.0, []
    print(f"{'input':<30}{'bytes':>7}{'canonical us':>14}{'json us':>10}{'ratio':>7}")
    for name, raw in inputs().items():
        ours, theirs = both(lambda raw=raw: read_args(raw), lambda raw=raw: json.dumps(json.loads(raw), sort_keys=True))
        ratio = ours / theirs
        if not name.startswith("["):
            worst = max(worst, ratio)
        print(f"{name:<30}{len(raw):>7}{ours * 1e6:>14.2f}{theirs * 1e6:>10.2f}{ratio:>7.2f}")
        rows.append((name, len(raw), f"{ours * 1e6:.2f}", f"{theirs * 1e6:.2f}", f"{ratio:.2f}"))
    figures.save("canonical", figures.table(("input", "bytes", "canonical us", "json us", "ratio"), rows))
    print(f"worst ratio {worst:.2f}, limit {limit}")
    return 1 if worst > limit else 0


if __name__ == "__main__":
    sys.exit(main())
