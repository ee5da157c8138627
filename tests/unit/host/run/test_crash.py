"""Killed at any store: the whole effect of a call, or nothing of it. Every write of a call is cut short, one by one."""

from __future__ import annotations

import errno
import os
import random
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from subluminal.core.engine.state import (
    KEYED,
    MARK,
    MAX_VALUES,
    RUN,
    WIDE,
    WINDOW,
    LocalState,
    StateUnavailable,
    terminate_op,
)
from subluminal.host.run import table
from subluminal.host.run.pages import RINGS
from subluminal.host.run.state import SharedState

POOLS = ((RUN, 3), (KEYED, 3), (MARK, 2), (WINDOW, 5))


CALLS = 12_000 if os.environ.get("HYPOTHESIS_PROFILE") == "fuzz" else 1_200


class Killed(BaseException):
    """What a process that is killed leaves: no more stores, no clean-up but the kernel's."""


class Dying:
    """`os` for the table: the write with this number is cut at a share of its bytes, and is the last one."""

    def __init__(self, at: int, share: float) -> None:
        self.at, self.share, self.writes = at, share, 0
        self.pread = os.pread
        self.close = os.close

    def pwrite(self, fd: int, raw: bytes, offset: int) -> int:
        if self.writes == self.at:
            os.pwrite(fd, bytes(raw)[: int(len(raw) * self.share)], offset)
            raise Killed
        self.writes += 1
        return os.pwrite(fd, raw, offset)


def ops_of(dice: random.Random, keys: list[bytes], wide: bool) -> list[tuple[Any, ...]]:
    ops: list[tuple[Any, ...]] = []
    for key in dice.sample(keys, dice.randrange(1, min(12, len(keys)))):
        pool, count = POOLS[key[0] % len(POOLS)]
        values = tuple(dice.randrange(2**40) for _ in range(count if pool != WINDOW else dice.randrange(1, count)))
        ops.append((pool + WIDE * (wide and key[0] % 2), key, values))
    return ops


def content(state: SharedState | LocalState, keys: list[bytes]) -> dict[tuple[int, bytes], Any]:
    state.begin(True)
    found = {
        (pool, key): state.get(pool, key)
        for key in keys
        for pool in (POOLS[key[0] % len(POOLS)][0], POOLS[key[0] % len(POOLS)][0] + WIDE)
    }
    state.abandon()
    return {name: values for name, values in found.items() if values is not None}


def opened(directory: Path) -> SharedState:
    state = SharedState.open("run", str(directory))
    assert isinstance(state, SharedState), state.reason
    return state


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SUB_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9, 1.0])
@pytest.mark.parametrize("many", [10, 400], ids=["a table of one page", "entries that move to cold pages"])
def test_a_call_that_is_cut_short_at_any_store_is_whole_or_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, many: int, share: float
) -> None:
    dice = random.Random(many)
    keys = [dice.randbytes(16) for _ in range(many)]
    folder = tmp_path / "run"
    state = opened(folder)
    for _ in range(60):
        state.begin()
        state.commit(ops_of(dice, keys, wide=False), True)
    state.close()
    cut_short = 0
    for number in range(30):
        ops = ops_of(dice, keys, wide=False)
        before = content(opened(folder), keys)
        after = {**before, **{(op[0], op[1]): op[2] for op in ops}}
        for at in range(12):
            shutil.copytree(folder, tmp_path / f"case-{number}-{at}")
            victim = opened(tmp_path / f"case-{number}-{at}")
            victim.begin()
            with monkeypatch.context() as patched:
                dying = Dying(at, share)
                patched.setattr(table, "os", dying)
                try:
                    victim.commit(ops, True)
                except Killed:
                    cut_short += 1
            victim.close()
            survivor = opened(tmp_path / f"case-{number}-{at}")
            found = content(survivor, keys)
            assert found in (before, after), (number, at)
            assert survivor.next_seq() == 61 + number + (found == after)
            survivor.close()
            shutil.rmtree(tmp_path / f"case-{number}-{at}")
            if dying.writes < at:
                break
        state = opened(folder)
        state.begin()
        state.commit(ops, True)
        state.close()
    assert cut_short >= 30


@pytest.mark.parametrize("at", range(4))
def test_a_termination_that_is_cut_short_is_whole_or_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    state = opened(tmp_path)
    state.begin()
    with monkeypatch.context() as patched:
        patched.setattr(table, "os", Dying(at, 0.5))
        try:
            state.commit([(RUN, b"k" * 16, (1, 1, 0)), terminate_op("CODE", "why", "p", "r")], True)
        except Killed:
            pass
    state.close()
    survivor = opened(tmp_path)
    survivor.begin()
    charged = survivor.get(RUN, b"k" * 16) is not None
    stopped = survivor.stopped
    survivor.abandon()
    assert charged == stopped, "the charge and the order to stop are of one call"
    survivor.next_seq()
    assert survivor.stopped == stopped
    if stopped:
        assert survivor.terminated == ("CODE", "why")


class Full(Dying):
    """No store goes through from this one on."""

    def pwrite(self, fd: int, raw: bytes, offset: int) -> int:
        if self.writes >= self.at:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().pwrite(fd, raw, offset)


@pytest.mark.parametrize("kept", [2, 1])
def test_after_calls_that_could_not_be_written_no_call_is_judged_by_state_that_cannot_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: int
) -> None:
    state, other = opened(tmp_path), opened(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(table, "os", Full(0, 0))
        state.keep(2)
        state.begin()
        state.commit([(RUN, b"k" * 16, (1, 1, 0))], True)
        if kept == 1:  # the last is stored with those before it
            state.begin()
            with pytest.raises(StateUnavailable, match="cannot be written"):
                state.commit([(RUN, b"k" * 16, (2, 1, 0))], True)
        state.let_go()
        for _ in range(2):
            state.keep(8)
            state.begin()
            with pytest.raises(StateUnavailable, match="cannot be written"):
                state.commit([(RUN, b"k" * 16, (1, 1, 0))], True)
            assert other.try_lock(), "and nobody is kept out"
            other.let_go()
    state.keep(8)
    state.begin()
    assert state.get(RUN, b"k" * 16) is None
    state.commit([(RUN, b"k" * 16, (1, 1, 0))], True)
    assert other.try_lock(), "the first that goes through is written by itself"


def most_of(pool: int, dice: random.Random) -> tuple[int, ...]:
    """Values of an entry, some of them of a window in full use."""
    count = dice.choice([3, 3, MAX_VALUES]) if pool == KEYED else dice.choice([1, 1, 2, 40]) if pool == WINDOW else 3
    return tuple(dice.randrange(1, 2**40) for _ in range(2 if pool == MARK else count))


@pytest.mark.parametrize("seed", range(2))
def test_rings_that_go_round_lose_nothing_that_fits_and_give_nothing_old(tmp_path: Path, seed: int) -> None:
    """Thousands of calls by three processes, some killed at a store: pages are used again and again."""
    dice = random.Random(seed)
    keys = [dice.randbytes(16) for _ in range(4_000)]
    views = [opened(tmp_path) for _ in range(3)]
    model: dict[bytes, tuple[int, ...]] = {}
    killed = 0
    for _ in range(CALLS):
        view = dice.randrange(3)
        state = views[view]
        some = dice.sample(keys, dice.choice([2, 5, 60]))
        ops = [(key[0] % 4, key, most_of(key[0] % 4, dice)) for key in some]
        state.begin()
        assert [state.get(pool, key) for pool, key, _ in ops] == [model.get(key) for key in some]
        real, table.os = table.os, Dying(dice.randrange(8 if dice.random() < 0.1 else 10**6), 0.5)  # type: ignore[attr-defined]
        try:
            state.commit(ops, True)
        except Killed:
            killed += 1
            state.close()
            views[view] = state = opened(tmp_path)
        finally:
            table.os = real  # type: ignore[attr-defined]
        state.begin()
        found = {key: state.get(pool, key) for pool, key, _ in ops}
        state.abandon()
        if found != {key: model.get(key) for key in some}:
            assert found == {key: values for _, key, values in ops}
            model |= {key: values for _, key, values in ops}
    assert killed > CALLS // 100
    rounds = [ring.last / RINGS[pool] for pool, ring in enumerate(views[0].table.rings)]
    assert max(rounds) > 2, rounds


def test_a_call_with_more_new_keys_than_a_ring_takes_at_once_is_whole_or_nothing(tmp_path: Path) -> None:
    """A policy of thousands of rules: its keys stay in the table, and move with later calls."""
    dice = random.Random(1)
    state = opened(tmp_path)
    model: dict[bytes, tuple[int, ...]] = {}
    killed = written = 0
    for number in range(30):
        count = 3_000 if number % 3 == 0 else 3
        ops = [(WINDOW, dice.randbytes(16), (number,)) for _ in range(count)]
        state.begin()
        real, table.os = table.os, Dying(dice.randrange(24) if number % 2 else 10**6, 0.5)  # type: ignore[attr-defined]
        try:
            state.commit(ops, True)
        except Killed:
            killed += 1
            state.close()
            state = opened(tmp_path)
        finally:
            table.os = real  # type: ignore[attr-defined]
        state.begin()
        found = [state.get(WINDOW, key) for _, key, _ in ops]
        state.abandon()
        assert found in ([None] * count, [(number,)] * count)
        if found[0] is not None:
            written += 1
            model |= {key: values for _, key, values in ops}
            while len(model) > 3_000:  # with so many at once, who is the least recently used is not kept to the call
                del model[next(iter(model))]
    assert killed > 5
    assert written > 15
    for view in (state, opened(tmp_path)):
        view.begin()
        assert all(view.get(WINDOW, key) == values for key, values in model.items())
        view.abandon()


class TableModel(RuleBasedStateMachine):
    """Three processes over one file, and a dictionary beside it."""

    @initialize(many=st.sampled_from([8, 300]), seed=st.integers(0, 2**32))
    def start(self, many: int, seed: int) -> None:
        import tempfile

        self.folder = Path(tempfile.mkdtemp(prefix="subluminal-table-"))
        os.environ["SUB_HOME"] = str(self.folder)
        self.dice = random.Random(seed)
        self.keys = [self.dice.randbytes(16) for _ in range(many)]
        self.views = [opened(self.folder) for _ in range(3)]
        self.model = LocalState()

    def teardown(self) -> None:
        for view in getattr(self, "views", ()):
            view.close()
        shutil.rmtree(getattr(self, "folder", ""), ignore_errors=True)

    @rule(view=st.integers(0, 2), wide=st.booleans())
    def change(self, view: int, wide: bool) -> None:
        ops = ops_of(self.dice, self.keys, wide)
        state = self.views[view]
        state.begin(wide)
        for op in ops:
            assert state.get(op[0], op[1]) == self.model.get(op[0], op[1])
        assert state.commit(ops, True) == self.model.commit(ops, True)

    @rule(view=st.integers(0, 2), calls=st.lists(st.sampled_from(["run", "wide", "none"]), min_size=2, max_size=9))
    def change_several_under_one_lock(self, view: int, calls: list[str]) -> None:
        state = self.views[view]
        state.keep(len(calls))
        for kind in calls:
            if kind == "none":
                assert state.next_seq() == self.model.next_seq()
            else:
                self.change(view, kind == "wide")
        state.let_go()

    @rule(view=st.integers(0, 2), calls=st.integers(2, 9), at=st.integers(0, 9), share=st.sampled_from([0.0, 0.5, 1.0]))
    def kill_one_at_a_store_of_several(self, view: int, calls: int, at: int, share: float) -> None:
        """None of them has gone anywhere before `let_go`: the first few of them are there, or none."""
        state, made = self.views[view], [ops_of(self.dice, self.keys, False) for _ in range(calls)]
        real, table.os = table.os, Dying(at, share)  # type: ignore[attr-defined]
        try:
            state.keep(calls)
            for ops in made:
                state.begin()
                state.commit(ops, True)
            state.let_go()
            at = -1
        except Killed:
            pass
        finally:
            table.os = real  # type: ignore[attr-defined]
        self.restart(view)
        found = content(self.views[view], self.keys)
        whole = self.model_after(made) == found
        assert whole or at >= 0, "what was let go is there"
        while content(self.model, self.keys) != found:
            self.model.commit(made.pop(0), True)

    def model_after(self, made: list[list[tuple[Any, ...]]]) -> dict[tuple[int, bytes], Any]:
        after = content(self.model, self.keys)
        for ops in made:
            after |= {(op[0], op[1]): op[2] for op in ops}
        return after

    @rule(view=st.integers(0, 2))
    def count(self, view: int) -> None:
        assert self.views[view].next_seq() == self.model.next_seq()

    @rule(view=st.integers(0, 2))
    def restart(self, view: int) -> None:
        self.views[view].close()
        self.views[view] = opened(self.folder)

    @rule(view=st.integers(0, 2), at=st.integers(0, 8), share=st.sampled_from([0.0, 0.5, 1.0]))
    def kill_one_at_a_store(self, view: int, at: int, share: float) -> None:
        ops = ops_of(self.dice, self.keys, False)
        state, before = self.views[view], content(self.model, self.keys)
        state.begin()
        real, table.os = table.os, Dying(at, share)  # type: ignore[attr-defined]
        try:
            state.commit(ops, True)
        except Killed:
            pass
        finally:
            table.os = real  # type: ignore[attr-defined]
        self.restart(view)
        found = content(self.views[view], self.keys)
        if found != before:
            self.model.commit(ops, True)

    @invariant()
    def every_view_is_the_model(self) -> None:
        if hasattr(self, "views"):
            expected = content(self.model, self.keys)
            assert all(content(view, self.keys) == expected for view in self.views)


MANY = 400 if os.environ.get("HYPOTHESIS_PROFILE") == "fuzz" else 25
TableModel.TestCase.settings = settings(max_examples=MANY, stateful_step_count=30, deadline=None)
TestTableModel = TableModel.TestCase
