"""The shim on a machine that has joined a fleet: what a call takes while the collector lives, is dead or is silent.

    python bench/joined.py [--rounds 5] [--calls 5000]

Four homes, measured in turn so that a noisy minute hits all alike: one that has joined nothing, and three that have
joined one fleet with a collector each: one that takes what is shipped (on chDB), one whose port refuses connections,
and one that accepts them and never answers. Ledgerd and the keeper run meanwhile, and the keeper must be shipping or
waiting as its collector has it before anything is measured. Needs a C compiler and requirements/fleet.txt.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import statistics
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import figures
from shim import BUILD, build, measure, stop_ledgerd, subjects

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from harness.collector import CollectorProcess
from harness.fleet import Fleet
from harness.ports import nobody_listens
from harness.waiting import wait_for
from subluminal.fleet.keeper.state import read_state

ALONE, LIVING, REFUSING, SILENT = "not joined", "collector alive", "collector dead", "collector silent"
WARM_UP = 200


@contextmanager
def silent_collector() -> Iterator[str]:
    """Accepts every connection, reads what comes, and says nothing."""
    listener = socket.create_server(("127.0.0.1", 0))
    held: list[socket.socket] = []

    def accept() -> None:
        while True:
            try:
                held.append(listener.accept()[0])
            except OSError:
                return

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        assert held, "nobody has tried to ship"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        for connection in held:
            connection.close()


def homes(directory: Path, fleet: Fleet, living: CollectorProcess, dead: int, silent: str) -> dict[str, Path]:
    """None of the fleet's policies: all four judge by the same one."""
    urls = {LIVING: living.url, REFUSING: f"http://127.0.0.1:{dead}", SILENT: silent}
    found = {name: directory / name.replace(" ", "-") for name in (ALONE, *urls)}
    for name, home in found.items():
        home.mkdir(mode=0o700)
        if name != ALONE:
            token = home / "token"
            token.write_text(living.token("acme", home.name))
            fleet.join(home.name, collector=urls[name], token_file=str(token))
    return found


def keeper_ships(name: str, home: Path, since_pid: int) -> bool:
    """A keeper of ours runs, and its shipper is where its collector lets it be."""
    state = read_state(str(home))
    if state.pid in (0, since_pid):
        return False
    ship = state.tasks.get("ship")
    if name == SILENT:  # its first step does not come back
        return "stop" in state.tasks
    told = None if ship is None else ship.facts.get("last_wait")
    return ship is not None and ship.last_good_ms >= state.started_ms and (told is None) == (name == LIVING)


def measured(name: str, home: Path, calls: int) -> dict[str, Any]:
    """With ledgerd and its keeper at work: both are started by the calls before."""
    command = subjects(str(home), [str(BUILD / "echo")])["shim"]
    before = read_state(str(home)).pid
    measure(command, str(home), False, "c", calls=WARM_UP, size=100, pipelined=0)
    if name != ALONE:
        wait_for(lambda: keeper_ships(name, home, before), what=f"the keeper of {name}")
    found = measure(command, str(home), False, "c", calls=calls, size=100, pipelined=0)
    stop_ledgerd(str(home))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--calls", type=int, default=5000)
    asked = parser.parse_args()
    build()
    raw: dict[str, list[dict[str, Any]]] = {}
    with tempfile.TemporaryDirectory(prefix="sub-joined-", ignore_cleanup_errors=True) as place:
        directory = Path(place)
        living = CollectorProcess(directory / "collector", f"chdb://{directory}/chdb")
        living.start()
        try:
            with Fleet(directory) as fleet, nobody_listens() as dead, silent_collector() as silent:
                found = homes(directory, fleet, living, dead, silent)
                names = list(found)
                for number in range(asked.rounds):
                    for name in names[number % len(names) :] + names[: number % len(names)]:
                        raw.setdefault(name, []).append(measured(name, found[name], asked.calls))
                        print(f"round {number + 1}, {name}: p99 {raw[name][-1]['p99_us']} us", file=sys.stderr)
                assert living.metric("subluminal_collector_events_total") > asked.calls
        finally:
            living.kill(signal.SIGTERM)
    rows = [
        (name, *(_cell(raw, name, key) for key in ("p50_us", "p99_us"))) for name in (ALONE, LIVING, REFUSING, SILENT)
    ]
    text = figures.table(("machine", "p50 us", "p99 us"), rows)
    load = f"Medians of {asked.rounds} rounds (lowest to highest). Load average at the end: {os.getloadavg()[0]:.1f}."
    print(text, load, sep="\n\n")
    figures.save("joined", f"{text}\n\n{load}")


def _cell(raw: dict[str, list[dict[str, Any]]], name: str, key: str) -> str:
    values = [float(found[key]) for found in raw[name]]
    of_alone = statistics.median(values) / statistics.median(float(found[key]) for found in raw[ALONE])
    return f"{statistics.median(values):,.1f} ({min(values):,.1f} to {max(values):,.1f}), {of_alone:.2f}x"


if __name__ == "__main__":
    main()
