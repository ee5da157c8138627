"""The words of a simple command as the programs it runs: its own, and those that wrappers and shells run for it."""

from __future__ import annotations

from subluminal.contracts.globs import glob_test
from subluminal.core.engine.shell.builtins import BUILTINS, run_line
from subluminal.core.engine.shell.findings import Findings
from subluminal.core.engine.shell.options import LAUNCHERS, WRAPPERS, Command, Unknown, find_command
from subluminal.core.engine.shell.word import KEPT, SPLIT, Word

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    Nested = Callable[[str], None]

# `sudo nice env timeout 5 ...`: nobody needs more.
MAX_WRAPPERS = 16
# `find -exec find -exec ...`
MAX_FINDS = 2
SHELLS = frozenset(["sh", "bash", "dash", "zsh", "ksh", "mksh", "ash", "rbash", "rzsh"])
_SHELL_FLAGS = frozenset("aefhilmnpruvxBCEPTsc")
_SHELL_LONG = frozenset(["--login", "--norc", "--noprofile", "--restricted", "--verbose", "--noediting", "--no-rcs"])
# Settings by `-o` and `-O` that change nothing in how a line is read.
_SHELL_SETTINGS = frozenset([
    "errexit", "nounset", "pipefail", "xtrace", "verbose", "noclobber", "noexec", "allexport", "monitor", "notify",
    "nullglob", "globstar", "failglob", "dotglob", "inherit_errexit", "lastpipe",
])  # fmt: skip
_EXEC = frozenset(("-exec", "-execdir", "-ok", "-okdir"))


def run(words: list[Word], found: Findings, nested: Nested, finds: int = 0) -> None:
    for _ in range(MAX_WRAPPERS):
        name = _program(words[0], found)
        if not name:
            return
        if name in SHELLS:
            _shell(name, words, found, nested)
        elif name == "find":
            _find(words, found, nested, finds)
        elif name in BUILTINS:
            BUILTINS[name](words, found, nested)
        elif name in LAUNCHERS:
            found.unsure(f"{name} runs other programs in ways that are not read")
        if name not in WRAPPERS:
            return
        try:
            command = find_command(words, WRAPPERS[name])
            inner = _inner(name, words, command, found)
        except Unknown as unknown:
            found.unsure(f"{name} {unknown}")
            return
        if not inner:
            return
        words = inner
    found.unsure("the command line has too many wrappers around a command")


def _program(word: Word, found: Findings) -> str:
    """Lists the program and returns the name to look it up by; nothing where it is not known."""
    directory, slash, base = word.text.rpartition("/")
    if word.open or SPLIT in word.text or KEPT in base or "{" in word.head or word.head.startswith("="):
        found.unsure("the command line names a program that is not written out")
        return ""
    if word.mixed:
        found.unsure_if_strict("the command line names a program in quotes that not every shell knows")
    if not word.text.isascii():
        found.unsure_if_strict("the command line names a program with unusual letters")
    if KEPT in directory:
        found.unsure_if_strict("the command line names a program in a directory that is not written out")
        found.add("?" + slash + base)
    else:
        found.add(word.text)
    # On a file system that ignores case `SUDO` runs sudo.
    name = base.lower()
    if name != base and (name in WRAPPERS or name in SHELLS):
        found.unsure_if_strict(f"the command line spells {name} in capitals")
    return name


def _inner(name: str, words: list[Word], command: Command, found: Findings) -> list[Word]:
    """The words that a wrapper runs; none where it runs nothing."""
    if name == "env":
        return _env(words, command, found)
    if name == "exec" and (command.chosen or command.values):
        found.unsure_if_strict("exec has options that not every shell knows")
    if name == "command" and command.chosen & {"v", "V"}:
        return []
    if name == "xargs":
        return _xargs(words, command)
    if WRAPPERS[name].assignments:
        _assigned(words[: command.at], found)
    return words[command.at :]


def _assigned(words: list[Word], found: Findings) -> None:
    for word in words[1:]:
        name, equals, _ = word.text.partition("=")
        if equals and not name.startswith("-"):
            found.assign(name)


def _env(words: list[Word], command: Command, found: Findings) -> list[Word]:
    _assigned(words[: command.at], found)
    line = command.values.get("S") or command.values.get("split-string")
    if line is None:
        return words[command.at :]
    if not line.literal or any(char in line.text for char in "\\'\"$#") or line.text.startswith("-"):
        raise Unknown("is given a line that is not plain")
    # What is split off stands before the other words, and may itself start with options and assignments.
    return [words[0], *(Word(text) for text in line.text.split()), *words[command.at :]]


def _xargs(words: list[Word], command: Command) -> list[Word]:
    """What is read from its input is not known: it stands behind the command, or in place of a mark."""
    if command.at == len(words):
        return []  # echo
    inner = words[command.at :]
    mark = command.values.get("I") or command.values.get("i")
    if mark is None:
        return [*inner, Word(SPLIT)]
    if not mark.literal:
        raise Unknown("is given a mark that is not written out")
    return [_replaced(word, mark.text or "{}") for word in inner]


def _replaced(word: Word, mark: str) -> Word:
    if mark not in word.text:
        return word
    copy = Word(word.text.replace(mark, KEPT))
    copy.names = ("", *word.names)
    return copy


def _shell(name: str, words: list[Word], found: Findings, nested: Nested) -> None:
    """`sh -c LINE`, or a file, which is a program of its own; what a shell reads from its input is not seen."""
    at, chosen = 1, set[str]()
    while at < len(words):
        word = words[at]
        if not word.literal or word.mixed:
            if "c" not in chosen:
                found.unsure(f"{name} is given words that are not written out")
                return
            break
        if word.text in ("--", "-"):
            at += 1
            break
        if word.text[:1] not in ("-", "+") or len(word.text) == 1:
            break
        if word.text not in _SHELL_LONG:
            letters = set(word.text[1:])
            if letters - _SHELL_FLAGS - {"o", "O"}:
                found.unsure(f"{name} has an option that is not known")
                return
            chosen |= letters
            for _ in range(word.text.count("o") + word.text.count("O")):
                at += 1
                if at >= len(words) or not words[at].literal or words[at].text not in _SHELL_SETTINGS:
                    found.unsure(f"{name} has a setting that is not known")
                    return
        at += 1
    _shell_input(name, words, at, chosen, found, nested)


def _shell_input(name: str, words: list[Word], at: int, chosen: set[str], found: Findings, nested: Nested) -> None:
    if chosen & {"i"}:
        found.unsure_if_strict(f"{name} is interactive, and may know other names for programs")
    if "c" in chosen:
        if at < len(words):
            run_line(words[at : at + 1], found, nested)
        return
    if at >= len(words) or "s" in chosen or words[at].text.startswith("/dev/"):
        found.unsure(f"{name} reads commands from its input")
        return
    # Without a directory it is looked for here, and then like a program.
    found.add(words[at].text)
    if "/" not in words[at].text:
        found.unsure_if_strict(f"{name} runs a file that may be found in several places")


def _find(words: list[Word], found: Findings, nested: Nested, finds: int) -> None:
    at = 1
    if finds >= MAX_FINDS:
        found.unsure("the command line has find within find within find")
        return
    while at < len(words):
        word = words[at]
        at += 1
        if SPLIT in word.text or (word.open and _may_be_exec(word.text)):
            found.unsure("find is given words that are not written out")
        elif word.text.startswith(KEPT):
            found.unsure_if_strict("find is given words that are not written out")
        if word.text not in _EXEC:
            continue
        began = at
        while at < len(words) and not _ends_exec(words, at, began):
            at += 1
        if at > began:
            run([_replaced(inner, "{}") for inner in words[began:at]], found, nested, finds + 1)


def _may_be_exec(pattern: str) -> bool:
    if "{" in pattern or "[" in pattern or KEPT in pattern:
        return True
    test = glob_test(pattern)
    return any(test(action) for action in _EXEC)


def _ends_exec(words: list[Word], at: int, began: int) -> bool:
    return words[at].text == ";" or (words[at].text == "+" and at > began and words[at - 1].text == "{}")
