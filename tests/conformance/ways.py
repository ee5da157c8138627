"""How the suite reaches a server: direct, or through us.

direct     the server's own URL
proxy      `sub proxy mcp --url URL`
shim       `sub proxy mcp -- sub shim --url URL`: the suite speaks HTTP only
command    `sub proxy mcp -- COMMAND`: the same server, over stdio (not by default: it is loaded for every session)
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from harness import places
from harness.shim import isolated_env
from harness.sink import EventFile

SECONDS = 20.0
SUB = (sys.executable, "-m", "subluminal")
SERVER = (sys.executable, "-W", "ignore", "-m", "conformance.reference_server")
WAYS = ("direct", "proxy", "shim")


@contextmanager
def started(words: Sequence[str], place: Path) -> Iterator[str]:
    """A process that prints one line when it is ready; the line."""
    place.mkdir(parents=True, exist_ok=True)
    env = isolated_env(place, PYTHONPATH=str(places.ROOT / "tests"))
    with open(place / "stderr", "wb") as stderr:
        process = subprocess.Popen(
            words, env=env, cwd=place, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=stderr, text=True
        )
    try:
        assert process.stdout is not None
        line = process.stdout.readline().strip()
        if not line:
            raise RuntimeError(f"{words}: {(place / 'stderr').read_text()}")
        yield line
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()  # type: ignore[union-attr]


@contextmanager
def proxied(behind: Sequence[str], place: Path) -> Iterator[str]:
    """The URL of a proxy with this server behind it."""
    events = ["--events", EventFile(place / "events.jsonl").argument]  # a ledger would outlive us
    with started([*SUB, "proxy", "mcp", "--json", "--server-name", "reference", *events, *behind], place) as ready:
        yield str(json.loads(ready)["servers"]["reference"])


@contextmanager
def reached(way: str, place: Path) -> Iterator[str]:
    """The URL at which the suite finds the reference server."""
    with ExitStack() as stack:
        if way == "command":
            yield stack.enter_context(proxied(["--", *SERVER, "--stdio"], place / "proxy"))
            return
        url = stack.enter_context(started(SERVER, place / "server"))
        if way == "proxy":
            url = stack.enter_context(proxied(["--url", url], place / "proxy"))
        elif way == "shim":
            events = EventFile(place / "shim.jsonl").argument
            shim = [*SUB, "shim", "--server-name", "behind", "--events", events, "--url", url]
            url = stack.enter_context(proxied(["--", *shim], place / "proxy"))
        yield url
