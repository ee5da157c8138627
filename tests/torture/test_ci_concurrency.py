"""Many headless jobs at once, with the harness of the benchmark: complete, separate, exact, and nothing left.

SUB_CI_RUNS and SUB_CI_CALLS set the profile (default 12 runs of 20 calls; the full one is 100 of 200).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness import places

RUNS = os.environ.get("SUB_CI_RUNS", "12")
CALLS = os.environ.get("SUB_CI_CALLS", "20")
BENCH = places.ROOT / "bench" / "ci.py"


@pytest.mark.timeout(900)
def test_concurrent_jobs_do_not_mix_and_count_exactly(tmp_path: Path) -> None:
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "SUB_HOME": str(tmp_path / "sub")}
    command = [sys.executable, str(BENCH), "--runs", RUNS, "--calls", CALLS, "--json", "--keep", str(tmp_path / "jobs")]
    done = subprocess.run(command, env=env, capture_output=True, encoding="utf-8", timeout=900, check=False)
    assert done.stdout, done.stderr
    figures = json.loads(done.stdout)
    assert figures["faults"] == []
    assert figures["shimmed"]["exit_codes"] == [1]  # every job is refused some calls, and strict
    assert figures["shimmed"]["left"] == 0
    assert done.returncode == 0
