"""Texts with the places of a person and of a project made general, and the machine on which such texts are judged.

`/home/ada/work/web/src/a.py` in a session of `/home/ada/work/web` is `/workspace/src/a.py` for every project and every
person: so runs in several repositories support one rule, and no name of a home or a project is copied. A policy calls
the two places `.` and `~`.
"""

from __future__ import annotations

import os
import posixpath
import re
from functools import lru_cache
from typing import Any

from subluminal.agents.transcripts.seen import SeenCall
from subluminal.core.redact.redactor import Redactor
from subluminal.host.identity import repository_root
from subluminal.host.run.root import root_of

WORKSPACE, HOME = "/workspace", "/home/you"
_HOMES = re.compile(r"^(/home/[^/]+|/Users/[^/]+|/root|/var/home/[^/]+)(?=/|$)")
# A text that is one long word of letters and digits is a key or a digest more often than a name.
_OPAQUE = re.compile(r"(?=[^/]*[0-9])(?=[^/]*[A-Za-z])[A-Za-z0-9+/_=-]{28,}")

# Calls whose paths are looked at to find where a run was.
_ASKED = 200

_redactor = Redactor()


@lru_cache(4_096)
def _root(cwd: str) -> str:
    """Where the project of a directory begins; empty: nowhere in particular, so that no path is its own."""
    if not cwd.startswith("/"):
        return ""
    root = root_of(cwd) if os.path.isdir(cwd) else posixpath.normpath(cwd)
    home = _HOMES.match(root)
    return "" if root.count("/") < 2 or (home is not None and home[0] == root) or root == _own_home() else root


def project_root(calls: list[SeenCall]) -> str:
    """Of a run whose record does not tell where it was: the repository that most of its paths lie in, else none."""
    votes: dict[str, int] = {}
    for call in calls[:_ASKED]:
        for value in call.args.values():
            if isinstance(value, str) and value.startswith("/") and len(value) < 1_000 and "\n" not in value:
                found = _repository(posixpath.dirname(value))
                if found:
                    votes[found] = votes.get(found, 0) + 1
    return max(sorted(votes), key=lambda root: votes[root]) if votes else ""


@lru_cache(4_096)
def _repository(directory: str) -> str:
    try:
        return repository_root(directory) or "" if os.path.isdir(directory) else ""
    except (OSError, ValueError):
        return ""


@lru_cache(1)
def _own_home() -> str:
    return os.path.expanduser("~").rstrip("/")


class Generaliser:
    """Of the calls of one run."""

    def __init__(self, root: str | None = None) -> None:
        self._root_given = root

    def args(self, call: SeenCall) -> dict[str, Any]:
        root = self._root_given if self._root_given is not None else _root(call.cwd)
        pairs = _pairs(root, call.cwd)
        return call.args if not pairs else {key: _general(value, pairs) for key, value in call.args.items()}


@lru_cache(4_096)
def _pairs(root: str, cwd: str) -> tuple[tuple[str, str], ...]:
    """What is replaced by what, the longest first."""
    found = {}
    if root:
        found[root] = WORKSPACE
        if cwd and cwd != root and os.path.realpath(cwd).startswith(root):
            found[cwd] = WORKSPACE + os.path.realpath(cwd)[len(root) :]
    for place in (root, cwd):
        home = _HOMES.match(place)
        if home is not None:
            found.setdefault(home[0], HOME)
    if _own_home().count("/") >= 1 and _own_home() != "/":
        found.setdefault(_own_home(), HOME)
    return tuple(sorted(found.items(), key=lambda pair: (-len(pair[0]), pair)))


def _general(value: Any, pairs: tuple[tuple[str, str], ...]) -> Any:
    if isinstance(value, str):
        for old, new in pairs:
            if old in value:
                value = _replaced(value, old, new)
        return value
    if isinstance(value, dict):
        return {key: _general(item, pairs) for key, item in value.items()}
    return [_general(item, pairs) for item in value] if isinstance(value, list) else value


def _replaced(text: str, old: str, new: str) -> str:
    """Where the name ends there: `/home/ada` is no part of `/home/adam`."""
    return re.sub(re.escape(old) + r"(?![\w.-])", lambda _: new, text)


def entry_of(path: str) -> str:
    """A general path as an entry of `path_within`."""
    if path == WORKSPACE:
        return "."
    if path.startswith(WORKSPACE + "/"):
        return path[len(WORKSPACE) + 1 :]
    return "~" + path[len(HOME) :] if path == HOME or path.startswith(HOME + "/") else path


def shown_places(text: str) -> str:
    """A general text as people write it, for examples and tests."""
    return text.replace(WORKSPACE + "/", "").replace(WORKSPACE, ".").replace(HOME, "~")


def is_copyable(text: str) -> bool:
    """Whether a text may stand in a policy: nothing in it looks like a secret."""
    return text.isprintable() and not _OPAQUE.search(text) and _redactor.mask_text(text) == text


def example_of(text: str, most: int = 60) -> str:
    """A text for a comment: masked, printable, short."""
    shown = shown_places(_redactor.mask_text(text[:2_000]))
    shown = _OPAQUE.sub("[...]", shown)
    return shown if len(shown) <= most else shown[: most - 1] + "…"


class GeneralMachine:
    """The places of `path_within` for general texts: no file system, no links."""

    home, root = HOME, WORKSPACE
    starts = (WORKSPACE,)
    homes = (HOME,)

    def __init__(self) -> None:
        self.seen: dict[str | None, Any] = {}

    def home_of(self, user: str) -> str | None:
        return f"/home/{user}" if user else HOME

    def variable(self, name: str) -> str | None:
        return HOME if name == "HOME" else None

    def real(self, base: str, path: str) -> str:
        joined = posixpath.normpath(posixpath.join(base, path))
        return joined[1:] if joined.startswith("//") else joined

    def exists(self, path: str) -> bool:
        return True

    def same(self, path: str, other: str) -> bool:
        return path == other
