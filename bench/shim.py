"""The shim beside a C byte relay and the bare server, interleaved in one run, as ratios.

    python bench/shim.py [--rounds N] [--quick] [--only small,medium,...]

Needs a C compiler. The shim runs twice in each round: on Python alone (`py`) and with its C part (`c`). Prints a table
of medians, with the lowest and the highest of the rounds for the shim, and saves it with the raw figures under
bench/results/. `--only` measures some parts anew and keeps the others, where a machine is quiet for moments only. Every
process is pinned to one core where the system allows it, and then again not: on one core every call pays for four
switches of process with cold caches; on several, for waking the others, which an idle machine takes long to do. Real
sessions are like that.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import figures

HERE = Path(__file__).resolve().parent
BUILD = HERE / "build"
POLICY = HERE / "guardrails.yaml"
INSTALLED = BUILD / "installed"
SUB = INSTALLED / "bin" / "sub"
CORES = ("py", "c")


def build() -> None:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        sys.exit("bench: a C compiler is needed (cc or gcc)")
    BUILD.mkdir(exist_ok=True)
    # As installers leave it: a shim that compiles its modules starts 9 ms later and is 1 MiB larger.
    subprocess.run([sys.executable, "-m", "compileall", "-q", HERE.parent / "src"], check=True)
    subprocess.run([sys.executable, "-m", "subluminal.native.build"], stdout=subprocess.DEVNULL, check=True)
    install()
    for name in ("echo", "relay", "driver"):
        subprocess.run([compiler, "-O2", "-Wall", "-o", BUILD / name, HERE / "c" / f"{name}.c"], check=True)


def install() -> None:
    """This tree in an environment with nothing else in it, as pipx and uv make one: what setuptools and coverage add
    to the start of every Python in the project's own takes 1.5 ms."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", "--clear", INSTALLED], check=True)
    site_packages = next(INSTALLED.glob("lib/python*/site-packages"))
    paths = HERE.parent / "src", sysconfig.get_path("purelib")
    (site_packages / "tree.pth").write_text("".join(f"{path}\n" for path in paths), encoding="utf-8")
    script = Path(sys.executable).with_name("sub").read_text(encoding="utf-8").partition("\n")[2]
    SUB.write_text(f"#!{INSTALLED}/bin/python\n{script}", encoding="utf-8")
    SUB.chmod(0o755)


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


class Part(NamedTuple):
    """What is run, and which of its figures make rows: name, key, goal, whether it is compared with the relay."""

    options: dict[str, int]
    rows: list[tuple[str, str, str, bool]]
    one_core: bool = True
    server: tuple[str, ...] = ()
    first: bool = False  # each in a home of its own: no shim before it has met the policy
    rounds: int = 1  # for each that is asked for: a start gives one figure, not thousands


def parts(calls: int) -> dict[str, Part]:
    idle = ("idle RSS KiB", "idle_rss_kib", "(goal 16,384)", False)
    start = ("start ms, server needs 150", "start_ms", "", False)
    slow, nothing = ("--start-ms", "150"), {"calls": 0, "pipelined": 0}
    big = [
        ("64 MiB each way, MiB/s", "big_mib_per_s", "(goal 0.35x)", True),
        ("64 MiB, RSS growth KiB", "big_rss_growth_kib", "(goal 8,192)", False),
    ]
    small = [
        ("p50 us, 100 B, one core", "p50_us", "(goal 3.0x)", True),
        ("p99 us, 100 B, one core", "p99_us", "", True),
        ("calls/s, 64 outstanding", "calls_per_s", "(goal 45,000)", False),
    ]
    return {
        "small": Part({"calls": calls, "size": 100, "pipelined": calls * 4}, small),
        "medium": Part(
            {"calls": calls, "size": 10240, "pipelined": 0},
            [("p50 us, 10 KiB, one core", "p50_us", "(goal 3.5x)", True)],
        ),
        "spread": Part(
            {"calls": calls, "size": 100, "pipelined": 0}, [("p50 us, 100 B, all cores", "p50_us", "", True)], False
        ),
        "spread_medium": Part(
            {"calls": calls, "size": 10240, "pipelined": 0}, [("p50 us, 10 KiB, all cores", "p50_us", "", True)], False
        ),
        "large": Part({**nothing, "big": 64}, big),
        "slow": Part(nothing, [start, idle], server=slow, rounds=3),
        "first": Part(
            nothing, [(f"{name}, first with its policy", *rest) for name, *rest in (start, idle)], True, slow, True, 3
        ),
    }


def one_round(part: Part, home: str) -> dict[str, dict[str, Any]]:
    """All subjects, one after the other, so that a noisy minute hits everyone alike."""
    found = {}
    for name, command in subjects(home, [str(BUILD / "echo"), *part.server]).items():
        for core in CORES if name == "shim" else ("",):
            with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as fresh:
                where = fresh if part.first else home
                found[core or name] = measure(command, where, part.one_core, core, **part.options)
                if part.first:
                    stop_ledgerd(where)
    return found


def stop_ledgerd(home: str) -> None:
    subprocess.run([str(SUB), "ledgerd", "--stop"], env={**os.environ, "SUB_HOME": home}, capture_output=True)


def rows_of(part: Part, results: list[dict[str, dict[str, Any]]]) -> list[tuple[str, ...]]:
    rows = []
    for what, key, goal, is_ratio in part.rows:
        taken = {name: [float(found[name][key]) for found in results] for name in results[0]}
        middle = {name: statistics.median(values) for name, values in taken.items()}
        cells = [f"{middle[name]:,.1f}" for name in ("direct", "relay")]
        cells += [f"{middle[core]:,.1f} ({min(taken[core]):,.1f} to {max(taken[core]):,.1f})" for core in CORES]
        ratios = [f"{middle[core] / middle['relay']:.2f}x" for core in CORES] if is_ratio else []
        rows.append((what, *cells, f"{', '.join(ratios)}{' relay' if ratios else ''} {goal}".strip()))
        if key == "start_ms":
            added = [f"{middle[core] - middle['direct']:.1f}" for core in CORES]
            rows.append((what.replace("start ms", "start-up added, ms"), "", "", *added, "(goal 20)"))
    return rows


class Goal(NamedTuple):
    """`of`: what is held against the limit: the figure, its ratio to the relay's, or what it adds to the server's."""

    what: str
    said: str
    part: str
    key: str
    limit: float
    of: str = "figure"
    at_most: bool = True


RELAY = "the C relay"
GOALS = (
    Goal("p50 us, 100 B, ten rules, events to the ledger, one core", f"3.0x {RELAY}", "small", "p50_us", 3.0, "ratio"),
    Goal("the same, 10 KiB of arguments", f"3.5x {RELAY}", "medium", "p50_us", 3.5, "ratio"),
    Goal("calls/s, 64 outstanding, 100 B", "45,000", "small", "calls_per_s", 45_000, at_most=False),
    Goal("MiB/s, 64 MiB each way, policy enforced", f"0.35x {RELAY}", "large", "big_mib_per_s", 0.35, "ratio", False),
    Goal("KiB of growth for it", "8,192", "large", "big_rss_growth_kib", 8_192),
    Goal("ms of start-up added, server needs 150", "20", "slow", "start_ms", 20, "added"),
    Goal("RSS KiB, idle", "16,384", "slow", "idle_rss_kib", 16_384),
    Goal("the same, shim that has a policy compiled", "16,384", "first", "idle_rss_kib", 16_384),
)


def reached(goal: Goal, results: list[dict[str, dict[str, Any]]]) -> str:
    """Medians with the C part, and of Python alone, with the relay's own figure."""
    middle = {name: statistics.median(float(found[name][goal.key]) for found in results) for name in results[0]}
    if goal.of == "ratio":
        values = {core: middle[core] / middle["relay"] for core in CORES}
        shown = {core: f"{values[core]:.2f}x" for core in CORES}
    else:
        beyond = middle["direct"] if goal.of == "added" else 0.0
        values = {core: middle[core] - beyond for core in CORES}
        shown = {core: f"{values[core]:,.1f}" for core in CORES}
    is_met = values["c"] <= goal.limit if goal.at_most else values["c"] >= goal.limit
    measured = shown["c"] if is_met else f"**{shown['c']}: missed**"
    return f"{measured} (Python alone: {shown['py']}; relay: {middle['relay']:,.1f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, help="5, or 2 with --quick")
    parser.add_argument("--quick", action="store_true", help="fewer calls")
    parser.add_argument("--only", help="of these parts: " + ", ".join(parts(0)))
    arguments = parser.parse_args()
    count = arguments.rounds or (2 if arguments.quick else 5)
    wanted = parts(1000 if arguments.quick else 5000)
    if arguments.only:
        wanted = {name: wanted[name] for name in arguments.only.split(",")}
    build()
    raw: dict[str, list[dict[str, dict[str, Any]]]] = {name: [] for name in wanted}
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home:
        for name, part in wanted.items():
            for _ in range(count * part.rounds):
                raw[name].append(one_round(part, home))
        stop_ledgerd(home)
    saved = figures.RESULTS / "shim.json"
    if arguments.only and saved.exists():
        raw = {**json.loads(saved.read_text(encoding="utf-8")), **raw}
    known = parts(0)
    rows = [row for name in known if name in raw for row in rows_of(known[name], raw[name])]
    text = figures.table(("what", "direct", "relay", "shim, py", "shim, c", ""), rows)
    load = f"Load average at the end, on {os.cpu_count()} cores: {os.getloadavg()[0]:.1f}."
    print(text, load, sep="\n\n")
    figures.save("shim", f"{text}\n\n{load}")
    saved.write_text(json.dumps(raw, indent=1), encoding="utf-8")
    met = [
        (goal.what, f"at {'most' if goal.at_most else 'least'} {goal.said}", reached(goal, raw[goal.part]))
        for goal in GOALS
        if goal.part in raw
    ]
    figures.save("goals", figures.table(("what", "goal", "measured, with the C part"), met))


if __name__ == "__main__":
    main()
