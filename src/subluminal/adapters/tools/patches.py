"""The files that a patch names, in the form that Codex gives its models.

    *** Begin Patch
    *** Add File: NAME | *** Delete File: NAME | *** Update File: NAME, and perhaps *** Move to: NAME
    +... | @@ ... | the lines of a change
    *** End Patch

Every line that some reading could take for the name of a file counts as one. Where a line is none that a patch has, or
the shell that carries the patch could still change it, there may be others: `complete` is False.
"""

from __future__ import annotations

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NamedTuple

    class Named(NamedTuple):
        """`directory`: where its relative names start, as a shell line said with `cd`."""

        paths: list[str]
        complete: bool
        directory: str = ""
else:
    from collections import namedtuple

    Named = namedtuple("Named", ("paths", "complete", "directory"), defaults=("",))

BEGIN, END = "*** Begin Patch", "*** End Patch"
_NAMING = ("*** Add File: ", "*** Delete File: ", "*** Update File: ", "*** Move to: ")
_END_OF_FILE = "*** End of File"
_CHANGED = (" ", "+", "-", "@")
# More files than a person would look through.
MAX_PATHS = 4_096

# `apply_patch` where a command stands, and nothing but a document behind it that the shell leaves as it is.
_SHELL_FORM = re.compile(
    r"\s*(?:cd[ \t]+(?P<directory>[\w./+@-]+|'[^'\n]+')[ \t]*&&[ \t]*)?apply_?patch[ \t]*<<[ \t]*"
    r"(?P<quote>['\"])(?P<mark>\w+)(?P=quote)[ \t]*\n(?P<patch>.*)\n(?P=mark)\s*",
    re.DOTALL,
)
# How a line names the program, and what may stand before a program: the end of another command, or one of these words.
_PROGRAMS = ("apply_patch", "applypatch")
_BEFORE = frozenset(";&|(){}`!\n")
_WORDS_BEFORE = frozenset(["do", "then", "else", "exec", "command", "env", "sudo", "xargs", "nohup", "time"])
_MAX_LOOK_BACK = 256


def named_in_patch(text: str) -> Named:
    """Of the whole text of an `apply_patch` call."""
    lines = text.strip().split("\n")
    if len(lines) > 2 and lines[0].startswith("<<") and lines[-1].strip() == lines[0].lstrip("<").strip(" '\""):
        lines = lines[1:-1]  # models write it as for a shell, and Codex takes that
    paths: dict[str, None] = {}
    complete = len(lines) > 1 and lines[0].strip() == BEGIN and lines[-1].strip() == END
    for line in lines[1:-1] if complete else lines:
        stripped = line.strip()
        found = next((stripped[len(naming) :] for naming in _NAMING if stripped.startswith(naming)), None)
        if found is not None:
            paths[found] = None
        elif stripped and stripped != _END_OF_FILE and not line.startswith(_CHANGED):
            complete = False
        if len(paths) > MAX_PATHS:
            return Named(list(paths), False)
    return Named(list(paths), complete and bool(paths))


def named_in_shell(command: str) -> Named | None:
    """Of a shell line; None: it applies no patch, as far as can be seen."""
    if BEGIN not in command and not any(_runs(command, program) for program in _PROGRAMS):
        return None
    form = _SHELL_FORM.fullmatch(command)
    if form is None:
        return Named(named_in_patch(command).paths, False)
    named = named_in_patch(form["patch"])
    return Named(named.paths, named.complete, (form["directory"] or "").strip("'"))


def _runs(command: str, program: str) -> bool:
    """Whether a program stands where a shell runs one. Looks back a little from each place, so that it stays linear."""
    at = command.find(program)
    while at >= 0:
        before = command[max(at - _MAX_LOOK_BACK, 0) : at]
        if not (before[-1:].isalnum() or before[-1:] == "_"):
            before = before.rstrip(
                "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./-"
            )  # its directory
            before = before.rstrip(" \t\"'\\")
            if not before or before[-1] in _BEFORE or before.rpartition(" ")[2].rpartition("\n")[2] in _WORDS_BEFORE:
                return True
        at = command.find(program, at + 1)
    return False
