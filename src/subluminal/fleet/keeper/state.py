"""`state.json`: how each task of the keeper fares, for `sub fleet status`, `sub doctor` and whoever looks."""

from __future__ import annotations

from threading import Lock
from typing import Any

import msgspec

from subluminal.host.files import read_private, replace_file
from subluminal.host.home import fleet_state_file

_MAX_BYTES = 1 << 20
_MAX_ERROR_CHARS = 500


class TaskState(msgspec.Struct, omit_defaults=True):
    """`last_good_ms`: when a step last went well. `code` is a stable word where the error has one."""

    last_good_ms: int = 0
    last_error: str = ""
    last_error_ms: int = 0
    code: str = ""
    failures: int = 0  # since it last went well
    facts: dict[str, Any] = {}


class State(msgspec.Struct, omit_defaults=True):
    pid: int = 0
    started_ms: int = 0
    tasks: dict[str, TaskState] = {}


def read_state(home: str | None = None) -> State:
    """What the last keeper has seen; empty where there was none, or the file is not whole."""
    try:
        return msgspec.json.decode(read_private(fleet_state_file(home), _MAX_BYTES), type=State)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return State()


class StateFile:
    """Written by one keeper, from several threads. A home that cannot be written keeps what it has."""

    def __init__(self, home: str, pid: int, now_ms: int) -> None:
        self._path = fleet_state_file(home)
        self._lock = Lock()
        self.state = read_state(home)
        self.state.pid, self.state.started_ms = pid, now_ms

    def good(self, task: str, now_ms: int, facts: dict[str, Any] | None = None) -> None:
        with self._lock:
            was = self.state.tasks.get(task) or TaskState()
            self.state.tasks[task] = TaskState(last_good_ms=now_ms, facts=facts if facts is not None else was.facts)
            self._write()

    def failed(self, task: str, error: Exception, now_ms: int, facts: dict[str, Any] | None = None) -> bool:
        """True: it had not failed in this way before."""
        text = f"{error}"[:_MAX_ERROR_CHARS] or type(error).__name__
        with self._lock:
            was = self.state.tasks.get(task) or TaskState()
            code = str(getattr(error, "code", "") or "")
            known = facts if facts is not None else was.facts
            self.state.tasks[task] = TaskState(was.last_good_ms, text, now_ms, code, was.failures + 1, known)
            self._write()
        return text != was.last_error or was.failures == 0

    def _write(self) -> None:
        try:
            replace_file(self._path, msgspec.json.format(msgspec.json.encode(self.state)) + b"\n")
        except OSError:
            pass
