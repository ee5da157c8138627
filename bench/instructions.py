"""Instructions per tool call, counted by valgrind: the same on a busy machine as on a quiet one.

    python bench/instructions.py [--calls N] [--no-shim] [--before SRC]

`shim` is a real `sub shim` between the driver and the echo server of bench/c, with a clock that does not depend on how
slow valgrind is (`steady_clock.c`): two runs of different length, and the difference divided by the calls between them.
The phases are counted in one process without pipes, so what is missing from their sum is the poll loop. `--before`
counts the phases of an earlier tree as well (its `src/`, with the C part built there). User space only: system calls
cost time that no count here shows. valgrind knows no SHA instructions: the C part's SHA-256 of 100 B counts 8,000 here,
and is a few hundred on a processor that has them.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import figures
from shim import build

HERE = Path(__file__).resolve().parent
BUILD = HERE / "build"
POLICY = HERE / "guardrails.yaml"
SIZES = (100, 10240)
PHASES = ("read, judge", "forward, announce", "match reply", "answer, settle")
WARM_UP = 100


def callgrind(command: list[str], directory: str, *flags: str) -> list[int]:
    """Runs `command`; the count of each part between two calls of `getppid`, or of the whole."""
    out = Path(directory, "callgrind")
    for old in out.parent.glob("callgrind*"):
        old.unlink()
    done = subprocess.run(
        ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", *flags, *command],
        env={**os.environ, "SUB_HOME": directory, "PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"bench: {command} failed under valgrind: {done.stderr[-2000:]}")
    parts = sorted(out.parent.glob("callgrind.*"), key=lambda part: int(part.suffix[1:])) or [out]
    return [total(part) for part in parts]


def total(part: Path) -> int:
    found = re.search(r"^(?:summary|totals): (\d+)", part.read_text(encoding="utf-8"), re.MULTILINE)
    return int(found[1]) if found else 0


def phases(size: int, calls: int, directory: str) -> dict[str, int]:
    """Each phase is the difference between calls taken so far and calls taken one phase further."""
    command = [sys.executable, __file__, "--inside", str(size), "--calls", str(calls)]
    counts = callgrind(command, directory, "--dump-before=getppid")[-len(PHASES) - 1 :]
    return {phase: (counts[at + 1] - counts[at]) // calls for at, phase in enumerate(PHASES)}


def inside(size: int, calls: int) -> None:
    """What valgrind looks at: loops that take a call one phase further each, with `getppid` between them."""
    from subluminal.adapters.stdio.framing import read_line
    from subluminal.mcp.calls import Calls
    from subluminal.mcp.exchange import Exchange
    from subluminal.mcp.tools import ToolNotes
    from subluminal.producer.producer import assemble
    from subluminal.producer.turn import Turn

    producer = assemble(os.environ, events="none", policy=str(POLICY))
    calls_of = Calls(producer.gate, "bench", "mcp_stdio", ToolNotes())
    calls_of.tools.learn({"tools": [{"name": "echo"}]})
    exchange = Exchange(calls_of)
    turn = Turn(producer, calls_of, len, len)  # type: ignore[arg-type]  # messages go nowhere
    clock, wall_ms = time.monotonic_ns, time.time_ns() // 1_000_000
    fill = (rb"def f(x): return x + 1  # note\n" * (size // 30 + 1))[: size - 50]
    number = 0

    def call(phases: int) -> None:
        nonlocal number
        number += 1
        arguments = b'{"path":"/src/main.py","n":%d,"text":"%s"}' % (number, fill)
        request = b'{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"echo","arguments":%s}}' % (
            number,
            arguments,
        )
        text = b'[{"type":"text","text":"ok"}]'
        reply = b'{"jsonrpc":"2.0","id":%d,"result":{"content":%s,"structuredContent":%s}}' % (number, text, arguments)
        now = clock()
        if phases > 0:
            exchange.client_message(read_line(request), request, wall_ms, now)
        if phases > 1:
            turn.carry_out(wall_ms, now)
        if phases > 2:
            exchange.server_message(reply, now)
        if phases > 3:
            turn.carry_out(wall_ms, now)

    def forget() -> None:
        exchange._pending.clear()
        calls_of.outputs.clear()

    gc.disable()  # as in the shim
    for _ in range(WARM_UP):
        call(len(PHASES))
    for count in range(len(PHASES) + 1):
        os.getppid()
        for _ in range(calls):
            call(count)
            forget()
    os.getppid()


def shim(size: int, calls: int, directory: str) -> int:
    """A whole shim: run once to make its home, once short and once long."""
    _shim_run(size, 1, directory)
    counts = [_shim_run(size, n, directory) for n in (WARM_UP, WARM_UP + calls)]
    return (counts[1] - counts[0]) // calls


def _shim_run(size: int, calls: int, directory: str) -> int:
    """Events go to a file of their own, so that no ledgerd is started; forked children count for themselves."""
    for old in Path(directory).glob("shim.*"):
        old.unlink()
    command = [str(BUILD / "driver"), "--calls", str(calls), "--size", str(size), "--pipelined", "0"]
    command += ["env", f"LD_PRELOAD={BUILD / 'steady_clock.so'}"]
    command += ["valgrind", "--tool=callgrind", f"--callgrind-out-file={directory}/shim.%p"]
    command += [sys.executable, "-m", "subluminal", "shim", "--events", f"file:{directory}/events"]
    command += ["--server-name", "bench", "--policy", str(POLICY), "--", str(BUILD / "echo")]
    environment = {**os.environ, "SUB_HOME": directory, "PYTHONHASHSEED": "0"}
    del environment["PYTHONPATH"]  # a shim starts itself anew without it, out of sight
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"bench: the shim failed under valgrind: {done.stderr[-2000:]}")
    return max(total(part) for part in Path(directory).glob("shim.*"))


def trees(before: str | None) -> list[tuple[str, str]]:
    """What stands in a row for each tree, and where its package is."""
    here = ("", str(HERE.parent / "src"))
    return [here] if before is None else [(", before", str(Path(before).resolve())), here]


def cores() -> tuple[str, ...]:
    """Python alone, and with the C part where it can be built."""
    built = subprocess.run([sys.executable, "-m", "subluminal.native.build"], capture_output=True, check=False)
    return ("py",) if built.returncode else ("py", "c")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=200)
    parser.add_argument("--no-shim", action="store_true", help="the phases only")
    parser.add_argument("--before", metavar="SRC", help="an earlier tree, for comparison")
    parser.add_argument("--inside", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.inside is not None:
        inside(arguments.inside, arguments.calls)
        return
    if shutil.which("valgrind") is None:
        print("bench: skipped, valgrind is not installed")
        return
    if not arguments.no_shim:
        build()
        clock = [str(BUILD / "steady_clock.so"), str(HERE / "c" / "steady_clock.c")]
        subprocess.run(["cc", "-O2", "-Wall", "-shared", "-fPIC", "-o", *clock], check=True)
    rows = []
    for size, core, (name, tree) in itertools.product(SIZES, cores(), trees(arguments.before)):
        os.environ.update(SUB_CORE=core, PYTHONPATH=tree)
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory:
            parts = phases(size, arguments.calls, directory)
            # A shim takes no PYTHONPATH: the whole of it is always this tree's.
            whole = "" if arguments.no_shim or name else f"{shim(size, arguments.calls, directory):,}"
        cells = [f"{parts[phase]:,}" for phase in PHASES] + [f"{sum(parts.values()):,}", whole]
        rows.append((f"{size} B, {core}{name}", *cells))
    text = figures.table(("instructions per call", *PHASES, "sum", "shim"), rows)
    print(text)
    figures.save("instructions", text)


if __name__ == "__main__":
    main()
