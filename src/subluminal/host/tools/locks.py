"""The locks of tools in force: the user's in SUB_HOME, and those of the repository (`.subluminal/tools.lock`).

A lock that cannot be read is never "no pins": `broken` says which and why, and whoever asks must take every tool for
changed. A lock that was good when this process read it stands until the next good one.
"""

from __future__ import annotations

import os

from subluminal.contracts.errors import ToolsError
from subluminal.host.files import read_private, replace_file
from subluminal.host.home import REPOSITORY_TOOLS_LOCK, ensure_private_dir, repository_files, sub_home, tools_lock_file
from subluminal.surface.pins import MAX_LOCK_BYTES, Lock, Pin, parse, render

TYPE_CHECKING = False
if TYPE_CHECKING:
    _Stamp = tuple[int, int, int] | None


class Locks:
    """As seen from one directory; None: of no repository. `path`s that are not there pin nothing."""

    def __init__(self, directory: str | None) -> None:
        self._directory = directory
        self._stamps: dict[str, _Stamp] = {}
        self._good: dict[str, Lock] = {}
        self.user: Lock = {}
        self.repository: list[Lock] = []
        self.broken: str | None = None
        self.refresh()

    def refresh(self) -> bool:
        """Whether anything has changed. Some `stat` calls where nothing has."""
        user, repository = tools_lock_file(), self._repository()
        stamps = {path: _stamp(path) for path in (user, *repository)}
        if stamps == self._stamps:
            return False
        self._stamps = stamps
        self.broken = None
        self.user = self._read(user, mine=True)
        self.repository = [lock for lock in (self._read(path) for path in repository) if lock]
        return True

    def pins(self, server_name: str, key: str) -> tuple[Pin | None, list[Pin]]:
        """The user's pin of an item, and those of the repository."""
        user = self.user.get(server_name, {}).get(key)
        found = [pin for lock in self.repository if (pin := lock.get(server_name, {}).get(key)) is not None]
        return user, found

    @property
    def is_empty(self) -> bool:
        return not self.user and not self.repository and self.broken is None

    def _repository(self) -> list[str]:
        return [] if self._directory is None else repository_files(self._directory, REPOSITORY_TOOLS_LOCK)

    def _read(self, path: str, mine: bool = False) -> Lock:
        try:
            lock = self._good[path] = read_lock(path, mine)
        except ToolsError as fault:
            self.broken = self.broken or f"{path} {fault}"
            return self._good.get(path, {})
        return lock


def read_lock(path: str, mine: bool = False) -> Lock:
    """Nothing where there is no file. `mine`: below SUB_HOME, where no link is followed."""
    try:
        if mine:
            data = read_private(path, MAX_LOCK_BYTES + 1)
        else:
            with open(path, "rb") as file:
                data = file.read(MAX_LOCK_BYTES + 1)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise ToolsError(f"cannot be read: {error.strerror}") from None
    if len(data) > MAX_LOCK_BYTES:
        raise ToolsError(f"is larger than {MAX_LOCK_BYTES} bytes")
    return parse(data)


def write_lock(path: str, lock: Lock, mine: bool = False) -> None:
    """The file as a whole, or not at all. What pins nothing is no file."""
    if mine:
        ensure_private_dir(sub_home())
    else:
        os.makedirs(os.path.dirname(path), exist_ok=True)
    replace_file(path, render(lock), mode=0o600 if mine else 0o644)


def _stamp(path: str) -> _Stamp:
    try:
        facts = os.stat(path)
    except OSError:
        return None
    return facts.st_mtime_ns, facts.st_size, facts.st_ino
