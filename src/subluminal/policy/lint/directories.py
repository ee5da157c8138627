"""Entries of `path_within`: which lies in which, by their words alone.

An entry names a directory and all below it. What a link on some machine makes of it is not known here. Below `/` and
`~` links are the user's own; those of a repository come with it, and a change that puts `src` for `.` may bring a link
`src` that leads anywhere. So of relative entries only equal ones compare.
"""

from __future__ import annotations


def directory_covers(wide: str, narrow: str) -> bool:
    """`~/work` covers `~/work/a`, `/` all; a relative and an absolute entry do not compare."""
    if wide == narrow or is_everything(wide):
        return True
    (start, steps), (other, below) = _read(wide), _read(narrow)
    if start != other or ".." in (*steps, *below):
        return False
    return below == steps if start == "." else below[: len(steps)] == steps


def leaves_root(entry: str) -> bool:
    """Whether `..` leads out of the directory at which the entry starts."""
    depth = 0
    for step in _read(entry)[1]:
        depth += -1 if step == ".." else 1
        if depth < 0:
            return True
    return False


def is_everything(entry: str) -> bool:
    start, steps = _read(entry)
    return start == "/" and not steps


def _read(entry: str) -> tuple[str, list[str]]:
    """Where it starts (`/`, `~`, `~name` or here), and the steps from there."""
    steps = [step for step in entry.split("/") if step not in ("", ".")]
    if entry.startswith("/"):
        return "/", steps
    if entry.startswith("~"):
        return steps[0], steps[1:]
    return ".", steps
