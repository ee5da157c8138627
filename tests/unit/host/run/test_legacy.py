"""A run that began under the earlier format of the state file ends well."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import pytest

from harness.engine import Run, compiled, rule
from harness.places import FIXTURES
from subluminal.host.run.files import state_path
from subluminal.host.run.listing import kill, list_runs
from subluminal.host.run.state import SharedState

RUN_ID = "run-of-format-1"
RULES = (
    rule("b", "budget", scope="run", limit_calls=5, on_exceed="BLOCK"),
    rule("loop", "breaker", scope="tool", repeat_threshold=4, repeat_window_ms=10**9, on_trip="BLOCK"),
)
KILLED_AT = 80  # where a shim of that format looks before each call


@pytest.fixture
def old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file as three calls of that format left it."""
    monkeypatch.setenv("SUB_HOME", str(tmp_path / "home"))
    path = Path(state_path(RUN_ID, format=1))
    path.parent.mkdir(parents=True)
    path.write_bytes(gzip.decompress((FIXTURES / "state" / "format-1.state.gz").read_bytes()))
    return path


def opened() -> SharedState:
    state = SharedState.open(RUN_ID)
    assert isinstance(state, SharedState)
    return state


def test_what_was_counted_counts_on(old: Path) -> None:
    before = old.read_bytes()
    run = Run(compiled(RULES[0]), state=opened())
    assert run.call().seq == 4
    assert [run.action(), run.action()] == ["ALLOW", "BLOCK"]
    assert Run(compiled(RULES[0]), state=opened()).action() == "BLOCK", "taken over once, not again and again"
    assert old.read_bytes() == before, "its own shims go on with it"


def test_an_order_to_stop_reaches_the_shims_of_both(old: Path) -> None:
    assert [(info.run_id, info.calls) for info in list_runs()] == [(RUN_ID, 3)]
    assert kill(RUN_ID, "OPERATOR", "Enough")
    assert struct.unpack_from("<Q", old.read_bytes(), KILLED_AT)[0] == 1
    assert Run(compiled(RULES[0]), state=opened()).action() == "TERMINATE_RUN"


@pytest.mark.parametrize("junk", [b"", b"SUBSTATE", b"\xff" * 4096])
def test_junk_in_its_place_is_nobodys_run(old: Path, junk: bytes) -> None:
    old.write_bytes(junk)
    assert list_runs() == []
    assert Run(compiled(RULES[0]), state=opened()).call().seq == 1


def test_a_damaged_log_gives_what_can_be_read_of_it(old: Path) -> None:
    raw = bytearray(old.read_bytes())
    raw[4096 + 8] = 0x63
    old.write_bytes(raw)
    assert Run(compiled(RULES[0]), state=opened()).action() in ("ALLOW", "BLOCK")
