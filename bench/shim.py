"""The shim beside a C byte relay and the bare server, interleaved in one run, as ratios.

    python bench/shim.py [--rounds N] [--quick]

Needs a C compiler. The shim runs twice in each round: on Python alone (`py`) and with its C part (`c`). Prints a table
and saves it with the raw figures under bench/results/. Every process is pinned to one core where the system allows it,
and then again not: on one core every call pays for four switches of process with cold caches; on several, for waking
the others, which an idle machine takes long to do. Real sessions are like that.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
BUILD = HERE / "build"
RESULTS = HERE / "results"
POLICY = HERE / "guardrails.yaml"
SUB = Path(sys.executable).with_name("sub")
CORES = ("py", "c")


def build() -> None:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        sys.exit("bench: a C compiler is needed (cc or gcc)")
    BUILD.mkdir(exist_ok=True)
    subprocess.run([sys.executable, "-m", "subluminal.native.build"], stdout=subprocess.DEVNULL, check=True)
    for name in ("echo", "relay", "driver"):
        subprocess.run([compiler, "-O2", "-Wall", "-o", BUILD / name, HERE / "c" / f"{name}.c"], check=True)


def on_one_core(command: list[str]) -> list[str]:
    return ["taskset", "-c", "0", *command] if shutil.which("taskset") else command


def measure(command: list[str], home: str, one_core: bool, core: str = "", **options: int) -> dict[str, Any]:
    flags = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    driver = [str(BUILD / "driver"), *flags, *command]
    done = subprocess.run(
        on_one_core(driver) if one_core else driver,
        env={**os.environ, "SUB_HOME": home, "SUB_LEDGER_IDLE_S": "5", "SUB_CORE": core},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"bench: {command[:4]} failed: {done.stderr}")
    figures: dict[str, Any] = json.loads(done.stdout)
    return figures


def subjects(home: str, server: list[str]) -> dict[str, list[str]]:
    shim = [str(SUB), "shim", "--server-name", "bench", "--policy", str(POLICY)]
    return {
        "direct": server,
        "relay": [str(BUILD / "relay"), *server],
        "shim": [*shim, "--", *server],
    }


def rounds(
    count: int, home: str, server: list[str], one_core: bool = True, **options: int
) -> dict[str, list[dict[str, Any]]]:
    """Interleaved, so that a noisy minute hits everyone alike."""
    results: dict[str, list[dict[str, Any]]] = {}
    for _ in range(count):
        for name, command in subjects(home, server).items():
            for core in CORES if name == "shim" else ("",):
                results.setdefault(core or name, []).append(measure(command, home, one_core, core, **options))
    return results


def median(results: list[dict[str, Any]], key: str) -> float:
    return statistics.median(float(figures[key]) for figures in results)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="fewer calls, two rounds")
    arguments = parser.parse_args()
    count = 2 if arguments.quick else arguments.rounds
    calls = 1000 if arguments.quick else 5000
    build()
    echo = [str(BUILD / "echo")]
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home:
        small = rounds(count, home, echo, calls=calls, size=100, pipelined=calls * 4)
        spread = rounds(count, home, echo, one_core=False, calls=calls, size=100, pipelined=0)
        spread_medium = rounds(count, home, echo, one_core=False, calls=calls, size=10240, pipelined=0)
        medium = rounds(count, home, echo, calls=calls, size=10240, pipelined=0)
        large = rounds(count, home, echo, calls=0, pipelined=0, big=64)
        slow = rounds(count, home, [*echo, "--start-ms", "150"], calls=0, pipelined=0)
        subprocess.run([str(SUB), "ledgerd", "--stop"], env={**os.environ, "SUB_HOME": home}, capture_output=True)

    rows: list[tuple[str, ...]] = []

    def row(what: str, results: dict[str, list[dict[str, Any]]], key: str, goal: str, ratio: bool = True) -> None:
        values = {name: median(results[name], key) for name in ("direct", "relay", *CORES)}
        ratios = ", ".join(f"{values[core] / values['relay']:.2f}x" for core in CORES) + " relay" if ratio else ""
        rows.append((what, *(f"{value:,.1f}" for value in values.values()), f"{ratios} {goal}".strip()))

    row("p50 us, 100 B, all cores", spread, "p50_us", "(goal 3.0x)")
    row("p50 us, 10 KiB, all cores", spread_medium, "p50_us", "(goal 3.5x)")
    row("p50 us, 100 B, one core", small, "p50_us", "(goal 3.0x)")
    row("p50 us, 10 KiB, one core", medium, "p50_us", "(goal 3.5x)")
    row("p99 us, 100 B, one core", small, "p99_us", "")
    row("calls/s, 64 outstanding", small, "calls_per_s", "", ratio=False)
    row("64 MiB each way, MiB/s", large, "big_mib_per_s", "(goal 0.5x)")
    row("64 MiB, RSS growth KiB", large, "big_rss_growth_kib", "(goal 8192)", ratio=False)
    row("start ms, server needs 150", slow, "start_ms", "", ratio=False)
    row("idle RSS KiB", slow, "idle_rss_kib", "(goal 18432)", ratio=False)
    added = [median(slow[core], "start_ms") - median(slow["direct"], "start_ms") for core in CORES]
    table = ["| what | direct | relay | shim, py | shim, c | |", "|---|---|---|---|---|---|"]
    table += [f"| {' | '.join(cells)} |" for cells in rows]
    table.append(f"| start-up added, ms | | | {added[0]:.1f} | {added[1]:.1f} | (goal 40) |")
    text = "\n".join(table)
    print(text)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "shim.md").write_text(text + "\n", encoding="utf-8")
    raw = {
        "small": small,
        "spread": spread,
        "spread_medium": spread_medium,
        "medium": medium,
        "large": large,
        "slow": slow,
    }
    (RESULTS / "shim.json").write_text(json.dumps(raw, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
