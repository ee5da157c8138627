"""Run state shared between processes: exact, crash-proof, and never a reason to hang or die."""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.engine import Run, compiled, rule
from harness.waiting import GENEROUS_S
from subluminal.core.engine.state import MARK, MAX_MARKS, PUSH, SET, SET_RUN, LocalState, StateUnavailable, terminate_op
from subluminal.host.run import state as runstate
from subluminal.host.run.files import BOOT_ID_AT, FILE_BYTES, HEADER_BYTES, remove_stale, state_path
from subluminal.host.run.state import SharedState, list_runs

KEY = b"k" * 16
WORD_AT = 64


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SUB_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path / "home"


def shared(run_id: str = "run") -> SharedState:
    state = SharedState.open(run_id)
    assert isinstance(state, SharedState), state.reason
    return state


def put(state: SharedState, value: int, key: bytes = KEY) -> None:
    state.begin()
    state.commit([(SET_RUN, key, value, 0, 0)])


def value(state: SharedState, key: bytes = KEY) -> int | None:
    state.begin()
    state.abandon()
    op = state.entries.run_wide.get(key)
    return None if op is None else op[2]


# -- sharing ----------------------------------------------------------------------------------------------------


def test_what_one_commits_another_sees() -> None:
    one, two = shared(), shared()
    put(one, 1)
    assert value(two) == 1
    put(two, 2)
    assert value(one) == 2
    assert value(shared()) == 2, "and one that comes later"
    assert value(shared("another run")) is None


def test_call_numbers_run_through_all_processes_of_a_run() -> None:
    one, two = shared(), shared()
    one.begin()
    assert one.commit([(SET_RUN, KEY, 1, 0, 0)], True) == 1
    assert [two.next_seq(), one.next_seq(), two.next_seq()] == [2, 3, 4]


def test_an_abandoned_change_is_no_change() -> None:
    state = shared()
    state.begin()
    state.abandon()
    assert value(state) is None
    put(state, 1)
    assert value(shared()) == 1


def test_every_kind_of_operation_is_shared_alike() -> None:
    one, two, local = shared(), shared(), LocalState()
    ops = [
        (SET_RUN, KEY, 1, 2, 3),
        (SET, b"a" * 16, 2**62, 0, 5),
        (MARK, b"b" * 16, 77, 0, 0),
        (PUSH, b"c" * 16, 10, 100, 3),
        (PUSH, b"c" * 16, 20, 100, 3),
    ]
    one.begin()
    one.commit(ops)
    local.commit(ops)
    two.begin()
    two.abandon()
    assert two.entries.as_ops() == one.entries.as_ops() == local.entries.as_ops()


def test_budgets_hold_across_processes_and_restarts() -> None:
    snapshot = compiled(rule("b", "budget", scope="run", limit_calls=5, on_exceed="BLOCK"))
    first, second = Run(snapshot, state=shared()), Run(snapshot, state=shared())
    seen = [first.action(), second.action(), first.action()]
    restarted = Run(snapshot, state=shared())
    seen += [restarted.action(), second.action(), first.action(), restarted.action()]
    assert seen == ["ALLOW"] * 5 + ["BLOCK"] * 2


def test_the_file_is_private_and_allocated_in_full(home: Path) -> None:
    path = Path(shared().path)
    status = path.stat()
    assert status.st_mode & 0o777 == 0o600
    assert status.st_size == FILE_BYTES
    assert status.st_blocks * 512 >= FILE_BYTES, "a hole would be SIGBUS on a full disk"
    assert (home / "run").stat().st_mode & 0o777 == 0o700


# -- terminated runs --------------------------------------------------------------------------------------------


def test_a_killed_run_is_seen_without_a_lock_by_everyone() -> None:
    state = shared()
    assert state.terminated is None
    assert SharedState.kill("run", "OPERATOR", "Enough")
    assert state.terminated == ("OPERATOR", "Enough")
    assert state.terminated_by == ("", "")
    assert shared().terminated == ("OPERATOR", "Enough")


def test_killing_a_run_that_is_not_there_says_so(home: Path) -> None:
    assert not SharedState.kill("nobody", "OPERATOR", "Enough")
    assert list_runs() == []


def test_the_first_termination_stands() -> None:
    state = shared()
    state.begin()
    state.commit([terminate_op("A", "first", "p", "r")])
    SharedState.kill("run", "B", "second")
    assert (state.terminated, state.terminated_by) == (("A", "first"), ("p", "r"))


def test_runs_are_listed_with_what_is_known_of_them() -> None:
    shared("one").next_seq()
    shared("two")
    SharedState.kill("two", "OPERATOR", "Enough")
    Path(state_path("bad")).write_bytes(b"junk")
    assert {(info.run_id, info.calls, info.terminated) for info in list_runs()} == {
        ("one", 1, None),
        ("two", 0, ("OPERATOR", "Enough")),
    }


def test_the_state_of_old_runs_is_cleared_away_and_of_others_kept() -> None:
    old, new = shared("old"), shared("new")
    past = time.time() - 8 * 24 * 3600
    os.utime(old.path, (past, past))
    Path(new.path + ".bad").touch()
    other = Path(new.path).parent / "registered.json"
    other.touch()
    os.utime(other, (past, past))
    assert remove_stale() == 1
    assert [info.run_id for info in list_runs()] == ["new"]
    assert other.exists()


# -- bounds -----------------------------------------------------------------------------------------------------


def test_a_long_run_goes_through_many_arenas() -> None:
    one, two = shared(), shared()
    for number in range(40_000):
        put(one, number)
        if number % 7_000 == 0:
            assert value(two) == number
    assert value(two) == 39_999
    assert struct.unpack_from("<Q", Path(one.path).read_bytes(), WORD_AT)[0] >> 32 > 5, "generations went by"


def test_a_state_at_all_its_bounds_fits_its_file() -> None:
    one = shared()
    for start in range(0, 2 * MAX_MARKS, 512):
        keys = [number.to_bytes(16, "big") for number in range(start, start + 512)]
        one.begin()
        one.commit([(kind, key, 2**61, 2**61, 0) for key in keys for kind in (SET_RUN, SET, MARK)])
        one.begin()
        one.commit([(PUSH, key, at, 10**9, 4) for key in keys for at in range(4)])
    two = shared()
    two.begin()
    two.abandon()
    assert two.entries.as_ops() == one.entries.as_ops()
    assert (two.repaired, len(two.entries.marks)) == (0, MAX_MARKS)


def test_more_state_in_one_call_than_the_file_holds_is_refused_and_forgotten() -> None:
    state = shared()
    put(state, 1)
    state.begin()
    with pytest.raises(StateUnavailable):
        state.commit([(SET, number.to_bytes(16, "big"), 1, 1, 1) for number in range(30_000)])
    put(shared(), 2)
    assert value(state) == 2


# -- damage -----------------------------------------------------------------------------------------------------


def written_run() -> tuple[str, int, int]:
    """A run with three records; where the last one begins and ends in the file."""
    state = shared()
    put(state, 1)
    put(state, 2)
    start = struct.unpack_from("<Q", Path(state.path).read_bytes(), WORD_AT)[0] & 0x3FFFFFFF
    put(state, 3)
    end = struct.unpack_from("<Q", Path(state.path).read_bytes(), WORD_AT)[0] & 0x3FFFFFFF
    path = state.path
    state.close()
    return path, HEADER_BYTES + start, HEADER_BYTES + end


def test_a_record_damaged_at_any_byte_is_detected_and_the_rest_goes_on() -> None:
    path, start, end = written_run()
    whole = Path(path).read_bytes()
    for at in range(start, end):
        damaged = bytearray(whole)
        damaged[at] ^= 0x5A
        Path(path).write_bytes(damaged)
        state = shared()
        assert value(state) == 2, f"byte {at - start}"
        assert state.repaired == 1
        put(state, 9)
        after = shared()
        assert (value(after), after.repaired) == (9, 0)
        for opened in (state, after):
            opened.close()


def test_a_record_cut_off_at_any_byte_is_as_if_it_never_was() -> None:
    """What a writer leaves that is killed before it publishes: bytes behind the end of the log."""
    path, start, end = written_run()
    whole = Path(path).read_bytes()
    word = struct.unpack_from("<Q", whole, WORD_AT)[0]
    for cut in range(start, end + 1):
        torn = bytearray(whole)
        struct.pack_into("<Q", torn, WORD_AT, word - (end - start))
        torn[cut:end] = bytes(end - cut)
        Path(path).write_bytes(torn)
        state = shared()
        assert (value(state), state.repaired) == (2, 0)
        put(state, 4)
        assert value(state) == 4
        state.close()


@pytest.mark.parametrize("word", [2**64 - 1, 2**63, 1, 0x3FFFFFFF, 2**31 | 50, 2**40 | 9, 2**30])
def test_a_damaged_header_word_is_survived(word: int) -> None:
    path, _, _ = written_run()
    damaged = bytearray(Path(path).read_bytes())
    struct.pack_into("<Q", damaged, WORD_AT, word)
    Path(path).write_bytes(damaged)
    state = shared()
    put(state, 5)
    assert value(shared()) == 5
    assert (state.terminated is not None) == bool(word & 2**30), "an order to stop is not lost by damage"


def test_what_stands_behind_a_damaged_record_is_not_lost_with_it() -> None:
    state = shared()
    put(state, 7)
    with open(state.path, "r+b") as file:
        file.seek(HEADER_BYTES + 20)
        file.write(b"\xff")
    put(state, 8)
    assert value(state) == 8
    late = shared()
    assert (value(late), late.repaired) == (8, 1)
    assert value(state) == 8


@pytest.mark.parametrize("size", [0, 1, HEADER_BYTES, FILE_BYTES - 1])
def test_a_file_of_another_size_is_set_aside(size: int) -> None:
    path, _, _ = written_run()
    os.truncate(path, size)
    state = shared()
    assert value(state) is None
    assert os.path.getsize(path + ".bad") == size
    put(state, 1)
    assert value(shared()) == 1


def test_a_file_of_another_version_is_set_aside() -> None:
    path, _, _ = written_run()
    with open(path, "r+b") as file:
        file.seek(8)
        file.write(b"\x63")
    assert value(shared()) is None
    assert os.path.exists(path + ".bad")


def test_random_damage_never_crashes() -> None:
    import random

    path, _, end = written_run()
    whole = Path(path).read_bytes()
    dice = random.Random(7)
    for _ in range(150):
        damaged = bytearray(whole)
        for _ in range(dice.randrange(1, 20)):
            damaged[dice.choice((dice.randrange(128), dice.randrange(HEADER_BYTES, end)))] = dice.randrange(256)
        Path(path).write_bytes(damaged)
        state = shared()
        put(state, 11)
        assert value(shared()) == 11
        state.close()


# -- clocks, directories, links -----------------------------------------------------------------------------------


def test_after_a_reboot_counts_stay_and_times_are_forgotten() -> None:
    state = shared()
    state.begin()
    state.commit([(SET_RUN, KEY, 4, 4, 0), (MARK, KEY, 10**9, 0, 0), (PUSH, KEY, 10**9, 10, 3)])
    state.close()
    with open(state.path, "r+b") as file:
        file.seek(BOOT_ID_AT)
        file.write(b"an earlier boot!")
    again = shared()
    assert value(again) == 4
    assert (again.entries.marks, again.entries.windows) == ({}, {})
    assert value(shared()) == 4


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_directory_that_cannot_be_written_gives_a_local_state_and_the_reason(home: Path) -> None:
    home.mkdir(mode=0o500)
    assert isinstance(state := SharedState.open("run"), LocalState)
    assert "Permission denied" in (state.reason or "")


def test_a_directory_that_cannot_be_made_gives_a_local_state_and_the_reason(home: Path) -> None:
    home.write_text("not a directory")
    state = SharedState.open("run")
    assert isinstance(state, LocalState)
    assert state.reason
    assert state.next_seq() == 1


def test_a_link_in_the_place_of_the_file_is_not_followed(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_bytes(bytes(FILE_BYTES))
    shared("other")
    os.symlink(target, state_path("run"))
    assert isinstance(SharedState.open("run"), LocalState)
    assert target.read_bytes() == bytes(FILE_BYTES)


# -- processes that stop or die -----------------------------------------------------------------------------------

HOLDER = """
import sys
from subluminal.host.run.state import SharedState
state = SharedState.open("run")
state.begin()
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def holder() -> Iterator[subprocess.Popen[str]]:
    shared()
    process = subprocess.Popen([sys.executable, "-c", HOLDER], stdin=-1, stdout=-1, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
    finally:
        process.kill()
        process.communicate()


class PassingClock:
    """Time that passes by sleeping alone, and at once."""

    def __init__(self) -> None:
        self.slept = 0.0

    def monotonic(self) -> float:
        return self.slept

    def sleep(self, seconds: float) -> None:
        self.slept += seconds


def test_a_stopped_holder_does_not_hang_the_others(
    holder: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = PassingClock()
    monkeypatch.setattr(runstate, "time", clock)
    os.kill(holder.pid, signal.SIGSTOP)
    snapshot = compiled(rule("b", "budget", scope="run", limit_calls=5, on_exceed="BLOCK"))
    run = Run(snapshot, state=shared())
    first = run.call()
    assert (first.decision.action, first.decision.reason_code) == ("BLOCK", "EVALUATION_ERROR")
    assert first.seq >= 1
    waited = clock.slept
    assert runstate.LOCK_WAIT_SECONDS <= waited < runstate.LOCK_WAIT_SECONDS + 0.1
    assert run.call().decision.reason_code == "EVALUATION_ERROR"
    assert clock.slept - waited < waited / 10, "later calls wait less"
    os.kill(holder.pid, signal.SIGCONT)
    holder.kill()
    holder.wait(GENEROUS_S)
    assert run.action() == "ALLOW"


def test_a_run_can_be_killed_while_a_stopped_process_holds_its_state(
    holder: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runstate, "LOCK_WAIT_SECONDS", 0.1)
    os.kill(holder.pid, signal.SIGSTOP)
    run = Run(compiled(rule("a", "allow")), state=shared())
    assert SharedState.kill("run", "OPERATOR", "Enough")
    decision = run.call().decision
    assert (decision.action, decision.reason_code) == ("TERMINATE_RUN", "RUN_TERMINATED")
    assert [info.terminated is not None for info in list_runs()] == [True]


def test_a_killed_holder_leaves_the_lock_free(holder: subprocess.Popen[str]) -> None:
    holder.kill()
    holder.wait(GENEROUS_S)
    state = shared()
    put(state, 1)
    assert value(state) == 1


def test_the_lock_is_not_inherited_by_a_program_that_is_started_meanwhile() -> None:
    state = shared()
    state.begin()
    child = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=-1, close_fds=False)
    try:
        state.abandon()
        other = shared()
        state.begin()
        state.close()
        put(other, 3)
        assert value(other) == 3
    finally:
        child.communicate(b"")
