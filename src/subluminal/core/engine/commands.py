"""`args.command`: the programs that a shell line runs (`shell/`), against the patterns of a rule.

A pattern without `/` is a glob on the name of the program, without its directory; one with `/` on the path as written.

What stops a call matches if any program of the line does. What lets it through matches only if the line was read with
certainty and every program is listed, wrappers and output redirections (`>`) too. There a name does not stand for any
file of that name: `./git` is not git, and needs a pattern with a `/`.
"""

from __future__ import annotations

from functools import lru_cache

from subluminal.contracts.globs import glob_test, is_glob
from subluminal.contracts.vocabulary import UNJUDGED_ARGS
from subluminal.core.engine.faults import Unavailable
from subluminal.core.engine.shell.findings import MAX_CHARS, Findings, Stop
from subluminal.core.engine.shell.lines import Line, parse
from subluminal.core.engine.shell.word import KEPT, SPLIT, Word

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# Of a list: an argv, or lines.
MAX_ELEMENTS = 1_000
# Where a program of a given name is the one that everybody means by it.
_SYSTEM_DIRECTORIES = frozenset([
    "/bin", "/sbin", "/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin", "/opt/homebrew/bin",
    "/run/current-system/sw/bin",
])  # fmt: skip
_MOST_SHOWN = 12


class CommandOf:
    """Called with a text (a line) or a list (an argv; what stops a call also reads it as lines)."""

    __slots__ = ("_generous", "_names", "_paths")

    def __init__(self, spec: dict[str, Any], generous: bool) -> None:
        self._generous = generous
        patterns = spec["programs"]
        if generous:
            # On a file system that ignores case `RM` runs rm.
            patterns = [*patterns, *(pattern.lower() for pattern in patterns)]
        self._names = [glob_test(pattern) for pattern in patterns if "/" not in pattern]
        self._paths = [(glob_test(pattern), is_glob(pattern)) for pattern in patterns if "/" in pattern]

    def __call__(self, value: Any) -> bool:
        return self._any(value) if self._generous else self._all(value)

    def reading(self, value: Any) -> str:
        """What the value was read as, for people."""
        readings = _readings(value)
        if not readings:
            return "is no command"
        # A list that matches as lines is told as the line that does.
        matching = (found for found in readings if self._generous and any(map(self._stops, found.programs)))
        found = next(matching, readings[0])
        names = [_printable(program) for program in found.programs]
        shown = ", ".join(names[:_MOST_SHOWN]) + (
            f" and {len(names) - _MOST_SHOWN} more" if names[_MOST_SHOWN:] else ""
        )
        doubt = found.doubt or ("" if self._generous else found.strict_doubt)
        return (f"runs {shown}" if names else "runs nothing") + (f"; {doubt}" if doubt else "")

    def _any(self, value: Any) -> bool:
        readings = _readings(value)
        for found in readings:
            for program in found.programs:
                if self._stops(program):
                    return True
        for found in readings[:1] if _is_argv(value, readings) else readings:
            if found.doubt:
                raise Unavailable(UNJUDGED_ARGS, found.doubt)
        return False

    def _stops(self, program: str) -> bool:
        # A line that was written on Windows ends in a carriage return.
        program = program.strip()
        name = program.rpartition("/")[2]
        plain = "/".join(part for at, part in enumerate(program.split("/")) if not at or part not in ("", "."))
        spellings = {name, name.lower()}
        paths = {program, plain, plain.lower()}
        return any(test(text) for test in self._names for text in spellings) or any(
            test(text) for test, _ in self._paths for text in paths
        )

    def _all(self, value: Any) -> bool:
        if not isinstance(value, (str, list)) or (isinstance(value, list) and not _texts_only(value)):
            return False
        for found in _readings(value)[:1]:
            if not all(self._lets_through(program) for program in found.programs):
                return False
            doubt = found.doubt or found.strict_doubt
            if doubt:
                raise Unavailable(UNJUDGED_ARGS, doubt)
            return bool(found.programs)
        return False

    def _lets_through(self, program: str) -> bool:
        directory, slash, name = program.rpartition("/")
        if (not slash or directory in _SYSTEM_DIRECTORIES) and any(test(name) for test in self._names):
            return True
        climbs = ".." in program.split("/")
        return any(test(program) for test, wild in self._paths if not (wild and climbs))


# Several rules ask about the value of one call; nothing is asked again later.
@lru_cache(maxsize=8)
def read_line(line: str) -> Findings:
    """What a shell line runs. Not to be changed."""
    found = Findings()
    try:
        if len(line) > MAX_CHARS:
            raise Stop(f"the command line has more than {MAX_CHARS:,} characters")
        if KEPT in line or SPLIT in line or "\x7f" in line:
            raise Stop("the command line has control characters")
        parse(line, found)
    except Stop as stop:
        found.split = False
        found.unsure(str(stop))
    found.finish()
    return found


@lru_cache(maxsize=8)
def read_argv(argv: tuple[str, ...]) -> Findings:
    """What a list of words runs that no shell has read: `["bash", "-lc", "rm x"]`. Not to be changed."""
    found = Findings()
    try:
        if sum(map(len, argv)) > MAX_CHARS:
            raise Stop(f"the command has more than {MAX_CHARS:,} characters")
        if any(KEPT in text or SPLIT in text for text in argv):
            raise Stop("the command has control characters")
        if argv:
            Line("", 0, found, 0, 0).run([Word(text) for text in argv])
    except Stop as stop:
        found.split = False
        found.unsure(str(stop))
    found.finish()
    return found


def _readings(value: Any) -> list[Findings]:
    """The first is the one that counts where only one may."""
    if isinstance(value, list):
        if len(value) > MAX_ELEMENTS:
            raise Unavailable(UNJUDGED_ARGS, f"the command has more than {MAX_ELEMENTS:,} words")
        words = [text for text in map(_text, value) if text is not None]
        return [read_argv(tuple(words)), *map(read_line, words)] if words else []
    text = _text(value)
    return [] if text is None else [read_line(text)]


def _is_argv(value: Any, readings: list[Findings]) -> bool:
    """A list whose elements are no lines: one is an option, or no shell would take it. Then only its words count."""
    return isinstance(value, list) and (
        any(isinstance(item, str) and item.startswith("-") for item in value)
        or not all(found.split for found in readings[1:])
    )


def _texts_only(value: list[Any]) -> bool:
    return all(isinstance(item, str) for item in value)


def _text(value: Any) -> str | None:
    """Numbers and booleans as text; what is no scalar is no command."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) and value.bit_length() > 1024:
        return None
    return str(value) if isinstance(value, (int, float)) else None


def _printable(program: str) -> str:
    return program if program.isprintable() and program else repr(program)
