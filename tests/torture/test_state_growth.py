"""A long run: however many calls, keys and arguments, neither the state file nor the shim's memory grows."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest

from harness.engine import Run, compiled, rule
from subluminal.host.run.pages import FILE_BYTES
from subluminal.host.run.state import SharedState

# A million in a soak: SUBLUMINAL_SOAK_CALLS=1000000.
CALLS = int(os.environ.get("SUBLUMINAL_SOAK_CALLS", "20000"))
# Calls after which every pool has as many keys as it may.
SETTLED = 100_000
RULES = (
    rule("b", "budget", scope="run", limit_calls=10**9, on_exceed="BLOCK"),
    rule("each", "budget", scope="tool", limit_calls=10**9, on_exceed="BLOCK"),
    rule("wide", "budget", scope="machine", limit_calls=10**9, on_exceed="BLOCK"),
    rule("d", "dedupe", scope="run", window_ms=10**9, on_duplicate="BLOCK"),
    rule("loop", "breaker", scope="tool", repeat_threshold=5, repeat_window_ms=10**9, on_trip="BLOCK"),
)


@pytest.mark.timeout(3600)
def test_state_and_memory_stay_flat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUB_HOME", str(tmp_path / "home"))
    state = SharedState.open("run")
    assert isinstance(state, SharedState)
    run = Run(compiled(*RULES), state=state)

    def calls(numbers: range) -> None:
        for number in numbers:
            run.at = number
            assert run.call(f"tool-{number % 3000}", {"n": number}).decision.action == "ALLOW"

    calls(range(CALLS // 2))
    settled = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    calls(range(CALLS // 2, CALLS))
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - settled
    files = [state.path, str(tmp_path / "home" / "state" / "wide.2.state")]
    assert [os.path.getsize(path) for path in files] == [FILE_BYTES] * 2
    assert grown < (2 << 10 if CALLS >= SETTLED else 32 << 10), "KiB; what is kept for the latest keys is full by then"
    assert state.next_seq() == CALLS + 1
