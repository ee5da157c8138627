"""Who runs an agent on this machine: `SUB_HOME/run/<pid>.json`, written by `sub run` and `sub agent run`.

For shims whose client scrubbed their environment: they find the run through the nearest registered ancestor. A file
counts only while its process lives; the start time tells it from a later process with the same number.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from subluminal.host import home
from subluminal.host.files import read_private, replace_file
from subluminal.host.identity import start_time


class Registration:
    """Raises OSError where the home cannot be written; the run can go on without."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        for left in stale_registrations():
            _unlink(left)
        home.ensure_private_dir(home.run_dir())
        self._path = home.registration_file(os.getpid())
        entry = {
            "pid": os.getpid(),
            "start": start_time(os.getpid()),
            "environ": {name: value for name, value in environ.items() if name.startswith("SUB_")},
        }
        replace_file(self._path, json.dumps(entry).encode())

    def remove(self) -> None:
        _unlink(self._path)


def registered(run_id: str) -> list[int]:
    """Living processes that have registered themselves as the keeper of this run."""
    found = []
    for path in _files():
        entry = _read(path)
        if entry is not None and not is_stale(path) and entry.get("environ", {}).get("SUB_RUN_ID") == run_id:
            found.append(_pid(path))
    return found


def stale_registrations() -> list[str]:
    """Paths left by a `sub run` that was killed: their process is gone, or its number belongs to another one now."""
    return [path for path in _files() if is_stale(path)]


def is_stale(path: str) -> bool:
    started = start_time(_pid(path))
    if not started:
        return True
    entry = _read(path)
    return entry is not None and entry.get("start") != started


def _pid(path: str) -> int:
    """By its name, whose process was looked at; what stands inside could name any other, or all of them (-1)."""
    return int(os.path.basename(path).partition(".")[0])


def _files() -> list[str]:
    directory = home.run_dir()
    try:
        names = sorted(os.listdir(directory))
    except OSError:
        return []
    ours = [name for name in names if name.endswith(".json") and name.partition(".")[0].isdecimal()]
    return [os.path.join(directory, name) for name in ours]


def _read(path: str) -> dict[str, Any] | None:
    """None: being written at this moment, or not ours."""
    try:
        entry = json.loads(read_private(path).decode("utf-8", "surrogateescape"))
    except (OSError, ValueError):
        return None
    return entry if isinstance(entry, dict) and isinstance(entry.get("environ"), dict) else None


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass
