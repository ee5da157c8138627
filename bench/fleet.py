"""The fleet's figures: how fast collectors take in what machines ship, that nothing is lost when they die, and queries.

    python bench/fleet.py ingest [--store chdb|postgres] [--machines 64] [--events 500000] [--collectors 1] [--kills N]
                                 [--deaths N] [--store-kills N] [--strays N] [--prebuilt] [--record]
    python bench/fleet.py queries [--store chdb|postgres] [--calls 10000000] [--record]

`ingest`: every machine is a process with a home and a ledger of its own, and runs the real shipper; the time is from
the first segment sent to the last acknowledged, on the same cores as the collector and the store. `--prebuilt`:
machines send segments that were made before, so that the collector has more of the cores. `--kills`: collectors killed
at random; `--deaths`: after a commit and before its ack; `--store-kills`: the store killed and started again
(Postgres); `--strays`: segments that are sent besides, of any machine and in any order, before or after their turn.
Afterwards each event must be there once, each call once, and every chain must verify. How far it is, on stderr.
`queries` fills `calls` by SQL, merges it and times what `sub query --fleet` asks.
Results are one JSON object on stdout. `--record`: also a table for docs/PERFORMANCE.md (tools/paste_figures.py).
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import figures
from recorded import calls

from harness.collector import CollectorProcess
from harness.ledger import sub_environment
from harness.stores import PostgresServer, postgres
from subluminal.contracts.filters import Filters
from subluminal.fleet.chains import verify_chain
from subluminal.fleet.segments import Segment, encode
from subluminal.fleet.shipping.backlog import part, read_piece
from subluminal.fleet.shipping.sending import Address, Collector, Later
from subluminal.fleet.stores.base import Store, open_store
from subluminal.fleet.stores.reading import Reader
from subluminal.ledger.store.schema import open_reader
from subluminal.ledger.store.writer import Store as Ledger

TENANT = "acme"
# Runs of a real gate that are recorded; the machines have them under names of their own.
KINDS = 8
MACHINE = """
import sys, time
from subluminal.fleet.shipping import backlog, task
from subluminal.fleet.shipping.sending import Address, Collector, Later
from subluminal.fleet.shipping.task import ShipTask
home, urls, token_file, prebuilt, pause_s = sys.argv[1], sys.argv[2].split(","), *sys.argv[3:5], float(sys.argv[5])
if pause_s:
    backlog.PIECE_BYTES, task.STEP_S = 200_000, 0.0
tasks = [ShipTask(Address(url, token_file=token_file), home) for url in urls]
bodies = []
if prebuilt:
    data = open(prebuilt, "rb").read()
    while data:
        size = int.from_bytes(data[:4], "big")
        bodies.append(data[4:4 + size])
        data = data[4 + size:]
print("ready", flush=True)
sys.stdin.readline()
waited = []
if prebuilt:
    collector = Collector(Address(urls[0], token_file=token_file))
    for body in bodies:
        while True:
            began = time.monotonic()
            try:
                collector.post(body)
                break
            except Later as later:
                time.sleep(max(0.5, later.seconds))
        waited.append(time.monotonic() - began)
else:
    at = 0
    while True:
        shipper = tasks[at % len(tasks)]
        wait = shipper.step()
        if shipper.last_wait is None:
            if wait:
                break
            time.sleep(pause_s)
        else:
            at += 1
            time.sleep(min(wait, 3.0))
print("done", *[round(one, 4) for one in waited], flush=True)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("ingest", "queries"))
    parser.add_argument("--store", choices=("chdb", "postgres"), default="chdb")
    parser.add_argument("--machines", type=int, default=64)
    parser.add_argument("--events", type=int, default=500_000)
    parser.add_argument("--collectors", type=int, default=1)
    parser.add_argument("--kills", type=int, default=0)
    parser.add_argument("--deaths", type=int, default=0)
    parser.add_argument("--store-kills", type=int, default=0)
    parser.add_argument("--strays", type=int, default=0)
    parser.add_argument("--prebuilt", action="store_true")
    parser.add_argument("--calls", type=int, default=10_000_000)
    parser.add_argument("--record", action="store_true")
    asked = parser.parse_args()
    if asked.store == "chdb" and (asked.collectors > 1 or asked.store_kills):
        parser.error("chDB lives in the process of one collector")
    with tempfile.TemporaryDirectory(prefix="sub-fleet-") as directory, ExitStack() as opened:
        server = opened.enter_context(postgres()) if asked.store == "postgres" else None
        dsn = f"chdb://{directory}/chdb" if server is None else server.database()
        work = ingest if asked.what == "ingest" else queries
        report = work(Path(directory), dsn, server, asked)
    print(json.dumps(report, indent=1))
    if asked.record:
        load = f"Load average at the end: {os.getloadavg()[0]:.1f}."
        told = figures.table(("what", "figure"), figures.flat(report))
        figures.save(f"fleet_{asked.what}_{asked.store}", f"{told}\n\n{load}")


# -- ingest -----------------------------------------------------------------------------------------------------------


def ingest(directory: Path, dsn: str, server: PostgresServer | None, asked: argparse.Namespace) -> dict[str, Any]:
    fleet = [CollectorProcess(directory / f"collector-{n}", dsn) for n in range(asked.collectors)]
    for one in fleet[1:]:
        one.tokens = fleet[0].tokens
    homes, events = _homes(directory, fleet[0], asked)
    _say(f"{len(homes)} machines have recorded {events:,} events")
    for one in fleet:
        one.start()
    # In small pieces and with pauses, so that there is something left to be sent until the last kill.
    pause_s = (asked.kills + asked.deaths + asked.store_kills) * 0.5
    machines = [_machine(home, fleet, place, asked.prebuilt, pause_s) for place, home in enumerate(homes)]
    for machine in machines:
        assert machine.stdout is not None and machine.stdout.readline() == b"ready\n"
    before_cpu = sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])
    began = time.monotonic()
    for machine in machines:
        assert machine.stdin is not None
        machine.stdin.write(b"\n")
        machine.stdin.flush()
    strays = Strays(homes, fleet, machines, asked.strays)
    strays.start()
    done = _trouble(fleet, server, machines, asked)
    waited = [float(word) for machine in machines for word in machine.communicate()[0].split()[1:]]
    seconds = time.monotonic() - began
    strays.join()
    commits = fleet[0].metric("subluminal_collector_commit_seconds_count")
    collector_cpu = sum(_cpu_s(one.process.pid) for one in fleet if one.process is not None)
    machine_cpu = sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])
    for one in fleet:
        one.kill(signal.SIGTERM)
    report: dict[str, Any] = {
        "store": asked.store,
        "machines": asked.machines,
        "collectors": asked.collectors,
        "events": events,
        "seconds": round(seconds, 2),
        "events_per_s": round(events / seconds),
        "cpu_us_per_event": {
            "collector and store in it": round(collector_cpu / events * 1e6, 1),
            "machines, their start included": round((machine_cpu - before_cpu) / events * 1e6, 1),
        },
        "commits of the first collector": commits,
        "kills of collectors": done["kill"],
        "deaths between commit and ack": done["death"],
        "kills of the store": done["store"],
        "segments sent besides": strays.sent,
    }
    if waited:
        waited.sort()
        report["ack"] = {"p50_s": waited[len(waited) // 2], "p99_s": waited[int(len(waited) * 0.99)]}
    _say(f"all was acknowledged after {seconds:.0f} s; looking at what the store has")
    return {**report, **_checked(dsn, events)}


class Strays(threading.Thread):
    """Segments of any machine, once more or before their turn, as long as the machines send. Cut anew, so that none is
    the same as one of a shipper."""

    def __init__(self, homes: list[Path], fleet: list[CollectorProcess], machines: list[Any], count: int) -> None:
        super().__init__()
        self._homes, self._fleet, self._machines, self._left = homes, fleet, machines, count
        self.sent = 0

    def run(self) -> None:
        chance = random.Random(2)
        while self._left and any(machine.poll() is None for machine in self._machines):
            home, one = chance.choice(self._homes), chance.choice(self._fleet)
            collector = Collector(Address(one.url, token_file=str(home / "token")))
            try:
                collector.post(encode(_cut(chance, home)))
                self.sent += 1
                self._left -= 1
            except Later:
                time.sleep(0.2)
            finally:
                collector.close()


def _cut(chance: random.Random, home: Path) -> Segment:
    reader = open_reader(str(home / "ledger.db"))
    try:
        pieces, after = [], 0
        while (piece := read_piece(reader, after)) is not None:
            pieces += piece.segments
            after = piece.place
    finally:
        reader.close()
    segment = chance.choice(pieces)
    first = chance.randrange(len(segment.lines))
    return part(segment, first, chance.randrange(first + 1, len(segment.lines) + 1))


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _homes(directory: Path, first: CollectorProcess, asked: argparse.Namespace) -> tuple[list[Path], int]:
    each = asked.events // asked.machines
    kinds = [list(calls("run-of-a-kind", "shim-of-a-kind", max(1, (each - 2) // 3), seed)) for seed in range(KINDS)]
    texts = [b"".join(pieces) for pieces in kinds]
    homes, events = [], 0
    for number in range(asked.machines):
        home = directory / f"machine-{number}"
        home.mkdir(mode=0o700)
        (home / "token").write_text(first.token(TENANT, f"machine-{number}"))
        text = texts[number % KINDS].replace(b"run-of-a-kind", b"run-%016x" % number)
        lines = text.replace(b"shim-of-a-kind", b"shim-%016x" % number).split(b"\n")[:-1]
        ledger = Ledger(str(home / "ledger.db"))
        with ledger.batch():
            for line in lines:
                ledger.add(line)
        ledger.close()
        events += len(lines)
        homes.append(home)
        if asked.prebuilt:
            _prebuild(home)
    return homes, events


def _prebuild(home: Path) -> None:
    reader, after = open_reader(str(home / "ledger.db")), 0
    with open(home / "bodies", "wb") as file:
        while (piece := read_piece(reader, after)) is not None:
            for body in map(encode, piece.segments):
                file.write(len(body).to_bytes(4, "big") + body)
            after = piece.place
    reader.close()


def _machine(
    home: Path, fleet: list[CollectorProcess], place: int, prebuilt: bool, pause_s: float
) -> subprocess.Popen[bytes]:
    urls = ",".join(one.url for one in (*fleet[place % len(fleet) :], *fleet[: place % len(fleet)]))
    bodies = str(home / "bodies") if prebuilt else ""
    command = [sys.executable, "-c", MACHINE, str(home), urls, str(home / "token"), bodies, str(pause_s)]
    return subprocess.Popen(command, env=sub_environment(home), stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def _trouble(
    fleet: list[CollectorProcess], server: PostgresServer | None, machines: list[Any], asked: argparse.Namespace
) -> Counter[str]:
    """Kills, one at a time and at random moments, as long as machines have something to send; how many there were."""
    done: Counter[str] = Counter()
    chance = random.Random(1)
    left = ["kill"] * asked.kills + ["death"] * asked.deaths + ["store"] * asked.store_kills
    chance.shuffle(left)
    while left and any(machine.poll() is None for machine in machines):
        time.sleep(chance.uniform(0.2, 1.0))
        one, what = chance.choice(fleet), left.pop()
        done[what] += 1
        ended = sum(machine.poll() is not None for machine in machines)
        _say(f"{what} {sum(done.values())}, {len(left)} to come; {ended} of {len(machines)} machines are done")
        if what == "store" and server is not None:
            server.kill()
            server.start()
        elif what == "death":
            one.kill()
            one.start(dies_at_commit=1)
            assert one.process is not None
            while one.process.poll() is None and any(machine.poll() is None for machine in machines):
                time.sleep(0.01)
            one.kill()
            one.start()
        else:
            one.kill()
            one.start()
    if left:
        _say(f"the machines were done before {len(left)} of the kills")
    return done


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _checked(dsn: str, events: int) -> dict[str, Any]:
    store = open_store(dsn)
    try:
        return _counted(store, events)
    finally:
        store.close()


def _counted(store: Store, events: int) -> dict[str, Any]:
    reader, dialect = Reader(store, TENANT), store.dialect
    known = store.select(f"SELECT count(*) FROM {dialect.events}", {})[0][0]
    raw = store.select("SELECT count(*) FROM events", {})[0][0]
    decisions = f"SELECT count(*) FROM {dialect.events} WHERE type = 'tool_call_decision'"
    assert known == events, (known, events)
    assert store.select(decisions, {})[0][0] == reader.count(Filters()) == reader.count(Filters(status=["OK"]))
    faults = checked = 0
    for (run_id,) in store.select(f"SELECT run_id FROM {dialect.runs}", {}):
        spans, heads = reader.spans(run_id), reader.heads(run_id)
        machine = spans[0][0]
        lines = lambda shim_id, first, last, run_id=run_id: reader.lines(run_id, shim_id, first, last)  # noqa: E731
        chain = [span[1:] for span in spans], [head[1:] for head in heads]
        report = verify_chain(run_id, machine, *chain, lines, reader.owners(run_id))
        faults += len(report.faults)
        checked += report.events
    assert not faults and checked == events, (faults, checked)
    return {"events under the view": known, "rows before they merge": raw, "chains that verify": "all", "lost": 0}


# -- queries ----------------------------------------------------------------------------------------------------------

_SERVERS, _TOOLS, _AGENTS, _RUN = 12, 40, 200, 1000
# Every call has the client's id; one run in so many was seen by a hook too, so that two of its rows are one call.
_SEVERAL = 50
_FILL = {
    "chdb": """INSERT INTO calls WITH intDiv(number, {run}) AS run, run % {several} = 0 AS twice,
 if(twice, intDiv(number, 2), number) AS once SELECT '{tenant}', 'run-' || toString(run), 'shim-' || toString(run),
 'call-' || toString(number), toDate('2026-01-01') + intDiv(number, {day}),
 1767225600000 + number * intDiv(86400000, {day}), 'agent-' || toString(run % {agents}), 'claude',
 'dev', 'ann', 'server-' || toString(cityHash64(once) % {servers}),
 'tool-' || toString(cityHash64(once, 1) % {tools}),
 hex(SHA256(toString(once))), number * 3 + 2, if(once % 50 = 0, 'BLOCK', 'ALLOW'), NULL,
 if(once % 50 = 0, 'deny-writes', NULL), if(once % 50 = 0, 'DENYLIST_MATCH', 'DEFAULT_ALLOW'), 'info',
 number * 3 + 3, if(once % 31 = 0 OR once % 50 = 0, 'ERROR', 'OK'), if(once % 31 = 0, 'upstream_error', NULL),
 cityHash64(number, 2) % 400, number * 3 + 4, if(twice AND number % 2 = 1, 'hook', 'mcp_stdio'),
 'use-' || toString(once), number * 3 + 2 FROM numbers({first}, {count})""",
    "postgres": """INSERT INTO calls SELECT '{tenant}', 'run-' || run, 'shim-' || run,
 'call-' || number, date '2026-01-01' + (number / {day})::int, 1767225600000 + number * (86400000 / {day}),
 'agent-' || run % {agents}, 'claude', 'dev', 'ann', 'server-' || (hashint8(once) & 7),
 'tool-' || (hashint8(once + 1) & 31), md5(once::text) || md5(once::text), number * 3 + 2,
 case when once % 50 = 0 then 'BLOCK' else 'ALLOW' end, NULL, case when once % 50 = 0 then 'deny-writes' end,
 case when once % 50 = 0 then 'DENYLIST_MATCH' else 'DEFAULT_ALLOW' end, 'info', number * 3 + 3,
 case when once % 31 = 0 or once % 50 = 0 then 'ERROR' else 'OK' end,
 case when once % 31 = 0 then 'upstream_error' end, hashint8(number + 2) & 511, number * 3 + 4,
 case when twice and number % 2 = 1 then 'hook' else 'mcp_stdio' end, 'use-' || once, number * 3 + 2
 FROM generate_series({first}::bigint, {first} + {count} - 1) AS number,
 LATERAL (SELECT number / {run} AS run, number / {run} % {several} = 0 AS twice) AS a,
 LATERAL (SELECT case when twice then number / 2 else number end AS once) AS b""",
}
_FILL_RUNS = (
    "INSERT INTO runs SELECT tenant, run_id, max(agent_id), 'claude', 'dev', 'ann', min(created_ms), max(created_ms),"
    " min(transport), max(transport), max(day) FROM calls GROUP BY tenant, run_id"
)
_PIECE = 1_000_000


def queries(directory: Path, dsn: str, server: PostgresServer | None, asked: argparse.Namespace) -> dict[str, Any]:
    store = open_store(dsn)
    store.migrate(0)
    began = time.monotonic()
    days = 30
    for first in range(0, asked.calls, _PIECE):
        values = {"tenant": TENANT, "run": _RUN, "servers": _SERVERS, "tools": _TOOLS, "agents": _AGENTS}
        values["several"] = _SEVERAL
        count = min(_PIECE, asked.calls - first)
        sql = _FILL[asked.store].format(**values, day=max(1, asked.calls // days), first=first, count=count)
        _execute(store, sql)
        _say(f"{first + count:,} calls after {time.monotonic() - began:.0f} s")
    _execute(store, _FILL_RUNS)
    for statement in ("OPTIMIZE TABLE calls FINAL",) if asked.store == "chdb" else ("ANALYZE calls", "ANALYZE runs"):
        _execute(store, statement)
    report: dict[str, Any] = {
        "store": asked.store,
        "calls": asked.calls,
        "filled_s": round(time.monotonic() - began, 1),
    }
    reader = Reader(store, TENANT)
    last_day = 1767225600000 + (days - 1) * 86_400_000
    questions = {
        "--count": lambda: reader.count(Filters()),
        "--group-by server,tool,decision": lambda: reader.group(Filters(), by=["server_name", "tool_name", "decision"]),
        "--group-by hour": lambda: reader.group(Filters(), by=["hour"], limit=100_000),
        "--status ERROR --group-by agent": lambda: reader.group(Filters(status=["ERROR"]), by=["agent_id"]),
        "--decision BLOCK --count": lambda: reader.count(Filters(decision=["BLOCK"])),
        "--since (one day) --group-by tool": lambda: reader.group(Filters(since_ms=last_day), by=["tool_name"]),
        "--tool 'tool-1*' --decision BLOCK (newest 50)": lambda: reader._keys(
            Filters(tool_name=["tool-1*"], decision=["BLOCK"]), 50, None
        ),
        "newest 50": lambda: reader._keys(Filters(), 50, None),
        "--run RUN (newest 50)": lambda: reader._keys(Filters(run_id=["run-1"]), 50, None),
    }
    report["seconds, median of 3"] = {name: _timed(name, question) for name, question in questions.items()}
    store.close()
    shutil.rmtree(directory, ignore_errors=True)
    return report


def _execute(store: Any, sql: str) -> None:
    if hasattr(store, "_clients"):
        store._do("write", lambda client: client.command(sql))
    else:
        store._do("write", lambda connection: connection.execute(sql))


def _timed(name: str, question: Any) -> float:
    times = []
    for _ in range(3):
        began = time.monotonic()
        assert question()
        times.append(time.monotonic() - began)
    _say(f"{name}: {statistics.median(times):.3f} s")
    return round(statistics.median(times), 3)


if __name__ == "__main__":
    main()
