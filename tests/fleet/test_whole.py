"""Many machines at once while collectors and the store are killed: `bench/fleet.py`, which checks that each event is
there once, that every call was folded, and that every chain verifies. FLEET_PROFILE=whole for its full size.
"""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from harness.stores import WHOLE, need, postgres_programs

BENCH = Path(__file__).parents[2] / "bench" / "fleet.py"
SIZE = (
    ("--machines", "64", "--events", "500000", "--strays", "200") if WHOLE else ("--machines", "6", "--events", "6000")
)
TROUBLE = {
    "chdb": ("--kills", "8", "--deaths", "4") if WHOLE else ("--kills", "1", "--deaths", "1", "--strays", "5"),
    "postgres": ("--collectors", "3", "--kills", "12", "--deaths", "4", "--store-kills", "4")
    if WHOLE
    else ("--collectors", "3", "--kills", "1", "--deaths", "1", "--store-kills", "1", "--strays", "5"),
}
# The whole takes about six minutes for each store, on two cores.
LIMIT_S = 1800 if WHOLE else 300


def bench(store: str, *arguments: str, progress: pytest.CaptureFixture[bytes]) -> dict[str, Any]:
    """At its full size it says how far it is while it runs."""
    need(*(("chdb", "clickhouse_connect") if store == "chdb" else ("psycopg",)))
    if store == "postgres" and postgres_programs() is None:
        pytest.skip("no Postgres is installed here (Debian: postgresql)")
    command = [sys.executable, str(BENCH), arguments[0], "--store", store, *arguments[1:]]
    with progress.disabled() if WHOLE else nullcontext():
        errors = None if WHOLE else subprocess.PIPE
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=errors, text=True, timeout=LIMIT_S)
    assert done.returncode == 0, (done.stderr or "")[-4000:]
    told: dict[str, Any] = json.loads(done.stdout)
    return told


@pytest.mark.timeout(LIMIT_S + 60)
@pytest.mark.parametrize("store", TROUBLE)
def test_every_event_is_there_once_whatever_was_killed(store: str, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    told = bench(store, "ingest", *TROUBLE[store], *SIZE, progress=capfdbinary)
    assert told["lost"] == 0 and told["events under the view"] == told["events"]
    if WHOLE:
        kills = told["kills of collectors"] + told["deaths between commit and ack"] + told["kills of the store"]
        assert kills == (12 if store == "chdb" else 20) and told["segments sent besides"] > 0


@pytest.mark.parametrize("store", TROUBLE)
def test_what_the_bench_asks_of_many_calls_is_answered(store: str, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    told = bench(store, "queries", "--calls", "3000", progress=capfdbinary)
    assert told["calls"] == 3000 and all(seconds >= 0 for seconds in told["seconds, median of 3"].values())
