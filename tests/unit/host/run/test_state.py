"""Run state shared between processes: exact, crash-proof, and never a reason to hang or die."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from fcntl import LOCK_EX, LOCK_UN, flock
from pathlib import Path

import pytest

from harness.effort import calls_made
from harness.engine import Run, compiled, rule
from harness.waiting import GENEROUS_S
from subluminal.core.engine.state import (
    KEYED,
    MARK,
    MAX_KEYS,
    RUN,
    WINDOW,
    LocalState,
    StateDamaged,
    StateUnavailable,
    terminate_op,
)
from subluminal.host.run import table
from subluminal.host.run.files import remove_stale, state_path
from subluminal.host.run.listing import kill, list_runs
from subluminal.host.run.pages import FILE_BYTES, FRONT, FRONT_AT, PAGE, RINGS_AT, TABLE_ROOM, TABLES_AT, WORDS_AT
from subluminal.host.run.state import SharedState

KEY = b"k" * 16
BUDGET = rule("b", "budget", scope="run", limit_calls=5, on_exceed="BLOCK")


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
    state.commit([(RUN, key, (value, 0, 0))])


def value(state: SharedState, key: bytes = KEY) -> int | None:
    state.begin()
    values = state.get(RUN, key)
    state.abandon()
    return None if values is None else values[0]


# -- sharing ----------------------------------------------------------------------------------------------------


def test_what_one_commits_another_sees() -> None:
    one, two = shared(), shared()
    put(one, 1)
    assert value(two) == 1
    put(two, 2)
    assert value(one) == 2
    assert value(shared()) == 2, "and one that comes later"
    assert value(shared("another run")) is None


def test_calls_that_follow_at_once_are_judged_under_one_lock_and_others_come_after_them() -> None:
    one, two = shared(), shared()
    one.keep(3)
    put(one, 1)
    put(one, 2)
    assert not two.try_lock(), "it is still ours"
    put(one, 3)
    assert two.try_lock(), "the third was the last"
    assert value(two) == 3


@pytest.mark.parametrize("how", ["begin", "next_seq", "terminated"])
def test_a_run_that_is_killed_while_its_lock_is_kept_is_seen_to_be(how: str) -> None:
    one, two = shared(), shared()
    one.keep(8)
    put(one, 1)
    two.table.kill()
    if how == "terminated":
        assert one.terminated is not None, "a look needs no lock"
        return
    if how == "begin":
        one.let_go()  # the calls that were read together are judged together
        put(one, 2)
    else:
        one.next_seq()
    assert one.stopped and two.try_lock()


def test_a_lock_that_was_kept_for_calls_that_do_not_come_is_let_go() -> None:
    one, two = shared(), shared()
    one.keep(8)
    put(one, 1)
    one.let_go()
    assert value(two) == 1
    put(one, 2)
    assert value(two) == 2, "and nothing is kept after it"


def test_call_numbers_run_through_all_processes_of_a_run() -> None:
    one, two = shared(), shared()
    one.begin()
    assert one.commit([(RUN, KEY, (1, 0, 0))], True) == 1
    assert [two.next_seq(), one.next_seq(), two.next_seq()] == [2, 3, 4]
    two.begin()
    assert two.commit([], True) == 5
    assert one.next_seq() == 6


def test_an_abandoned_change_is_no_change() -> None:
    state = shared()
    state.begin()
    state.abandon()
    assert value(state) is None
    put(state, 1)
    assert value(shared()) == 1


def test_budgets_hold_across_processes_and_restarts() -> None:
    snapshot = compiled(BUDGET)
    first, second = Run(snapshot, state=shared()), Run(snapshot, state=shared())
    seen = [first.action(), second.action(), first.action()]
    restarted = Run(snapshot, state=shared())
    seen += [restarted.action(), second.action(), first.action(), restarted.action()]
    assert seen == ["ALLOW"] * 5 + ["BLOCK"] * 2


def test_the_file_is_private_and_small(home: Path) -> None:
    path = Path(shared().path)
    status = path.stat()
    assert status.st_mode & 0o777 == 0o600
    assert status.st_size == FILE_BYTES
    assert WORDS_AT + PAGE <= status.st_blocks * 512 < 20 * PAGE, "what every call needs, and no more"
    assert (home / "run").stat().st_mode & 0o777 == 0o700


def test_a_deleted_file_is_a_new_beginning_and_the_numbers_of_calls_show_it() -> None:
    early = shared()
    assert [early.next_seq(), early.next_seq()] == [1, 2]
    os.unlink(early.path)
    assert shared().next_seq() == 1
    assert early.next_seq() == 3, "who had it counts on"


# -- terminated runs --------------------------------------------------------------------------------------------


def test_a_killed_run_is_seen_without_a_lock_by_everyone() -> None:
    state = shared()
    assert state.terminated is None
    assert kill("run", "OPERATOR", "Enough")
    assert state.terminated == ("OPERATOR", "Enough")
    assert state.terminated_by == ("", "")
    assert shared().terminated == ("OPERATOR", "Enough")


def test_killing_a_run_that_is_not_there_says_so(home: Path) -> None:
    assert not kill("nobody", "OPERATOR", "Enough")
    assert list_runs() == []


def test_the_first_termination_stands() -> None:
    state = shared()
    state.begin()
    state.commit([terminate_op("A", "first", "p", "r")])
    kill("run", "B", "second")
    assert (state.terminated, state.terminated_by) == (("A", "first"), ("p", "r"))


def test_the_call_that_terminates_a_run_is_told_why_and_the_next_that_it_is_over() -> None:
    spec = {"scope": "run", "limit_calls": 1, "on_exceed": "TERMINATE_RUN"}
    run, other = (Run(compiled(rule("b", "budget", **spec)), state=shared()) for _ in range(2))
    assert run.action() == "ALLOW"
    codes = [run.call().decision.reason_code, run.call().decision.reason_code, other.call().decision.reason_code]
    assert codes == ["BUDGET_EXCEEDED", "RUN_TERMINATED", "RUN_TERMINATED"]


def test_runs_are_listed_with_what_is_known_of_them() -> None:
    shared("one").next_seq()
    shared("two")
    kill("two", "OPERATOR", "Enough")
    Path(state_path("bad")).write_bytes(b"junk")
    found = {(info.run_id, info.calls, info.terminated, info.damage is None) for info in list_runs()}
    assert found == {("one", 1, None, True), ("two", 0, ("OPERATOR", "Enough"), True), ("", 0, None, False)}


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


def key(number: int) -> bytes:
    return random.Random(number).randbytes(16)


def test_a_state_at_all_its_bounds_is_all_there() -> None:
    one = shared()
    for start in range(0, MAX_KEYS, 512):
        keys = [key(number) for number in range(start, start + 512)]
        for pool, values in ((RUN, (2**61, 1, 0)), (KEYED, (5, 2**61, 7)), (MARK, (9, 1)), (WINDOW, (1, 2, 3, 4))):
            one.begin()
            one.commit([(pool, name[:-1] + bytes([pool]), values) for name in keys])
    two = shared()
    two.begin()
    for number in range(MAX_KEYS):
        for pool, values in ((RUN, (2**61, 1, 0)), (KEYED, (5, 2**61, 7)), (MARK, (9, 1)), (WINDOW, (1, 2, 3, 4))):
            assert two.get(pool, key(number)[:-1] + bytes([pool])) == values
    two.abandon()
    assert os.path.getsize(one.path) == FILE_BYTES


def test_a_flood_in_one_pool_pushes_out_nothing_of_another_and_old_ones_of_its_own() -> None:
    state = shared()
    put(state, 7)
    state.begin()
    state.commit([(KEYED, KEY[:-1] + b"!", (5, 5, 0))])
    flood = 3 * MAX_KEYS
    for start in range(0, flood, 64):
        state.begin()
        state.commit([(MARK, key(number), (number, 0)) for number in range(start, start + 64)])
    other = shared()
    assert value(other) == 7
    other.begin()
    assert other.get(KEYED, KEY[:-1] + b"!") == (5, 5, 0)
    held = [number for number in range(flood) if other.get(MARK, key(number)) is not None]
    other.abandon()
    assert len(held) >= MAX_KEYS
    assert set(range(flood - MAX_KEYS // 2, flood)) <= set(held), "the latest are kept"
    assert min(held) > 0, "and the first are gone"


def test_a_key_in_use_is_never_the_one_that_goes() -> None:
    state = shared()
    for number in range(3 * MAX_KEYS):
        state.begin()
        used = state.get(KEYED, KEY) or (0, 0, 0)
        state.commit(
            [(KEYED, key(number), (1, 1, 0)), *([(KEYED, KEY, (used[0] + 1, 0, 0))] if number % 500 == 0 else [])]
        )
    state.begin()
    assert state.get(KEYED, KEY) == (-(-3 * MAX_KEYS // 500), 0, 0)
    state.abandon()


def test_more_state_in_one_call_than_the_file_holds_is_refused_and_forgotten() -> None:
    state = shared()
    put(state, 1)
    state.begin()
    with pytest.raises(StateUnavailable):
        state.commit([(KEYED, key(number), (1, 1, 1)) for number in range(30_000)])
    put(shared(), 2)
    assert value(state) == 2


# -- damage -----------------------------------------------------------------------------------------------------


def written_run() -> str:
    """Three commits, the budget's entry and a new mark in each."""
    state = shared()
    for number in range(1, 4):
        state.begin()
        state.commit([(RUN, KEY, (number, 0, 0)), (MARK, key(number), (number, 0))])
    path = state.path
    state.close()
    return path


def length_of(whole: bytes, copy: int) -> int:
    """With its tail."""
    length, tail_length, version, _ = FRONT.unpack_from(whole, copy + FRONT_AT)
    assert (tail_length, version) == (3 * 36, 3)
    return FRONT_AT + int(length) + int(tail_length)


def test_whichever_byte_of_the_newest_table_is_damaged_the_one_before_it_stands() -> None:
    """What a write that was torn leaves: never half of a call."""
    path = written_run()
    whole = Path(path).read_bytes()
    newest = TABLES_AT + TABLE_ROOM  # three commits: the third is version 3, the second copy
    length = length_of(whole, newest)
    for at in range(newest, newest + length):
        damaged = bytearray(whole)
        damaged[at] ^= 0x5A
        Path(path).write_bytes(damaged)
        state = shared()
        assert value(state) == 2, f"byte {at - newest}"
        put(state, 9)
        assert value(shared()) == 9
        state.close()


def test_a_table_cut_off_at_any_byte_is_as_if_it_never_was() -> None:
    path = written_run()
    whole = Path(path).read_bytes()
    newest = TABLES_AT + TABLE_ROOM
    length = length_of(whole, newest)
    older = whole[TABLES_AT : TABLES_AT + TABLE_ROOM]
    for cut in range(length):
        torn = bytearray(whole)
        torn[newest : newest + length] = whole[newest : newest + cut] + older[cut:length]
        Path(path).write_bytes(torn)
        state = shared()
        assert value(state) == (3 if torn == whole else 2)
        put(state, 4)
        assert value(state) == 4
        state.close()


DAMAGE = {
    "empty": lambda raw: b"",
    "cut in the header": lambda raw: raw[: WORDS_AT - 10],
    "cut in the table": lambda raw: raw[: TABLES_AT + 50],
    "cut at the end": lambda raw: raw[:-1],
    "too long": lambda raw: raw + b"x",
    "zeroed": lambda raw: bytes(len(raw)),
    "of 0xFF": lambda raw: b"\xff" * len(raw),
    "without its words": lambda raw: raw[:WORDS_AT] + bytes(TABLES_AT - WORDS_AT) + raw[TABLES_AT:],
    "without its tables": lambda raw: raw[:TABLES_AT] + bytes(2 * TABLE_ROOM) + raw[TABLES_AT + 2 * TABLE_ROOM :],
    "of another version": lambda raw: raw[:8] + b"\x63" + raw[9:],
}


@pytest.mark.parametrize("working", [True, False], ids=["while shims work", "before a shim opens it"])
@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_file_is_a_sentence_and_a_refusal_or_a_fresh_start(damage: str, working: bool) -> None:
    path = written_run()
    early = shared()
    value(early)
    with open(path, "r+b") as file:
        raw = DAMAGE[damage](file.read())
        file.seek(0)
        file.write(raw)
        file.truncate(len(raw))
    if working and damage in ("too long", "of another version", "cut at the end"):
        assert value(early) == 3, "what is read of it is whole"
        return
    state = early if working else shared()
    closed = Run(compiled(BUDGET), state=state)
    for _ in range(2):
        decision = closed.call().decision
        assert (decision.action, decision.reason_code) == ("BLOCK", "EVALUATION_ERROR")
        assert "the run's state file is damaged: " in decision.summary and "`sub doctor`" in decision.summary
    assert os.path.getsize(path) == len(raw), "left as it is, for whoever looks into it"
    fails_open = Run(compiled(BUDGET, on_error="ALLOW"), state=state)
    assert [fails_open.action() for _ in range(7)] == ["ALLOW"] * 6 + ["BLOCK"], "one without state, then afresh"
    assert os.path.exists(path + ".bad")


@pytest.mark.parametrize("how", ["held", "damaged"])
def test_a_state_that_cannot_be_had_opens_nothing_but_the_limits_that_count_in_it(how: str) -> None:
    """An agent may hold a lock of its user's, or damage a file."""
    state = shared()
    rules = (rule("no", "deny", {"args": {"key_contains": {"cmd": ["rm"]}}}), BUDGET)
    run = Run(compiled(*rules, on_error="ALLOW"), state=state)
    if how == "damaged":
        os.truncate(state.path, 100)
    other = os.open(state.path, os.O_RDWR)
    try:
        if how == "held":
            flock(other, LOCK_EX)
        denied = run.call("sh", {"cmd": "rm x"}).decision
        assert (denied.action, denied.rule_id) == ("BLOCK", "no")
        allowed = run.call("sh", {"cmd": "ls"}).decision
        assert (allowed.action, allowed.reason_code) == (
            "ALLOW",
            "EVALUATION_ERROR" if how == "held" else "DEFAULT_ALLOW",
        )
        assert run.action("sh", {}, continues="c", leg=10_000) == "BLOCK", "nor does it lift the bound of legs"
    finally:
        os.close(other)


def test_entries_that_every_call_uses_do_not_keep_the_idle_ones_of_other_pools_in_the_table() -> None:
    state = shared()
    used = [(RUN, key(number), (1, 1, 0)) for number in range(60)]
    for number in range(100, 150):
        state.begin()
        for op in used:
            state.get(op[0], op[1])
        state.commit([*used, (KEYED, key(number), tuple(range(66)))])
    state.begin()
    assert len(state.table._image) < 60 * 44 + 4 * 548 + TABLE_ROOM
    assert all(state.get(KEYED, key(number)) == tuple(range(66)) for number in range(100, 150))
    state.abandon()


def test_a_call_with_a_new_key_is_one_store(monkeypatch: pytest.MonkeyPatch) -> None:
    state, stores = shared(), []
    real = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda *store: (stores.append(store[2]), real(*store))[1])
    for number in range(1000):
        state.begin()
        assert state.get(WINDOW, key(number)) is None
        state.commit([(RUN, KEY, (number, 0, 0)), (WINDOW, key(number), (number,))], True)
    assert 1000 < len(stores) < 1050, "and one more for many calls, to a ring"


def test_an_entry_that_was_written_many_times_may_become_longer() -> None:
    state, other = shared(), key(1)
    for values in [(1, 2, 3)] * 4 + [(1, 2, 3, 4), (5, 6, 7)] * 2:
        state.begin()
        state.commit([(KEYED, KEY, values), (RUN, other, values[:3])], True)
        for view in (state, shared()):
            view.begin()
            assert (view.get(KEYED, KEY), view.get(RUN, other)) == (values, values[:3])
            view.abandon()


def test_an_entry_that_others_made_longer_in_the_same_place_is_written_as_it_stands() -> None:
    """One knows the first and the last of three entries, which stand where they stood: the first is another one now."""
    one, two = shared(), shared()
    first, middle, last = key(1), key(2), key(3)
    one.begin()
    one.commit([(RUN, first, (1, 1, 1)), (KEYED, middle, (1, 2, 3, 4, 5)), (RUN, last, (1, 1, 1))])
    for number in range(4):
        for state in (two, one):
            state.begin()
            state.commit([(RUN, first, (number, 0, 0)), (RUN, last, (number, 0, 0))])
    five = (1, 2, 3, 4, 5)
    for name, values in ((first, five), (middle, five[:3]), (last, five), (last, five[:3])):
        one.begin()
        one.commit([(RUN, name, values)])
    two.begin()
    assert [two.get(RUN, name) for name in (first, middle, last)] == [five, five[:3], five[:3]]
    two.commit([(RUN, first, (7, 7, 7))])
    for state in (one, two, shared()):
        state.begin()
        assert [state.get(RUN, name) for name in (first, middle, last)] == [(7, 7, 7), five[:3], five[:3]]
        state.abandon()


def test_a_call_after_another_process_costs_little_more_than_one_after_our_own() -> None:
    """What stands where it stood is not searched for, and values are put in their places as ever."""
    one, two = shared(), shared()
    names = [key(number) for number in range(10)]

    def call(state: SharedState) -> None:
        state.begin()
        counts = [state.get(RUN, name) or (0, 0, 0) for name in names]
        state.commit([(RUN, name, (count[0] + 1, 0, 0)) for name, count in zip(names, counts, strict=True)], True)

    for state in (one, two) * 4:
        call(state)
    after_other = calls_made(lambda: call(one))
    after_own = calls_made(lambda: call(one))
    assert after_other <= after_own + 20 + 3 * len(names)


def test_in_a_crowd_what_others_did_is_gone_through_before_the_lock_is_asked_for() -> None:
    one, two = shared(), shared()
    for number in range(3):
        put(one, number)
        put(two, number)
    assert one.table.crowded
    put(two, 77)
    flock(two.table.fd, LOCK_EX)
    one.wait_no_more()
    with pytest.raises(StateUnavailable, match="does not let go"):
        one.begin()
    assert one.table.get(RUN, KEY) == (77, 0, 0)
    flock(two.table.fd, LOCK_UN)
    assert value(one) == 77


def test_what_cannot_be_read_whole_before_the_lock_is_read_under_it() -> None:
    one, two = shared(), shared()
    put(one, 1)
    put(two, 2)
    put(one, 3)
    put(two, 4)
    whole = os.pread(two.table.fd, PAGE, WORDS_AT)
    os.pwrite(two.table.fd, bytes(PAGE), WORDS_AT)  # as a page in the middle of being written
    real = one.table.lock.take

    def take(seconds: float) -> bool:
        os.pwrite(two.table.fd, whole, WORDS_AT)
        flock(two.table.fd, LOCK_UN)
        return real(seconds)

    flock(two.table.fd, LOCK_EX)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(one.table.lock), "take", lambda self, seconds: take(seconds))
        assert value(one) == 4


def test_a_state_of_its_own_is_read_once_for_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    state, reads = shared(), []
    put(state, 1)  # after it nothing is new
    put(state, 1)
    real = os.pread
    monkeypatch.setattr(os, "pread", lambda *where: reads.append(where) or real(*where))
    put(state, 2)
    assert len(reads) == 1


@pytest.mark.parametrize("again", [(5,), (5, 6)], ids=["as long", "longer"])
def test_a_new_key_that_is_used_again_has_its_newest_values_wherever_it_moves(again: tuple[int, ...]) -> None:
    one, two = shared(), shared()
    one.begin()
    one.commit([(WINDOW, KEY, (1,))])
    two.begin()
    assert two.get(WINDOW, KEY) == (1,), "from the tail"
    two.commit([(WINDOW, KEY, again)])

    def seen() -> list[tuple[int, ...] | None]:
        found = []
        for state in (one, two, shared()):
            state.begin()
            found.append(state.get(WINDOW, KEY))
            state.abandon()
        return found

    assert seen() == [again] * 3
    for number in range(200):  # the tail, and with it the first entry, goes to a ring
        one.begin()
        one.commit([(MARK, key(number), (number, 0)), (WINDOW, key(number + 500), (number,))])
    assert seen() == [again] * 3
    for number in range(200, 300):  # the table's own entries too
        one.begin()
        one.commit([(KEYED, key(number), tuple(range(30)))])
        one.begin()
        one.commit([(WINDOW, key(number + 500), (number,))])
        one.begin()
        one.commit([(WINDOW, key(number + 500), (number, 1))])
    assert seen() == [again] * 3


def test_a_process_that_starts_afresh_takes_the_others_with_it() -> None:
    path = written_run()
    one, two = (Run(compiled(BUDGET, on_error="ALLOW"), state=shared()) for _ in range(2))
    os.truncate(path, 100)
    assert [one.action(), two.action()] == ["ALLOW"] * 2
    seen = [run.action() for _ in range(3) for run in (one, two)]
    assert seen == ["ALLOW"] * 5 + ["BLOCK"], "both on the same fresh file"


def test_a_killed_run_stays_killed_when_its_damaged_file_is_replaced() -> None:
    path = written_run()
    kill("run", "OPERATOR", "Enough")
    with open(path, "r+b") as file:
        file.seek(TABLES_AT)
        file.write(bytes(2 * TABLE_ROOM))
    run = Run(compiled(BUDGET, on_error="ALLOW"), state=shared())
    assert [run.action() for _ in range(3)] == ["TERMINATE_RUN"] * 3


def test_a_damaged_cold_page_is_noticed_by_those_who_need_it() -> None:
    state = shared()
    for start in range(0, 1024, 64):
        state.begin()
        state.commit([(MARK, key(number), (number, 0)) for number in range(start, start + 64)])
    state.begin()
    state.commit([(MARK, key(1024), (1024, 0))])
    with open(state.path, "r+b") as file:
        for at in range(RINGS_AT, FILE_BYTES, PAGE):
            file.seek(at + 20)
            file.write(b"\xff\xff")
    state.begin()
    with pytest.raises(StateDamaged):
        state.get(MARK, key(0))
    assert state.get(MARK, key(1024)) == (1024, 0), "it is in the table"
    state.abandon()


def test_random_damage_never_crashes() -> None:
    path = written_run()
    whole = Path(path).read_bytes()
    dice = random.Random(7)
    snapshot = compiled(BUDGET, rule("d", "dedupe", scope="run", window_ms=10, on_duplicate="BLOCK"))
    for _ in range(150):
        damaged = bytearray(whole)
        for _ in range(dice.randrange(1, 20)):
            at = dice.choice((dice.randrange(128), dice.randrange(WORDS_AT, TABLES_AT + 2 * TABLE_ROOM)))
            damaged[at] = dice.randrange(256)
        Path(path).write_bytes(damaged)
        state = shared()
        assert Run(snapshot, state=state).action() in ("ALLOW", "BLOCK")
        state.close()


# -- clocks, directories, links -----------------------------------------------------------------------------------


def test_after_a_reboot_counts_stay_and_times_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    state = shared()
    state.begin()
    state.commit(
        [(RUN, KEY, (4, 4, 0)), (RUN, key(2), (1, 0, 10**9)), (MARK, key(0), (10**9, 0)), (WINDOW, key(1), (10**9,))]
    )
    for start in range(0, 512, 64):  # beyond one page
        state.begin()
        state.commit([(MARK, key(number), (number, 0)) for number in range(start + 10, start + 74)])
    state.close()
    monkeypatch.setattr("subluminal.host.run.state.boot_id", lambda: 77)
    again = shared()
    assert value(again) == 4
    again.begin()
    assert [again.get(RUN, key(2)), again.get(MARK, key(0)), again.get(WINDOW, key(1)), again.get(MARK, key(20))] == [
        None
    ] * 4
    again.abandon()
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


def test_a_pipe_in_the_place_of_the_file_hangs_nobody() -> None:
    shared("other")
    os.mkfifo(state_path("run"))
    assert isinstance(SharedState.open("run"), LocalState)


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


def test_a_stopped_holder_does_not_hang_the_others(
    holder: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table, "LOCK_WAIT_SECONDS", 0.4)
    monkeypatch.setattr(table, "LOCK_WAIT_AGAIN_SECONDS", 0.01)
    os.kill(holder.pid, signal.SIGSTOP)
    run = Run(compiled(BUDGET), state=shared())
    first = run.call()
    assert (first.decision.action, first.decision.reason_code) == ("BLOCK", "EVALUATION_ERROR")
    assert "does not let go" in first.decision.summary
    assert first.seq >= 1
    state = run.state
    assert isinstance(state, SharedState)
    assert state.table.wait == 0.01, "later calls wait less"
    assert run.call().decision.reason_code == "EVALUATION_ERROR"
    os.kill(holder.pid, signal.SIGCONT)
    holder.kill()
    holder.wait(GENEROUS_S)
    state.table.wait = GENEROUS_S
    assert run.action() == "ALLOW"
    assert state.table.wait == 0.4


def test_a_run_can_be_killed_while_a_stopped_process_holds_its_state(
    holder: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table, "LOCK_WAIT_SECONDS", 0.1)
    os.kill(holder.pid, signal.SIGSTOP)
    run = Run(compiled(rule("a", "allow")), state=shared())
    assert kill("run", "OPERATOR", "Enough")
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
