"""MCP over HTTP through `sub proxy mcp`, beside nginx, an aiohttp relay and the bare server, in one run.

    python bench/mcp_http.py [--rounds N] [--quick] [--memory-calls N] [--streams N] [--only calls,events,idle,memory]
                             [--loop asyncio]

Load and server are C programs with epoll and kept connections (bench/c): 170 B of `tools/call`, one outstanding on each
connection, every answer checked. nginx is a plain reverse proxy with one worker and kept connections to the server; the
relay (bench/aiohttp_relay.py) copies requests and judges nothing; ours has ten rules and the ledger on, once with its
core in Python (`py`) and once with the C part (`c`), on uvloop unless `--loop asyncio` is given. CPU is that of the
proxy's threads (/proc/PID/task/TID/schedstat), the ledger's daemon apart. Needs a C compiler. nginx comes from the
system's package where apt-get can bring it; where not, its column is empty.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from figures import save, table

HERE = Path(__file__).resolve().parent
BUILD = HERE / "build"
POLICY = HERE / "guardrails.yaml"
SUB = Path(sys.executable).with_name("sub")
CORES = ("py", "c")
NAMES = ("direct", "nginx", "relay", *CORES)
ON_ASYNCIO = "import sys; sys.modules['uvloop'] = None; from subluminal.__main__ import main; sys.exit(main())"
EVENT_US = 2000
START_S = 120  # for whatever is waited for: a process, or thousands of streams
SETTLE_S = 1.0  # before memory is read: buffers of the load are let go

NGINX = """
daemon off; worker_processes 1; worker_rlimit_nofile 20000; pid {home}/nginx.pid; error_log {home}/error.log;
events {{ worker_connections 16384; }}
http {{
  access_log off;
  keepalive_requests 1000000000;
  client_body_temp_path {home}/b; proxy_temp_path {home}/p; fastcgi_temp_path {home}/f; uwsgi_temp_path {home}/u;
  scgi_temp_path {home}/s;
  upstream server {{ server 127.0.0.1:{server}; keepalive 256; keepalive_requests 1000000000; }}
  server {{
    listen 127.0.0.1:{port} backlog=4096;
    location / {{
      proxy_pass http://server; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_buffering off;
      proxy_read_timeout 1h;
    }}
  }}
}}
"""


class Subject:
    """A proxy that is running, or the server itself."""

    def __init__(self, name: str, port: int, path: str, process: subprocess.Popen[str]) -> None:
        self.name = name
        self.port = port
        self.path = path
        self.process = process

    @property
    def pids(self) -> list[int]:
        """With those that it has started, such as a worker."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        return [self.process.pid, *map(int, children.split())]

    @property
    def cpu_us(self) -> float:
        return sum(map(cpu_us, self.pids))

    @property
    def rss_kib(self) -> int:
        return sum(map(rss_kib, self.pids))


def cpu_us(pid: int) -> float:
    """Of the threads that live: none of a proxy's ends while it is measured."""
    return sum(int(spent.read_text().split()[0]) for spent in Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1000


def rss_kib(pid: int) -> int:
    return int(Path(f"/proc/{pid}/status").read_text().split("VmRSS:")[1].split()[0])


def build() -> None:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        sys.exit("bench: a C compiler is needed (cc or gcc)")
    BUILD.mkdir(exist_ok=True)
    for name in ("http_server", "http_driver"):
        subprocess.run([compiler, "-O2", "-Wall", "-o", BUILD / name, HERE / "c" / f"{name}.c"], check=True)
    subprocess.run([sys.executable, "-m", "subluminal.native.build"], stdout=subprocess.DEVNULL, check=True)


def find_nginx() -> str | None:
    """Where it is; brought by apt-get if it can be."""
    if found := shutil.which("nginx", path=os.environ["PATH"] + ":/usr/sbin"):
        return found
    if os.geteuid() == 0 and shutil.which("apt-get"):
        for command in (["update"], ["install", "-y", "--no-install-recommends", "nginx-light"]):
            subprocess.run(["apt-get", "-qq", *command], capture_output=True, check=False)
    found = shutil.which("nginx", path=os.environ["PATH"] + ":/usr/sbin")
    if found is None:
        print("bench: nginx is not here and could not be installed: its column stays empty", file=sys.stderr)
    return found


def free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def spawn(command: list[str], **options: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True, **options)


def first_line(process: subprocess.Popen[str], seconds: float = START_S) -> str:
    assert process.stdout is not None
    if not select.select([process.stdout], [], [], seconds)[0]:
        sys.exit(f"bench: {process.args} did not start")
    return process.stdout.readline()


def start_nginx(nginx: str, home: str, server: int) -> Subject:
    port = free_port()
    config = Path(home, "nginx.conf")
    user = "user root;\n" if os.geteuid() == 0 else ""
    config.write_text(user + NGINX.format(home=home, server=server, port=port), encoding="utf-8")
    process = spawn([nginx, "-c", str(config), "-p", home, "-e", f"{home}/error.log"])
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and process.poll() is None:
        if len((subject := Subject("nginx", port, "/mcp", process)).pids) > 1:
            return subject
        time.sleep(0.05)
    sys.exit(f"bench: nginx did not start: {Path(home, 'error.log').read_text()}")


def environment(home: str, core: str) -> dict[str, str]:
    return {**os.environ, "SUB_HOME": f"{home}/{core}", "SUB_CORE": core, "SUB_LEDGER_IDLE_S": "60"}


def start_ours(home: str, core: str, server: int, loop: str) -> Subject:
    command = [sys.executable, "-c", ON_ASYNCIO] if loop == "asyncio" else [str(SUB)]
    command += ["proxy", "mcp", "--server-name", "bench", "--url", f"http://127.0.0.1:{server}/mcp"]
    Path(home, core).mkdir()
    process = spawn([*command, "--policy", str(POLICY), "--json"], env=environment(home, core))
    ready = json.loads(first_line(process))
    return Subject(core, int(ready["listening"].rpartition(":")[2]), "/mcp/bench", process)


@contextmanager
def subjects(home: str, loop: str, *server_flags: str) -> Iterator[list[Subject]]:
    """All of them, each before the same server."""
    server = spawn([str(BUILD / "http_server"), *server_flags])
    found = [Subject("direct", int(first_line(server)), "/mcp", server)]
    port = found[0].port
    try:
        if (nginx := find_nginx()) is not None:
            found.append(start_nginx(nginx, home, port))
        relay = spawn([sys.executable, "-P", str(HERE / "aiohttp_relay.py"), f"http://127.0.0.1:{port}"])
        found.append(Subject("relay", int(first_line(relay)), "/mcp", relay))
        for core in CORES:
            found.append(start_ours(home, core, port, loop))
        yield found
    finally:
        for subject in reversed(found):
            subject.process.terminate()
            subject.process.wait(30)
        for core in CORES:
            stop = [str(SUB), "ledgerd", "--stop"]
            subprocess.run(stop, env=environment(home, core), capture_output=True, check=False)


def ledgerd_of(home: str) -> int | None:
    """The daemon of this home, if it runs: it is nobody's child."""
    wanted = f"SUB_HOME={home}".encode()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
            if b"ledgerd" in words and wanted in (process / "environ").read_bytes().split(b"\0"):
                return int(process.name)
        except OSError:
            continue  # it has ended
    return None


# -- what is measured -------------------------------------------------------------------------------------------------


def driven(subject: Subject, *words: object) -> subprocess.Popen[str]:
    command = [str(BUILD / "http_driver"), str(subject.port), subject.path, *map(str, words)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def result(driver: subprocess.Popen[str]) -> dict[str, Any]:
    out, err = driver.communicate()
    if driver.returncode:
        sys.exit(f"bench: {driver.args} failed: {err[-2000:]}")
    figures: dict[str, Any] = json.loads(out)
    return figures


def measure_calls(subject: Subject, home: str, connections: int, count: int) -> dict[str, float]:
    """The driver says when it is warm: from there on time and CPU count."""
    daemon = ledgerd_of(f"{home}/{subject.name}") if subject.name in CORES else None
    driver = driven(subject, "calls", connections, max(200, count // 20), count)
    first_line(driver)
    before, daemon_before = subject.cpu_us, cpu_us(daemon) if daemon else 0.0
    figures = result(driver)
    figures["cpu_us"] = (subject.cpu_us - before) / count
    if daemon:
        figures["daemon_cpu_us"] = (cpu_us(daemon) - daemon_before) / count
    return figures


def measure_idle(subject: Subject, streams: int) -> dict[str, float]:
    before = subject.rss_kib
    driver = driven(subject, "idle", streams)
    if not first_line(driver):
        result(driver)
    time.sleep(SETTLE_S)
    grown = subject.rss_kib - before
    return {**result(driver), "grown_kib": grown, "kib_each": grown / streams, "before_kib": before}


def measure_memory(subject: Subject, count: int) -> dict[str, float]:
    """A tenth of the calls first: caches, rings and pages have their size then."""
    driver = driven(subject, "calls", 64, count // 10, count - count // 10)
    first_line(driver, START_S + count / 1000)
    first = subject.rss_kib
    return {**result(driver), "first_kib": first, "last_kib": subject.rss_kib}


def rounds(count: int, found: list[Subject], measure: Any) -> dict[str, list[dict[str, float]]]:
    """Interleaved, so that a noisy minute hits everyone alike."""
    results: dict[str, list[dict[str, float]]] = {}
    for _ in range(count):
        for subject in found:
            results.setdefault(subject.name, []).append(measure(subject))
    return results


# -- the table --------------------------------------------------------------------------------------------------------


class Report:
    def __init__(self) -> None:
        self.rows: list[tuple[str, ...]] = []
        self.raw: dict[str, Any] = {}

    def row(self, what: str, results: dict[str, list[dict[str, float]]], key: str, note: Any) -> None:
        """`note` makes the last cell of the medians."""
        values = {
            name: median(figures[key] for figures in results[name])
            for name in NAMES
            if name in results and key in results[name][0]
        }
        cells = [f"{values[name]:,.1f}" if name in values else "" for name in NAMES]
        self.rows.append((what, *cells, note(values)))

    def text(self) -> str:
        return table(("what", *NAMES, ""), self.rows)


def times_nginx(goal: str) -> Any:
    return lambda of: beside_nginx(of, lambda ours, nginx: f"{ours / nginx:.2f}x", goal)


def over_nginx(goal: str) -> Any:
    return lambda of: beside_nginx(of, lambda ours, nginx: f"{ours - nginx:+.0f} us", goal)


def beside_nginx(of: dict[str, float], compared: Any, goal: str) -> str:
    if "nginx" not in of:
        return ""
    return ", ".join(compared(of[core], of["nginx"]) for core in CORES) + f" nginx{goal}"


def plain(goal: str = "") -> Any:
    return lambda of: goal


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="fewer calls, two rounds")
    parser.add_argument("--memory-calls", type=int, default=100_000, help="1000000 takes some minutes")
    parser.add_argument("--streams", type=int, default=5000)
    parser.add_argument("--only", default="calls,events,idle,memory")
    parser.add_argument("--loop", choices=("uvloop", "asyncio"), default="uvloop")
    arguments = parser.parse_args()
    count = 2 if arguments.quick else arguments.rounds
    calls = 3000 if arguments.quick else 10_000
    parts = arguments.only.split(",")
    build()
    report = Report()
    loop = arguments.loop
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home, subjects(home, loop) as found:
        if "calls" in parts:
            alone = report.raw["alone"] = rounds(count, found, lambda of: measure_calls(of, home, 1, calls))
            many = report.raw["many"] = rounds(count, found, lambda of: measure_calls(of, home, 64, calls * 2))
            report.row("p50 us, 1 connection", alone, "p50_us", over_nginx(" (goal +150)"))
            report.row("p99 us, 1 connection", alone, "p99_us", plain())
            report.row("CPU us a call, 1 connection", alone, "cpu_us", times_nginx(" (goal 4x)"))
            report.row("CPU us a call, 64 connections", many, "cpu_us", times_nginx(" (goal 4x)"))
            report.row("calls/s, 64 connections", many, "calls_per_s", plain())
            report.row("CPU us a call of the ledger's daemon", many, "daemon_cpu_us", plain("counted apart"))
        if "memory" in parts:
            ours = found[-1]
            memory = report.raw["memory"] = {ours.name: [measure_memory(ours, arguments.memory_calls)]}
            first, last = (memory[ours.name][0][key] for key in ("first_kib", "last_kib"))
            share = f"after {arguments.memory_calls // 10:,} calls: {first:,.0f} KiB ({last - first:+,.0f})"
            report.row(f"RSS KiB after {arguments.memory_calls:,} calls", memory, "last_kib", plain(share))
    if "idle" in parts:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home, subjects(home, loop) as found:
            idle = report.raw["idle"] = rounds(1, found[1:], lambda of: measure_idle(of, arguments.streams))
            report.row("RSS KiB, idle", idle, "before_kib", plain())
            goal = plain("goal 61,440") if arguments.streams == 5000 else plain()
            report.row(f"KiB more, {arguments.streams:,} idle streams", idle, "grown_kib", goal)
            report.row("KiB each", idle, "kib_each", plain())
    if "events" in parts:
        flags = ("--event-us", str(EVENT_US))
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home, subjects(home, loop, *flags) as found:
            events = report.raw["events"] = rounds(
                count, found, lambda of: result(driven(of, "events", 300 if arguments.quick else 1000))
            )
            report.row("event of a stream, p50 us", events, "p50_us", plain())
            report.row("event of a stream, p99 us", events, "p99_us", plain("goal 2,000"))
    load = f"On {loop}. Load average at the end, on {os.cpu_count()} cores: {os.getloadavg()[0]:.1f}."
    print(report.text(), load, sep="\n\n")
    save("http", f"{report.text()}\n\n{load}")
    (HERE / "results" / "http.json").write_text(json.dumps(report.raw, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
