"""The ledger's figures: ingest rate from journals, bytes per call, and queries on a large ledger.

    python bench/ledger.py ingest [--events 120000] [--producers 4] [--tails N]
    python bench/ledger.py query [--calls 1000000] [--keep DIR]
    python bench/ledger.py growth [--events 10000000] [--keep DIR]

`ingest` starts the producers and a real `sub ledgerd` and measures from the first byte written to the last committed.
The lines are those of a real gate (`recorded.py`): no two have the same arguments, hash or result.
On a busy machine compare `cpu_us_per_event`: the daemon is one thread, so this is its pace with a core of its own.
`query` fills `tool_calls` by SQL (what is read is the same), then times whole commands and the query layer by itself.
`growth` fills a ledger with whole runs of 1,000 calls, chain and rows alike, and times whole commands on it. The
store takes in one run of a real gate; the others are that run under another name, with lines linked anew.
Results are one JSON object on stdout.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import figures

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from harness.ledger import EventMaker, spool_of, start_ledgerd, sub_environment, timestamp

PRODUCER = """
import os, sys
sys.path.insert(0, sys.argv[1])
from recorded import calls
from subluminal.host.record.journal import create_locked, journal_name
spool, shim, count, seed = sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5])
pieces = list(calls("run-" + shim, shim, count, seed))
print("ready", flush=True)
sys.stdin.readline()
journal = create_locked(os.path.join(spool, journal_name(shim)))
for piece in pieces:
    os.write(journal, piece)
print("written", flush=True)
"""


def ingest(events: int, producers: int, tails: int) -> dict[str, Any]:
    home = Path(tempfile.mkdtemp(prefix="sub-bench-")) / "home"
    spool = spool_of(home)
    calls = events // producers // 3
    here = str(Path(__file__).parent)
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", PRODUCER, here, str(spool), f"shim-{i:016x}", str(calls), str(i)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=sub_environment(home),
        )
        for i in range(producers)
    ]
    for writer in writers:
        writer.stdout.readline()  # type: ignore[union-attr]
    daemon = start_ledgerd(home)
    while not (home / "ledgerd.sock").exists():
        time.sleep(0.01)
    watchers = [
        subprocess.Popen(
            [sys.executable, "-m", "subluminal", "tail", "--json"],
            env=sub_environment(home),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for _ in range(tails)
    ]
    if watchers:
        time.sleep(3 + tails / 10)  # until they follow; a tail says nothing before there is something to say
    ready_cpu = cpu_seconds(daemon.pid)
    began = time.perf_counter()
    for writer in writers:
        writer.stdin.write(b"go\n")  # type: ignore[union-attr]
        writer.stdin.flush()  # type: ignore[union-attr]
    total = producers * (calls * 3 + 2)
    reader = sqlite3.connect(f"file:{home}/ledger.db?mode=ro", uri=True)
    while reader.execute("SELECT coalesce(sum(event_count), 0) FROM runs").fetchone()[0] < total:
        time.sleep(0.02)
    seconds = time.perf_counter() - began
    cpu = cpu_seconds(daemon.pid) - ready_cpu
    watching_cpu = sum(cpu_seconds(watcher.pid) for watcher in watchers)
    for watcher in watchers:
        watcher.kill()
        watcher.wait()
    rss = Path(f"/proc/{daemon.pid}/status").read_text().split("VmHWM:")[1].split()[0] if cpu else None
    daemon.terminate()
    daemon.wait()
    for writer in writers:
        writer.communicate()
    size = (home / "ledger.db").stat().st_size
    shutil.rmtree(home.parent)
    return {
        "events": total,
        "producers": producers,
        "events_per_s": round(total / seconds),
        "events_per_cpu_s": round(total / cpu) if cpu else None,
        "cpu_us_per_event": round(cpu / total * 1e6, 1) if cpu else None,
        "tails": tails,
        "cpu_s_of_all_tails": round(watching_cpu, 1),
        "bytes_per_call": round(size / (calls * producers)),
        "peak_rss_kib": int(rss) if rss else None,
        "load_average": os.getloadavg()[0],
    }


def cpu_seconds(pid: int) -> float:
    """User and system time of a process; 0 where there is no /proc."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def fill(home: Path, calls: int) -> None:
    """A ledger of many runs: 40 tools on 8 servers, 3 % refused, 2 % failed."""
    from subluminal.ledger.store.lines import TIE_BITS
    from subluminal.ledger.store.writer import Store

    chance = random.Random(1)
    base = 1_700_000_000_000
    store = Store(str(home / "ledger.db"))
    store.write(lambda: [store.add(line) for line in EventMaker("run-seed", "shim-seed").whole_run(1)])
    tools = [(f"server{i % 8}", f"tool_{i}") for i in range(40)]
    runs = max(1, calls // 500)

    def rows() -> Any:
        for i in range(calls):
            server, tool = tools[chance.randrange(40) if chance.random() < 0.98 else 0]
            refused, failed = chance.random() < 0.03, chance.random() < 0.02
            ms = base + 10_000 + i * 37
            yield (
                (ms << TIE_BITS),
                f"{i % 997:08x}-{i}",
                f"run-{i * runs // calls:06d}",
                server,
                tool,
                f"{chance.getrandbits(256):064x}",
                "BLOCK" if refused else "ALLOW",
                "deny-writes" if refused else None,
                "ERROR" if refused or failed else "OK",
                chance.randrange(1, 500),
                170,
                220,
                0,
                timestamp(ms),
                i,
                "mcp_stdio",
                1,
                "info",
                "DENYLIST_MATCH" if refused else "DEFAULT_ALLOW",
                "Writes are denied." if refused else "No rule matched.",
                timestamp(ms + 3),
            )

    columns = (
        "id, call_id, run_id, server_name, tool_name, args_hash, decision, rule_id, status, latency_ms, bytes_in,"
        " bytes_out, preview_truncated, created_at, seq, transport, producer_no, severity, reason_code, summary,"
        " ended_at"
    )
    connection = store.connection
    connection.execute("PRAGMA synchronous = OFF")
    connection.execute("BEGIN")
    connection.executemany(f"INSERT INTO tool_calls ({columns}) VALUES ({', '.join('?' * 21)})", rows())
    connection.executemany("INSERT OR IGNORE INTO server_tools VALUES (?, ?)", tools)
    connection.execute("COMMIT")
    store.close()


def timed(work: Any, times: int = 7) -> float:
    """The median, in milliseconds."""
    taken = []
    for _ in range(times):
        began = time.perf_counter()
        work()
        taken.append((time.perf_counter() - began) * 1000)
    return round(statistics.median(taken), 1)


def query(calls: int, keep: str | None) -> dict[str, Any]:
    home = Path(keep) if keep else Path(tempfile.mkdtemp(prefix="sub-bench-")) / "home"
    home.mkdir(parents=True, exist_ok=True)
    if not (home / "ledger.db").exists():
        fill(home, calls)
    from subluminal.contracts.filters import Filters
    from subluminal.ledger.read.ledger import open_ledger

    asked = {
        "blocked": Filters(decision=["BLOCK"]),
        "tool": Filters(tool_name=["tool_7"]),
        "tool glob": Filters(tool_name=["tool_1*"]),
        "blocked of a tool": Filters(tool_name=["tool_7"], decision=["BLOCK"]),
        "failed and allowed": Filters(status=["ERROR"], decision=["ALLOW"]),
        "run": Filters(run_id=["run-000100"]),
        "args_hash": Filters(args_hash="0" * 64),
        "rule": Filters(rule_id=["deny-writes"]),
        "time range": Filters(since_ms=1_700_000_100_000, until_ms=1_700_000_200_000),
        "slow": Filters(min_latency_ms=499),
    }
    layer = {}
    with open_ledger(str(home / "ledger.db")) as ledger:
        for name, filters in asked.items():
            layer[name] = timed(lambda filters=filters: ledger.calls(filters, limit=50))
        layer["count blocked"] = timed(lambda: ledger.count(asked["blocked"]), 3)
        layer["group by tool"] = timed(lambda: ledger.group(by=["server_name", "tool_name"]), 3)
        layer["group by decision, status"] = timed(lambda: ledger.group(by=["decision", "status"]), 3)
    environment = sub_environment(home)
    base = [sys.executable, "-m", "subluminal", "query", "--json"]
    commands = {}
    for name, arguments in {"blocked": ["--decision", "BLOCK"], "tool": ["--tool", "tool_7"]}.items():
        done = subprocess.run([*base, *arguments], env=environment, capture_output=True)
        if done.returncode == 0:
            commands[name] = timed(
                lambda arguments=arguments: subprocess.run([*base, *arguments], env=environment, capture_output=True), 9
            )
    size = (home / "ledger.db").stat().st_size
    if not keep:
        shutil.rmtree(home.parent)
    return {"calls": calls, "database_mib": size >> 20, "layer_ms": layer, "command_ms": commands}


GROWTH_CALLS = 1_000


def grow(home: Path, events: int) -> int:
    """As many events as that, taken in by a store; the number of runs."""
    from recorded import calls

    from subluminal.ledger.store.writer import Store

    named = b"run-000000"
    lines = b"".join(calls(named.decode(), "shim-000000", GROWTH_CALLS, 1)).split(b"\n")[:-1]
    runs = max(1, events // len(lines))
    store = Store(str(home / "ledger.db"))
    store.connection.execute("PRAGMA synchronous = OFF")
    # Each run on another day: the same moments, a year of which comes round after 360 runs.
    for number in range(runs):
        day = b"2023-%02d-%02dT" % (number // 28 % 12 + 1, number % 28 + 1)
        text = b"\n".join(lines).replace(b"2023-11-14T", day)
        text = text.replace(named, b"run-%06d" % number).replace(b"shim-000000", b"shim-%06d" % number)
        store.write(lambda text=text: [store.add(line) for line in text.split(b"\n")])
    store.close()
    return runs


def growth(events: int, keep: str | None) -> dict[str, Any]:
    home = Path(keep) if keep else Path(tempfile.mkdtemp(prefix="sub-bench-", dir="/var/tmp")) / "home"
    home.mkdir(parents=True, exist_ok=True)
    filling = time.process_time()
    if not (home / "ledger.db").exists():
        grow(home, events)
    filling = time.process_time() - filling
    with sqlite3.connect(f"file:{home}/ledger.db?mode=ro", uri=True) as database:
        stored, runs = database.execute("SELECT sum(event_count), count(*) FROM runs").fetchone()
    environment = sub_environment(home)

    def command(*arguments: str) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [sys.executable, "-m", "subluminal", *arguments], env=environment, capture_output=True, check=True
        )

    asked = {
        "sub query --decision BLOCK": ("query", "--decision", "BLOCK", "--json"),
        "sub query --tool read_file": ("query", "--tool", "read_file", "--json"),
        "sub query --run R": ("query", "--run", f"run-{runs // 2:06d}", "--json"),
        "sub query --status ERROR": ("query", "--status", "ERROR", "--json"),
        "sub runs": ("runs", "--json"),
        "sub query --group-by tool,decision": ("query", "--group-by", "tool,decision", "--json"),
    }
    commands = {name: timed(lambda arguments=arguments: command(*arguments), 5) for name, arguments in asked.items()}
    began = time.perf_counter()
    told = json.loads(command("verify", "--all", "--json").stdout.splitlines()[-1])
    seconds = time.perf_counter() - began
    size = (home / "ledger.db").stat().st_size
    if not keep:
        shutil.rmtree(home.parent)
    return {
        "events": stored,
        "runs": runs,
        "database_mib": size >> 20,
        "filled, events per CPU s": round(stored / filling) if filling > 1 else None,
        "command_ms": commands,
        "sub verify --all, s": round(seconds, 1),
        "verify_pace": told["pace"],
        "load_average": os.getloadavg()[0],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["ingest", "query", "growth"])
    parser.add_argument("--events", type=int, help="120,000 for ingest, 10 million for growth")
    parser.add_argument("--producers", type=int, default=4)
    parser.add_argument("--tails", type=int, default=0, help="follow with this many `sub tail` meanwhile")
    parser.add_argument("--calls", type=int, default=1_000_000)
    parser.add_argument("--keep", help="keep the ledger in this directory, or use the one that is there")
    options = parser.parse_args()
    if options.what == "ingest":
        result = ingest(options.events or 120_000, options.producers, options.tails)
    elif options.what == "growth":
        result = growth(options.events or 10_000_000, options.keep)
    else:
        result = query(options.calls, options.keep)
    print(json.dumps(result, indent=2))
    figures.save(f"ledger_{options.what}", figures.table(("what", "figure"), figures.flat(result)))


if __name__ == "__main__":
    main()
