"""`sub ui`: it starts the daemon, says where the page is, and opens it once."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from harness.ledger import EventMaker, sub_environment
from harness.page import PageServer


def sub(home: Path, *words: str, **extra: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "subluminal", *words]
    environment = sub_environment(home, SUB_LEDGER_IDLE_S="20", **extra)
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        environment.pop(name, None)
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def test_it_starts_the_daemon_and_prints_a_link_that_works_once(home: Path) -> None:
    told = sub(home, "ui", "--no-open")
    try:
        assert told.returncode == 0 and re.fullmatch(r"http://127\.0\.0\.1:\d+/\n", told.stdout), told.stderr
        server = PageServer(home)
        assert told.stdout.strip() == server.origin + "/"
        (link,) = re.findall(r"http://\S+/link/\S+", told.stderr)
        path = link.removeprefix(server.origin)
        assert server.send(path).status == 303 and server.send(path).status == 403
        wrong = sub(home, "ui", "--no-open", "--port", "1")
        assert wrong.returncode == 2 and "already" in wrong.stderr and "Traceback" not in wrong.stderr
    finally:
        sub(home, "ledgerd", "--stop")


def test_it_begins_with_a_run_and_says_where_there_is_none(home: Path, tmp_path: Path) -> None:
    lines = tmp_path / "events.jsonl"
    lines.write_bytes(b"\n".join(EventMaker("run & 1", "shim-1").whole_run(1)))
    try:
        assert sub(home, "ingest", str(lines)).returncode == 0
        told = json.loads(sub(home, "ui", "--json", "--run", "last").stdout)
        assert told["address"].endswith("/run?run=run+%26+1") and "/link/" in told["link"]
        missing = sub(home, "ui", "--json", "--run", "nothing")
        assert missing.returncode != 0 and "There is no run" in missing.stderr
    finally:
        sub(home, "ledgerd", "--stop")
