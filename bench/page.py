"""The figures of the page of `sub ui`, in a real Chromium. Needs requirements/ui.txt and a browser (CHROMIUM=...).

    python bench/page.py scroll [--calls 10000]       frames while a list and a run of so many calls are scrolled
    python bench/page.py large [--calls 1000000]      first paint, filters and search on a large ledger
    python bench/page.py live [--rate 200] [--minutes 1]    call to pixel, and what the page holds in the end
    python bench/page.py ingest [--pages 10]          the daemon's pace with nobody looking and with so many pages
    python bench/page.py file [--calls 10000]         a run in a file: how large, and how soon it is there

Times are the browser's own (frames, long tasks, paint); call to pixel is from the moment an event names to the frame
after the row stood in the document. Drawing is done in software here: a desk with a graphics card has more time.
Results are one JSON object on stdout.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ledger import cpu_seconds, fill

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from harness.chromium import chromium
from harness.ledger import EventMaker, connect_ledgerd, ledgerd, spool_of, sub_environment
from harness.page import PageServer

ROW = ".list .body .row"
LONG_TASKS = """
window.longTasks = [];
new PerformanceObserver(list => { for (const one of list.getEntries()) longTasks.push(one.duration); })
    .observe({type: 'longtask', buffered: true});
"""
SCROLL = """async ({selector, rows, seconds}) => {
    const body = document.querySelector(selector), frames = [], began = performance.now();
    longTasks.length = 0;
    let last = began;
    const goal = rows * 34 - body.clientHeight, step = goal / (seconds * 60);
    await new Promise(done => {
        let wanted = 0;
        const frame = now => {
            frames.push(now - last);
            last = now;
            wanted += step;
            if (wanted >= goal || now - began > 90000) return done();
            body.scrollTop = wanted;
            requestAnimationFrame(frame);
        };
        requestAnimationFrame(frame);
    });
    return {frames: frames.slice(2), reached: body.scrollTop, longTasks: [...longTasks]};
}"""


def spread(values: list[float]) -> dict[str, float]:
    ordered = sorted(values)
    at = lambda share: round(ordered[min(len(ordered) - 1, int(len(ordered) * share))], 1)  # noqa: E731
    return {"p50": at(0.5), "p95": at(0.95), "p99": at(0.99), "max": round(ordered[-1], 1), "count": len(ordered)}


@contextlib.contextmanager
def desk() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="sub-page-") as directory:
        home = Path(directory) / "home"
        spool_of(home)
        yield home


@contextlib.contextmanager
def opened(home: Path, path: str = "/") -> Iterator[tuple[Any, PageServer]]:
    server = PageServer(home)
    with chromium(home.parent / "profile") as browser:
        tab = browser.new_page()
        tab.set_default_timeout(60_000)
        tab.add_init_script(LONG_TASKS)
        tab.goto(server.origin + server.new_link(path))
        yield tab, server


def tell(home: Path, lines: list[bytes]) -> None:
    with connect_ledgerd(home) as connection, connection.makefile("rwb") as stream:
        for start in range(0, len(lines), 500):
            part = lines[start : start + 500]
            stream.write(b"".join(line + b"\n" for line in part))
            stream.flush()
            for _ in part:
                assert b'"ack"' in stream.readline()


def one_run(calls: int, name: str = "run-1", ended: bool = True) -> list[bytes]:
    maker = EventMaker(name, f"shim-{name}")
    lines = [maker.run_start()]
    for number in range(calls):
        lines += maker.call(
            "BLOCK" if number % 9 == 4 else "ALLOW", server=f"server-{number % 4}", tool=f"tool_{number % 13}"
        )
    return [*lines, maker.run_end()] if ended else lines


def scroll(calls: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    with desk() as home, ledgerd(home):
        run_calls = min(calls, 6_600)  # a run is told as one answer up to 20,000 events
        tell(home, one_run(run_calls))
        tell(home, one_run(calls - run_calls, "run-2"))
        with opened(home) as (tab, server):
            tab.wait_for_selector(ROW)
            # The first time through, pages are asked for while one scrolls; the second time all of it is there.
            for name in ("live, loading", "live, loaded"):
                found[name] = scroll_through(tab, calls, 20)
            tab.goto(f"{server.origin}/run?run=run-1")
            tab.wait_for_selector(ROW)
            tab.wait_for_timeout(500)
            found["run"] = scroll_through(tab, run_calls, 12)
    return found


def scroll_through(tab: Any, rows: int, seconds: int) -> dict[str, Any]:
    """By equal steps, as many as 60 frames a second make. What the main thread computes does not depend on others."""
    devtools = tab.context.new_cdp_session(tab)
    devtools.send("Performance.enable", {"timeDomain": "threadTicks"})
    before = main_thread_s(devtools)
    told = tab.evaluate(SCROLL, {"selector": ".list .body", "rows": rows, "seconds": seconds})
    spent = main_thread_s(devtools) - before
    return {
        "rows_reached": int(told["reached"] / 34),
        "main_thread_cpu_ms_per_frame": round(spent * 1000 / len(told["frames"]), 2),
        "frame_ms": spread(told["frames"]),
        "frames_over_17_ms": sum(frame > 17.5 for frame in told["frames"]),
        "long_tasks_over_50_ms": [round(one) for one in told["longTasks"] if one > 50],
    }


def prepare(home: Path, calls: int) -> None:
    spool_of(home)
    with ledgerd(home):
        tell(home, one_run(3))  # makes the database
    fill(home, calls)
    add_previews(home)


def main_thread_s(devtools: Any) -> float:
    metrics = {one["name"]: one["value"] for one in devtools.send("Performance.getMetrics")["metrics"]}
    return float(metrics["TaskDuration"])


def large(calls: int, prepared: Path | None = None) -> dict[str, Any]:
    found: dict[str, Any] = {"calls": calls}
    with desk() as home:
        if prepared is None:
            prepare(home, calls)
        else:
            home = prepared
        with ledgerd(home), opened(home) as (tab, server):
            tab.wait_for_selector(ROW)
            paints, rows = [], []
            for _ in range(5):
                tab.goto(server.origin + "/")
                tab.wait_for_selector(ROW)
                told = tab.evaluate(
                    "[performance.getEntriesByName('first-contentful-paint')[0].startTime, performance.now()]"
                )
                paints.append(told[0])
                rows.append(told[1])
            found["first_paint_ms"], found["first_rows_ms"] = spread(paints), spread(rows)
            filters = {
                "tool": "tool=tool_7",
                "server, glob": "server=*3",
                "decision": "decision=BLOCK",
                "status": "status=ERROR",
                "run": f"run=run-{calls // 1000:06d}",
                "latency": "min-latency=450",
                "latency, none": "min-latency=99999999",
                "reason": "reason=DENYLIST_MATCH",
                "two": "decision=BLOCK&tool=*_1*",
                "agent, none": "agent=nobody",
                "text, common": "text=src",
                "text, one in all": "text=needle",
                "text, none": "text=no-such-text",
            }
            found["filters"] = {name: filtered(tab, server, query) for name, query in filters.items()}
    return found


def add_previews(home: Path) -> None:
    """One call, in the middle of all, has what no other has."""
    connection = sqlite3.connect(home / "ledger.db")
    words = """'{"path": "src/' || (id % 99991) || '.py"}', '{"ok": true, "lines": ' || (id % 977) || '}'"""
    connection.execute(f"INSERT OR IGNORE INTO previews SELECT id, call_id, {words}, NULL FROM tool_calls")
    middle = "SELECT id FROM tool_calls ORDER BY id LIMIT 1 OFFSET (SELECT count(*) / 2 FROM tool_calls)"
    connection.execute(f"UPDATE previews SET args_preview = 'a needle' WHERE id = ({middle})")
    connection.commit()
    connection.close()


ARRIVES = """async query => {
    const began = performance.now();
    history.pushState(null, '', '/?' + query);
    dispatchEvent(new PopStateEvent('popstate'));
    const text = () => document.querySelector('.bar .quiet')?.textContent ?? '';
    const state = () => [document.querySelectorAll('.list .body .row').length, text()];
    let first = null;
    while (performance.now() - began < 60000) {
        await new Promise(done => requestAnimationFrame(done));
        const [rows, text] = state();
        if (rows && first === null) first = performance.now() - began;
        if (!text.includes('looking') && text) {
            return {first, settled: performance.now() - began, rows, text};
        }
        if (rows >= 20) return {first, settled: performance.now() - began, rows, text};
    }
    return {first, settled: null};
}"""


def filtered(tab: Any, server: PageServer, query: str) -> dict[str, Any]:
    firsts, settled, rows = [], [], 0
    for _ in range(3):
        tab.goto(server.origin + "/?at=1000")
        tab.wait_for_selector(".empty")
        told = tab.evaluate(ARRIVES, query)
        rows = told["rows"]
        settled.append(told["settled"])
        if told["first"] is not None:
            firsts.append(told["first"])
    answer = {"settled_ms": round(statistics.median(settled)), "rows": rows, "text": told["text"]}
    return {"first_rows_ms": round(statistics.median(firsts)) if firsts else None, **answer}


PIXELS = """() => {
    window.delays = [];
    const seen = new Set();
    const look = () => {
        for (const row of document.querySelectorAll('.list .body .row')) {
            if (seen.has(row.id)) continue;
            seen.add(row.id);
            const at = Date.parse(row.querySelector('time').dateTime);
            // Drawn with this frame: measured when it has been.
            requestAnimationFrame(() => delays.push(Date.now() - at));
        }
        requestAnimationFrame(look);
    };
    requestAnimationFrame(look);
}"""


def live(rate: int, minutes: float) -> dict[str, Any]:
    """`rate` events a second: a third as many calls, in groups as agents make them."""
    with desk() as home, ledgerd(home), opened(home) as (tab, _server):
        tab.wait_for_selector("text=● live")
        stop = threading.Event()
        sent = threading.Thread(target=produce, args=(home, rate, stop))
        sent.start()
        devtools = tab.context.new_cdp_session(tab)
        devtools.send("Performance.enable", {"timeDomain": "threadTicks"})
        tab.wait_for_selector(ROW)
        tab.evaluate(PIXELS)
        heaps, began, before = [], time.monotonic(), main_thread_s(devtools)
        while time.monotonic() - began < minutes * 60:
            tab.wait_for_timeout(min(20_000, minutes * 20_000))
            devtools.send("HeapProfiler.collectGarbage")
            heaps.append(round(devtools.send("Runtime.getHeapUsage")["usedSize"] / 1e6, 1))
        share = (main_thread_s(devtools) - before) / (time.monotonic() - began)
        told = tab.evaluate("({delays, longTasks})")
        stop.set()
        sent.join()
        rows = tab.inner_text(".bar .quiet")
    return {
        "rate": rate,
        "minutes": minutes,
        "main_thread_cpu_percent": round(share * 100, 1),
        "call_to_pixel_ms": spread(told["delays"]),
        "heap_mb": {"first": heaps[0], "last": heaps[-1], "max": max(heaps)},
        "long_tasks_over_50_ms": sum(one > 50 for one in told["longTasks"]),
        "rows": rows,
    }


def produce(home: Path, rate: int, stop: threading.Event) -> None:
    maker = EventMaker("run-live", "shim-live", start_ms=time.time_ns() // 1_000_000)
    with connect_ledgerd(home) as connection, connection.makefile("rwb") as stream:
        threading.Thread(target=listen, args=(stream,), daemon=True).start()
        stream.write(maker.run_start() + b"\n")
        began, number = time.monotonic(), 0
        while not stop.is_set():
            maker.ms = time.time_ns() // 1_000_000 - 1
            stream.write(b"".join(line + b"\n" for line in maker.call(tool=f"tool_{number % 9}")))
            stream.flush()
            number += 1
            wait = began + number * 3 / rate - time.monotonic()
            if wait > 0:
                time.sleep(wait)


def listen(stream: Any) -> None:
    """Until it is closed: what is acknowledged must be read."""
    with contextlib.suppress(ValueError, OSError):
        while stream.readline():
            pass


def ingest(pages: int, calls: int = 12_000) -> dict[str, Any]:
    """The same lines through the daemon, by turns with nobody looking and with `pages` that follow everything."""
    found: dict[str, list[float]] = {"0": [], str(pages): []}
    cpu: dict[str, list[float]] = {"0": [], str(pages): []}
    for turn in range(3):
        for many in (0, pages) if turn % 2 == 0 else (pages, 0):
            with desk() as home, ledgerd(home) as daemon:
                looking = [looker(PageServer(home)) for _ in range(many)]
                lines = one_run(calls)
                began, cpu_before = time.monotonic(), cpu_seconds(daemon.pid)
                tell(home, lines)
                found[str(many)].append(len(lines) / (time.monotonic() - began))
                cpu[str(many)].append((cpu_seconds(daemon.pid) - cpu_before) / len(lines) * 1e6)
                for process in looking:
                    process.kill()
                    process.wait()
    rates = {many: round(statistics.median(values)) for many, values in found.items()}
    costs = {many: round(statistics.median(values), 1) for many, values in cpu.items()}
    return {"events_per_s": rates, "cpu_us_per_event": costs, "ratio": round(rates[str(pages)] / rates["0"], 3)}


LOOKER = """
import asyncio, sys
from aiohttp import ClientSession
async def main(address, cookie, origin):
    async with ClientSession() as session:
        async with session.ws_connect(address, headers={"Cookie": cookie, "Origin": origin}, max_msg_size=0) as stream:
            await stream.receive()
            print("looks", flush=True)
            async for _ in stream: pass
asyncio.run(main(*sys.argv[1:]))
"""


def looker(server: PageServer) -> subprocess.Popen[bytes]:
    """A page that follows everything and draws nothing: what it costs the daemon, not the browser."""
    words = [f"{server.origin}/v1/live/calls", server.enter(), server.origin]
    process = subprocess.Popen([sys.executable, "-c", LOOKER, *words], stdout=subprocess.PIPE)
    process.stdout.readline()  # type: ignore[union-attr]
    return process


def file(calls: int) -> dict[str, Any]:
    with desk() as home, ledgerd(home):
        tell(home, one_run(calls))
        target = home.parent / "run.html"
        began = time.monotonic()
        command = [sys.executable, "-m", "subluminal", "export", "run", "run-1", "--html", "-o", str(target)]
        subprocess.run(command, env=sub_environment(home), check=True, capture_output=True)
        written = time.monotonic() - began
        with chromium(home.parent / "profile") as browser:
            tab = browser.new_page()
            tab.add_init_script(LONG_TASKS)
            tab.goto(target.as_uri())
            tab.wait_for_selector(ROW)
            shown = tab.evaluate("performance.now()")
            told = scroll_through(tab, calls, 12)
        return {
            "calls": calls,
            "mb": round(target.stat().st_size / 1e6, 2),
            "written_s": round(written, 2),
            "shown_ms": round(shown),
            **told,
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["scroll", "large", "prepare", "live", "ingest", "file"])
    parser.add_argument("--calls", type=int)
    parser.add_argument("--rate", type=int, default=200)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--home", type=Path, help="For `prepare`, and for `large` on what it made.")
    parser.add_argument("--pages", type=int, default=10)
    given = parser.parse_args()
    work = {
        "scroll": lambda: scroll(given.calls or 10_000),
        "large": lambda: large(given.calls or 1_000_000, given.home),
        "prepare": lambda: prepare(given.home, given.calls or 1_000_000),
        "live": lambda: live(given.rate, given.minutes),
        "ingest": lambda: ingest(given.pages),
        "file": lambda: file(given.calls or 10_000),
    }
    print(json.dumps(work[given.what](), indent=2))


if __name__ == "__main__":
    main()
