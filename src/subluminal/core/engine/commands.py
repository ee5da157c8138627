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

    __slots__ = ("_generous", "_names", "_paths", "_plain_names", "_plain_paths")

    def __init__(self, spec: dict[str, Any], generous: bool) -> None:
        self._generous = generous
        patterns = spec["programs"]
        if generous:
            # On a file system that ignores case `RM` runs rm.
            patterns = [*patterns, *(pattern.lower() for pattern in patterns)]
        plain = frozenset(pattern for pattern in patterns if not is_glob(pattern))
        globs = [pattern for pattern in patterns if is_glob(pattern)]
        self._plain_names = frozenset(name for name in plain if "/" not in name)
        self._plain_paths = plain - self._plain_names
        self._names = [glob_test(pattern) for pattern in globs if "/" not in pattern]
        self._paths = [glob_test(pattern) for pattern in globs if "/" in pattern]

    def __call__(self, value: Any) -> bool:
        return self._any(value) if self._generous else self._all(value)

    def reading(self, value: Any) -> str:
        """What the value was read as, for people."""
        read = read_command(value)
        if read is None:
            return "is no command"
        # A list that matches as lines is told as the line that does.
        matching = (found for found in read.each if self._generous and self._stops(Command([found], "")))
        found = next(matching, read.each[0])
        names = [_printable(program) for program in found.programs]
        shown = ", ".join(names[:_MOST_SHOWN]) + (
            f" and {len(names) - _MOST_SHOWN} more" if names[_MOST_SHOWN:] else ""
        )
        doubt = found.doubt or ("" if self._generous else found.strict_doubt)
        return (f"runs {shown}" if names else "runs nothing") + (f"; {doubt}" if doubt else "")

    def _any(self, value: Any) -> bool:
        read = read_command(value)
        if read is None:
            return False
        if self._stops(read):
            return True
        if read.doubt:
            raise Unavailable(UNJUDGED_ARGS, read.doubt)
        return False

    def _stops(self, read: Command) -> bool:
        if not self._plain_names.isdisjoint(read.names) or not self._plain_paths.isdisjoint(read.paths):
            return True
        return any(test(name) for test in self._names for name in read.names) or any(
            test(path) for test in self._paths for path in read.paths
        )

    def _all(self, value: Any) -> bool:
        if not isinstance(value, (str, list)) or (isinstance(value, list) and not _texts_only(value)):
            return False
        read = read_command(value)
        if read is None:
            return False
        found = read.each[0]
        if not all(self._lets_through(program) for program in found.programs):
            return False
        doubt = found.doubt or found.strict_doubt
        if doubt:
            raise Unavailable(UNJUDGED_ARGS, doubt)
        return bool(found.programs)

    def _lets_through(self, program: str) -> bool:
        directory, slash, name = program.rpartition("/")
        if (not slash or directory in _SYSTEM_DIRECTORIES) and (
            name in self._plain_names or any(test(name) for test in self._names)
        ):
            return True
        if program in self._plain_paths:
            return True
        return ".." not in program.split("/") and any(test(program) for test in self._paths)


class Command:
    """A value as a command. `each`: its readings; the first is the one that counts where only one may.

    `names` and `paths` are the spellings by which what stops a call knows the programs of all of them.
    """

    __slots__ = ("doubt", "each", "names", "paths")

    def __init__(self, each: list[Findings], doubt: str) -> None:
        self.each = each
        self.doubt = doubt
        self.names: set[str] = set()
        self.paths: set[str] = set()
        for found in each:
            for program in found.programs:
                self._spell(program.strip())  # a line that was written on Windows ends in a carriage return

    def _spell(self, program: str) -> None:
        name = program.rpartition("/")[2]
        self.names |= {name, name.lower()}
        if "/" not in program:
            self.paths |= {program, program.lower()}
            return
        plain = "/".join(part for at, part in enumerate(program.split("/")) if not at or part not in ("", "."))
        self.paths |= {program, plain, plain.lower()}


def read_command(value: Any) -> Command | None:
    """None: no command at all."""
    if value.__class__ is str:
        return _of_line(value)
    if isinstance(value, list):
        if len(value) > MAX_ELEMENTS:
            raise Unavailable(UNJUDGED_ARGS, f"the command has more than {MAX_ELEMENTS:,} words")
        words = tuple(text for text in map(_text, value) if text is not None)
        return _of_list(words, any(isinstance(item, str) and item.startswith("-") for item in value)) if words else None
    text = _text(value)
    return None if text is None else _of_line(text)


# Several rules ask about the value of one call; nothing is asked again later.
@lru_cache(maxsize=8)
def _of_line(line: str) -> Command:
    found = read_line(line)
    return Command([found], found.doubt)


@lru_cache(maxsize=8)
def _of_list(words: tuple[str, ...], has_option: bool) -> Command:
    """An argv, and lines. Where one is an option, or no line that a shell would take, it is in doubt only as an argv.

    Of more characters than are read, the argv is in doubt anyway.
    """
    each = [read_argv(words)]
    room = MAX_CHARS
    for word in words:
        room -= len(word)
        if room < 0:
            break
        each.append(read_line(word))
    is_argv = has_option or not all(found.split for found in each[1:])
    return Command(each, next((found.doubt for found in (each[:1] if is_argv else each) if found.doubt), ""))


def read_line(line: str) -> Findings:
    """What a shell line runs."""
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


def read_argv(argv: tuple[str, ...]) -> Findings:
    """What a list of words runs that no shell has read: `["bash", "-lc", "rm x"]`."""
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
