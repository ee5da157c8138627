"""Paths: the files that were used, and directories where three of their children were.

One starts at the file. A directory is an entry where `SUPPORT` runs used it and at least `FAN` of its children, not
counting what any two runs alone added: so what an attacker did in two of them widens nothing. It has a floor: two names
from the root, one below a home, never a home itself. The project's own directory is an entry like any other.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator

from msgspec import Struct, field

from subluminal.control.suggest import SUPPORT
from subluminal.control.suggest.evidence import Values
from subluminal.control.suggest.limits.limit import Limit
from subluminal.control.suggest.tokens import HOME, WORKSPACE, entry_of, is_copyable, shown_places
from subluminal.core.engine.paths import entry_fault

FAN = 3
FLOOR = 2
MAX_ENTRIES = 24
_WORDS = ("path", "file", "dir", "directory", "folder", "cwd", "workdir", "filename")


class _Node(Struct, eq=False):
    runs: set[int] = field(default_factory=set)
    ends: set[int] = field(default_factory=set)  # runs for which the path ended here
    children: dict[str, _Node] = field(default_factory=dict)


def is_path_key(key: str, values: Values) -> bool:
    """By its values, and by its name where they are relative."""
    texts = list(values.texts)
    rooted = sum(text.startswith(("/", "~/", "./", "../")) and "\n" not in text and "://" not in text for text in texts)
    if rooted >= 0.9 * len(texts):
        return True
    name = key.rpartition(".")[2].removesuffix("[]").lower()
    named = any(name == word or name.endswith((f"_{word}", f"{word}s")) for word in _WORDS)
    plain = sum("\n" not in text and "://" not in text and len(text) < 1_000 for text in texts)
    return named and plain >= 0.95 * len(texts)


def fit(values: Values, level: int) -> Limit | None:
    root = _Node()
    for text, (_, runs) in values.texts.items():
        path = general(text)
        if path is not None:
            _add(root, path, runs)
    found = dict(sorted(_entries(root, ""), key=lambda entry: (-entry[1], entry[0]))[:MAX_ENTRIES])
    own = root.children.get(WORKSPACE[1:])
    if level and own is not None and len(own.runs) >= SUPPORT:
        found = {path: runs for path, runs in found.items() if not path.startswith(WORKSPACE + "/")}
        found[WORKSPACE] = len(own.runs)
    entries = sorted(entry_of(path) for path in found)
    if not entries:
        return None
    words = "one place" if len(entries) == 1 else f"{len(entries)} places"
    supported = [text for text, (_, runs) in values.texts.items() if len(runs) >= SUPPORT and is_copyable(text)]
    examples = sorted(map(shown_places, supported), key=lambda text: (len(text), text))[:3]
    return Limit("path", [("path_within", entries)], words, examples, ["/etc/passwd"], widest=level >= 1)


def general(text: str) -> str | None:
    """An absolute path by its text; None: none that a rule could let through."""
    if text.startswith("~/") or not text or "\0" in text or "://" in text:
        return None
    path = posixpath.normpath(posixpath.join(WORKSPACE, text))
    return path[1:] if path.startswith("//") else path


def _add(root: _Node, path: str, runs: set[int]) -> None:
    node = root
    for name in path.strip("/").split("/"):
        node = node.children.setdefault(name, _Node())
        node.runs |= runs
    node.ends |= runs


def _entries(node: _Node, path: str) -> Iterator[tuple[str, int]]:
    """The highest directories that hold the conditions, else the files below, with their runs."""
    if path and _is_listable(path) and len(node.runs) >= SUPPORT:
        if _above_floor(path) and _fan(node) >= FAN:
            yield path, len(node.runs)
            return
        if len(node.ends) >= SUPPORT and (not node.children or (_above_floor(path) and path != WORKSPACE)):
            yield path, len(node.ends)
            return
    for name in sorted(node.children):
        yield from _entries(node.children[name], f"{path}/{name}")


def _fan(node: _Node) -> int:
    """Used children, less what the two runs added alone that added most."""
    alone: dict[int, int] = {}
    for child in node.children.values():
        if len(child.runs) == 1:
            (run,) = child.runs
            alone[run] = alone.get(run, 0) + 1
    pairs: dict[frozenset[int], int] = {}
    for child in node.children.values():
        if len(child.runs) == 2:
            pair = frozenset(child.runs)
            pairs[pair] = pairs.get(pair, 0) + 1
    most = sum(sorted(alone.values())[-2:])
    return len(node.children) - most - max(pairs.values(), default=0)


def _above_floor(path: str) -> bool:
    if path == WORKSPACE:
        return True
    if path == HOME or HOME.startswith(path + "/"):
        return False
    return path.count("/") >= FLOOR


def _is_listable(path: str) -> bool:
    return entry_fault(path) is None and is_copyable(path)
