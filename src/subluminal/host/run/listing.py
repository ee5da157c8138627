"""The runs of this machine that have state: to list them, and to order their end."""

from __future__ import annotations

import os

from subluminal.core.engine.state import StateUnavailable
from subluminal.host.home import run_dir
from subluminal.host.run.files import run_id_of, state_path
from subluminal.host.run.legacy import kill_old, read_old
from subluminal.host.run.state import SharedState, open_file

_SUFFIX = ".2.state"


class RunInfo:
    """One run's state file, as `sub` lists it."""

    __slots__ = ("calls", "damage", "path", "run_id", "terminated", "used_at")

    def __init__(
        self,
        run_id: str,
        path: str,
        calls: int,
        terminated: tuple[str, str] | None,
        used_at: float,
        damage: str | None = None,
    ) -> None:
        self.run_id = run_id
        self.path = path
        self.calls = calls
        self.terminated = terminated
        self.used_at = used_at
        self.damage = damage


def list_runs(directory: str | None = None) -> list[RunInfo]:
    """The runs with state on this machine, latest first."""
    where = directory or run_dir()
    try:
        names = set(os.listdir(where))
    except OSError:
        return []
    runs = []
    for name in names:
        path = os.path.join(where, name)
        if name.endswith(_SUFFIX):
            info = _read_info(path)
        elif name.endswith(".state") and name[: -len(".state")] + _SUFFIX not in names:
            info = _read_old_info(path)
        else:
            continue
        if info is not None:
            runs.append(info)
    return sorted(runs, key=lambda info: info.used_at, reverse=True)


def _read_info(path: str) -> RunInfo | None:
    try:
        _, fd, damage = open_file(path, "", create=False)
    except (OSError, StateUnavailable):
        return None
    run_id = run_id_of(fd)
    state = SharedState(run_id, path, fd, damage)
    used_at = os.fstat(fd).st_mtime
    try:
        terminated = state.terminated
        calls = 0
        if damage is None:
            state.table.read()
            calls = state.table.calls + state.table.plain_calls
    except StateUnavailable as unavailable:
        damage = str(unavailable)
    finally:
        state.close()
    return RunInfo(run_id, path, calls, terminated, used_at, damage)


def _read_old_info(path: str) -> RunInfo | None:
    old = read_old(path)
    if old is None:
        return None
    terminated = ("RUN_TERMINATED", "") if old.ended else None
    return RunInfo(old.run_id, path, old.calls, terminated, os.lstat(path).st_mtime)


def kill(run_id: str, code: str, message: str, directory: str | None = None) -> bool:
    """Terminate a run from outside. False: no such run on this machine.

    Works even while a stopped process holds the state; only the words are then lost.
    """
    where = directory or run_dir()
    old = kill_old(state_path(run_id, where, 1))
    try:
        state = SharedState(run_id, *open_file(state_path(run_id, where), run_id, create=False))
    except (OSError, StateUnavailable):
        return old
    try:
        state.table.kill()
        state.terminate(code, message)
    except StateUnavailable:
        pass
    finally:
        state.close()
    return True
