"""A machine that has joined nothing imports, starts and requires nothing of the fleet."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from harness.ledger import EventMaker, sub_environment
from subluminal.ledger.store.writer import Store

EXTRAS = ("zstandard", "cryptography", "clickhouse_connect", "chdb", "psycopg", "tuf", "opentelemetry")
SCRIPT = """
import sys
for name in {extras!r}:
    sys.modules[name] = None
from subluminal.cli import light
code = light.run({words!r})
loaded = sorted(name for name in sys.modules if name.startswith("subluminal.fleet"))
assert not loaded, loaded
sys.exit(code)
"""


@pytest.mark.parametrize(
    "words",
    [
        ["query", "--no-sync"],
        ["runs", "--no-sync"],
        ["show", "--no-sync"],
        ["verify"],
        ["prune", "--older-than", "1d", "--dry-run"],
    ],
    ids=lambda words: words[0],
)
def test_a_command_on_a_laptop_loads_nothing_of_the_fleet_and_needs_no_extra(words: list[str], tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    store = Store(str(home / "ledger.db"))
    with store.batch():
        for line in EventMaker("run-1", "shim-1").whole_run(1):
            store.add(line)
    store.close()
    command = [sys.executable, "-c", SCRIPT.format(extras=EXTRAS, words=words)]
    done = subprocess.run(command, env=sub_environment(home), capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert not (home / "fleet").exists()


NO_EXTRA = """
import importlib.util, sys
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "zstandard" else found(name, *rest)
from subluminal.cli import light
sys.exit(light.run({words!r}))
"""


@pytest.mark.parametrize(
    "words", [["collector", "serve", "--store", "chdb:///x", "--tokens", "t"], ["fleet", "ship", "--once"]]
)
def test_without_the_extra_a_collector_and_a_shipper_say_what_to_install(words: list[str], tmp_path: Path) -> None:
    command = [sys.executable, "-c", NO_EXTRA.format(words=words)]
    done = subprocess.run(command, env=sub_environment(tmp_path), capture_output=True, text=True)
    assert done.returncode == 2 and "[fleet]" in done.stderr, done.stderr
