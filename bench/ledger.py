"""The ledger's figures: ingest rate from journals, bytes per call, and queries on a large ledger.

    python bench/ledger.py ingest [--events 120000] [--producers 4] [--tails N]
    python bench/ledger.py query [--calls 1000000] [--keep DIR]
    python bench/ledger.py growth [--events 10000000] [--keep DIR]

`ingest` starts the producers and a real `sub ledgerd` and measures from the first byte written to the last committed.
The lines are those of a real gate (`recorded.py`): no two have the same arguments, hash or result.
On a busy machine compare `cpu_us_per_event`: the daemon is one thread, so this is its pace with a core of its own.
`query` fills `tool_calls` by SQL (what is read is the same), then times whole commands and the query layer by itself.
`growth` has a daemon take in whole runs of 1,000 calls, watches its pace and its memory, and times whole commands on a
tenth of the ledger and on all of it. The runs are one of a real gate with other names, times and hashes.
Results are one JSON object on stdout.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import resource
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import Any

import figures

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from harness.ledger import BASE_MS, EventMaker, spool_of, start_ledgerd, sub_environment, timestamp

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
    rss = memory_kib(daemon.pid, "VmHWM") if cpu else None
    daemon.terminate()
    daemon.wait()
    for writer in writers:
        writer.communicate()
    # Not the size of the file: while we read, the daemon leaves some of it in the WAL.
    size = reader.execute("SELECT page_count * page_size FROM pragma_page_count, pragma_page_size").fetchone()[0]
    reader.close()
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
        "peak_rss_kib": rss,
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
# Events after which the daemon's memory and time are looked at, and journals that may wait for it.
_STEP, _WAITING = 1_000_000, 8
_HASH = re.compile(rb'(?<="args_hash":")[0-9a-f]{64}')
# What a filtered query may take, as a whole command; the others read everything that there is.
_QUERY_BOUND_MS = 100


class Runs:
    """Whole runs as a real gate writes them, of GROWTH_CALLS calls: one of them under other names, an hour later each,
    with hashes of its own. So they come in the order of time and all over the index of hashes, as in life."""

    def __init__(self) -> None:
        from recorded import calls

        self._names = self.names(0)
        run_id, shim_id = map(bytes.decode, self._names)
        text = b"".join(calls(run_id, shim_id, GROWTH_CALLS, 1, trouble=0.02))
        self.events = text.count(b"\n")
        self._pieces = _HASH.split(text)
        self._hour = timestamp(BASE_MS)[: len("2023-11-14T22:")]

    @staticmethod
    def names(number: int) -> tuple[bytes, bytes]:
        """(run_id, shim_id), as long as real ones."""
        return b"r%028x" % (number + 1), b"s%028x" % (number + 1)

    @staticmethod
    def args_hash(number: int, call: int) -> str:
        return sha256(b"%d %d" % (number, call)).hexdigest()

    def journal(self, number: int) -> bytes:
        hashes = [self.args_hash(number, call).encode() for call in range(GROWTH_CALLS)]
        # Each of the three events of a call has it.
        text = b"".join([piece + hashes[i // 3] for i, piece in enumerate(self._pieces[:-1])]) + self._pieces[-1]
        for old, new in zip(self._names, self.names(number), strict=True):
            text = text.replace(old, new)
        hour = timestamp(BASE_MS + number * 3_600_000)[: len(self._hour)]
        return text.replace(self._hour.encode(), hour.encode())


def grow(home: Path, runs: Runs, first: int, end: int) -> list[dict[str, Any]]:
    """The runs from `first` on, in journals that a daemon takes in; what it took and what memory it had, by and by."""
    from subluminal.host.record.journal import journal_name

    spool = spool_of(home)
    daemon = start_ledgerd(home)
    steps: list[dict[str, Any]] = []
    counted, cpu = first, 0.0
    for number in range(first, end):
        while sum(name.endswith(".jsonl") for name in os.listdir(spool)) >= _WAITING:
            time.sleep(0.005)
        hidden = spool / "next"
        hidden.write_bytes(runs.journal(number))
        hidden.rename(spool / journal_name(runs.names(number)[1].decode()))
        events = (number + 1 - counted) * runs.events
        if events >= _STEP or number == end - 1:
            while number == end - 1 and any(name.endswith(".jsonl") for name in os.listdir(spool)):
                time.sleep(0.01)
            used = cpu_seconds(daemon.pid)
            steps.append(
                {
                    "events": (number + 1) * runs.events,
                    "events_per_cpu_s": round(events / (used - cpu)),
                    "rss_kib": memory_kib(daemon.pid, "VmRSS"),
                    "peak_rss_kib": memory_kib(daemon.pid, "VmHWM"),
                }
            )
            print(steps[-1], file=sys.stderr, flush=True)
            counted, cpu = number + 1, used
    daemon.terminate()
    daemon.wait()
    return steps


def memory_kib(pid: int, name: str) -> int:
    return int(Path(f"/proc/{pid}/status").read_text().split(name + ":")[1].split()[0])


# What `sub runs` shows unasked: `--json` alone has the recovery of each run as well.
USUAL = "run,agent,client,status,started,duration,calls,blocked,errors"


def asked_of(runs: int) -> dict[str, tuple[str, ...]]:
    """Commands by what is asked, with something to find half-way back."""
    middle = runs // 2
    run_id = Runs.names(middle)[0].decode()
    at = timestamp(BASE_MS + middle * 3_600_000)
    return {
        "sub query": ("query",),
        "--decision BLOCK": ("query", "--decision", "BLOCK"),
        "--status ERROR": ("query", "--status", "ERROR"),
        "--status ERROR --tool get_page": ("query", "--status", "ERROR", "--tool", "get_page"),
        "--tool get_page": ("query", "--tool", "get_page"),
        "--tool 'get_*'": ("query", "--tool", "get_*"),
        "--server tools": ("query", "--server", "tools"),
        "--run RUN": ("query", "--run", run_id),
        "--rule no-rm": ("query", "--rule", "no-rm"),
        "--args-hash HASH": ("query", "--args-hash", Runs.args_hash(middle, 500)),
        "--until THEN": ("query", "--until", at),
        "--until THEN --decision BLOCK": ("query", "--until", at, "--decision", "BLOCK"),
        "--min-latency 39": ("query", "--min-latency", "39"),
        "--agent repo-fixer": ("query", "--agent", "repo-fixer"),
        "sub runs": ("runs", "--columns", USUAL),
        "sub runs --until THEN": ("runs", "--until", at, "--columns", USUAL),
    }


# These look at all that there is: no bound.
READ_ALL = {
    "--text, of which there is none": ("query", "--text", "nowhere to be found"),
    "--count": ("query", "--count"),
    "--group-by tool,decision": ("query", "--group-by", "tool,decision"),
    "sub runs, with the recovery of fifty": ("runs",),
}


def command_ms(home: Path, arguments: tuple[str, ...], times: int) -> float:
    """CPU of the whole command, in milliseconds: the median. On a machine that does nothing else it takes as long."""
    command = [sys.executable, "-m", "subluminal", *arguments, "--json"]
    environment = sub_environment(home)
    taken = []
    for _ in range(times):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, env=environment, capture_output=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        taken.append((after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime) * 1000)
    return round(statistics.median(taken))


def grown(home: Path) -> dict[str, Any]:
    """What commands take on the ledger as it is."""
    with closing(sqlite3.connect(f"file:{home}/ledger.db?mode=ro", uri=True)) as database:
        events, runs, calls = database.execute(
            "SELECT sum(event_count), count(*), sum(calls_total) FROM runs"
        ).fetchone()
    found: dict[str, Any] = {"events": events, "runs": runs, "calls": calls}
    found["MiB"] = (home / "ledger.db").stat().st_size >> 20
    found["CPU ms"] = {name: command_ms(home, arguments, 5) for name, arguments in asked_of(runs).items()}
    found["CPU ms, no bound"] = {name: command_ms(home, arguments, 1) for name, arguments in READ_ALL.items()}
    return found


def verified(home: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "subluminal", "verify", "--all", "--json"]
    began = time.perf_counter()
    done = subprocess.run(command, env=sub_environment(home), capture_output=True, check=True)
    seconds = time.perf_counter() - began
    return {"seconds": round(seconds, 1), **json.loads(done.stdout.splitlines()[-1])["pace"]}


def stored_runs(home: Path) -> int:
    """How many there are in a ledger that was kept."""
    if not (home / "ledger.db").exists():
        return 0
    with closing(sqlite3.connect(f"file:{home}/ledger.db?mode=ro", uri=True)) as database:
        return int(database.execute("SELECT count(*) FROM runs").fetchone()[0])


def growth(events: int, keep: str | None) -> dict[str, Any]:
    """A tenth of the ledger, then all of it."""
    home = Path(keep) if keep else Path(tempfile.mkdtemp(prefix="sub-bench-", dir="/var/tmp")) / "home"
    runs = Runs()
    parts: list[dict[str, Any]] = []
    steps: list[dict[str, Any]] = []
    had = stored_runs(home)
    for part in (events // 10, events):
        end = max(1, part // runs.events)
        if had < end:
            steps += grow(home, runs, had, end)
            had = end
        parts.append(grown(home))
        print(parts[-1], file=sys.stderr, flush=True)
    result = {"ingest": steps, "parts": parts, "verify": verified(home), "load_average": os.getloadavg()[0]}
    if not keep:
        shutil.rmtree(home.parent)
    return result


def growth_tables(result: dict[str, Any]) -> str:
    small, large = result["parts"]
    rows = [(name, f"{small[name]:,}", f"{large[name]:,}", "") for name in ("events", "runs", "calls", "MiB")]
    for kind, bound in (("CPU ms", _QUERY_BOUND_MS), ("CPU ms, no bound", "")):
        rows += [(f"`{name}`, CPU ms", small[kind][name], large[kind][name], bound) for name in small[kind]]
    verify = result["verify"]
    proof = [
        ("chain, events for each second of CPU", f"{verify['chain_events_per_s']:,}", "300,000"),
        ("rows, events for each second of CPU", f"{verify['rows_events_per_s']:,}", "the rate of ingest"),
        ("whole command, with SQLite's integrity check, s", verify["seconds"], ""),
    ]
    taken = [[f"{figure:,}" for figure in step.values()] for step in result["ingest"]]
    return "\n\n".join(
        (
            figures.table(("", "a tenth", "all", "bound"), rows),
            figures.table(("`sub verify --all` on all of it", "", "bound"), proof),
            figures.table(
                ("events in the ledger", "events for each second of the daemon's CPU", "RSS KiB", "peak"), taken
            ),
            f"Load average at the end: {result['load_average']:.1f}.",
        )
    )


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
    table = (
        growth_tables(result) if options.what == "growth" else figures.table(("what", "figure"), figures.flat(result))
    )
    figures.save(f"ledger_{options.what}", table)


if __name__ == "__main__":
    main()
