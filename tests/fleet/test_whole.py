"""Many machines at once while collectors and the store are killed: `bench/fleet.py`, which checks that each event is
there once, that every call was folded, and that every chain verifies. FLEET_PROFILE=whole for its full size.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.stores import need, postgres_programs

WHOLE = os.environ.get("FLEET_PROFILE") == "whole"
POSTGRES_WHOLE = ("--kills", "12", "--deaths", "4", "--store-kills", "4")
POSTGRES_SHORT = ("--kills", "1", "--deaths", "1", "--store-kills", "1")
SIZE = ("--machines", "64", "--events", "500000") if WHOLE else ("--machines", "6", "--events", "6000")


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "profile",
    [
        ["--store", "chdb", "--kills", "8" if WHOLE else "1", "--deaths", "4" if WHOLE else "1"],
        ["--store", "postgres", "--collectors", "3", *(POSTGRES_WHOLE if WHOLE else POSTGRES_SHORT)],
    ],
    ids=lambda profile: profile[1],
)
def test_every_event_is_there_once_whatever_was_killed(profile: list[str]) -> None:
    need(*(("chdb", "clickhouse_connect") if "chdb" in profile else ("psycopg",)))
    if "postgres" in profile and postgres_programs() is None:
        pytest.skip("no Postgres is installed here (Debian: postgresql)")
    bench = Path(__file__).parents[2] / "bench" / "fleet.py"
    command = [sys.executable, str(bench), "ingest", *profile, *SIZE]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stderr[-4000:]
    told = json.loads(done.stdout)
    assert told["lost"] == 0 and told["events under the view"] == told["events"]
