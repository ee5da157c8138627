"""Builtins of shells that run what they are given, or evaluate it: a value such as `a[$(rm x)]` runs a program.

Each takes the words with its own name first. What is not here runs nothing but itself.
"""

from __future__ import annotations

from subluminal.core.engine.shell.findings import Findings
from subluminal.core.engine.shell.word import KEPT, SPLIT, Word, is_name, names_in

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    Nested = Callable[[str], None]
    Builtin = Callable[[list[Word], Findings, Nested], None]

# Settings of `set` that change nothing in how a line is read.
_SET_FLAGS = frozenset("abefhmnuvxCEPTB")
_SET_NAMES = frozenset(
    ["errexit", "nounset", "pipefail", "xtrace", "verbose", "noclobber", "noglob", "allexport", "monitor", "notify"]
)
_SHOPT_NAMES = frozenset(["nullglob", "globstar", "failglob", "dotglob", "inherit_errexit", "lastpipe", "nocaseglob"])
# Builtins that give names another meaning, load code, or run what they are given in ways that are not read.
_OPAQUE = (
    "alias", "autoload", "bind", "bindkey", "compgen", "complete", "compopt", "coproc", "emulate", "enable", "fc",
    "functions", "options", "rehash", "sched", "setopt", "unsetopt", "vared", "zcompile", "zformat", "zle", "zmodload",
    "zparseopts", "zregexparse", "zstyle",
)  # fmt: skip
_BINARY = frozenset(["=", "==", "!=", "<", ">", "-eq", "-ne", "-lt", "-le", "-gt", "-ge", "-nt", "-ot", "-ef"])
# Between the % and the letter of a conversion.
_CONVERSION_FLAGS = "-+ #0123456789.'"
_READ_VALUES = "adinNptu"


def evaluate(word: Word, found: Findings) -> None:
    """A word that is read as arithmetic or as the name of a variable."""
    if any(char in word.text for char in "$`["):
        found.unsure("the command line computes with text that can run commands")
    for name in word.names:
        found.evaluate(name)
    for name in names_in(word.text):
        found.evaluate(name)


def evaluate_names(word: Word, found: Findings) -> None:
    for name in word.names:
        found.evaluate(name)


def run_line(words: list[Word], found: Findings, nested: Nested) -> None:
    """Words that a shell joins and reads as a line. What is not known in them is read around."""
    if not all(word.literal and not word.mixed for word in words):
        found.unsure("the command line runs a line that is not written out")
    nested(" ".join(word.text for word in words))


def _eval(words: list[Word], found: Findings, nested: Nested) -> None:
    run_line(words[2:] if len(words) > 1 and words[1].text == "--" else words[1:], found, nested)


def _trap(words: list[Word], found: Findings, nested: Nested) -> None:
    inner = words[2:] if len(words) > 1 and words[1].text == "--" else words[1:]
    if inner and inner[0].text not in ("-", "-p", "-l", "-P"):
        run_line(inner[:1], found, nested)


def _opaque(words: list[Word], found: Findings, nested: Nested) -> None:
    if len(words) > 1:
        found.unsure(f"{words[0].text} changes what the names of programs mean")


def _source(words: list[Word], found: Findings, nested: Nested) -> None:
    """A file is like a program of its own. What is in this line, or comes from one, is not a file."""
    for word in words[1:2]:
        if not word.literal or word.text.startswith("/dev/"):
            found.unsure("the command line runs a file that is not written out")


def _set(words: list[Word], found: Findings, nested: Nested) -> None:
    at = 0
    while (at := at + 1) < len(words):
        word = words[at]
        text = word.text
        if text == "--" or (text[:1] not in ("-", "+") and word.literal):
            return
        if not word.literal:
            found.unsure_if_strict("the command line sets options that are not written out")
            return
        names = words[at + 1 : at + 2] if "o" in text else []
        at += len(names)
        if set(text[1:]) - _SET_FLAGS - {"o"} or not all(name.text in _SET_NAMES for name in names):
            found.unsure("the command line sets an option of the shell that is not known")


def _shopt(words: list[Word], found: Findings, nested: Nested) -> None:
    if not all(word.text in _SHOPT_NAMES or word.text in ("-s", "-u", "-q", "-p") for word in words[1:]):
        found.unsure("the command line sets an option of the shell that is not known")


def _declare(words: list[Word], found: Findings, nested: Nested) -> None:
    kinds: set[str] = {"i"} if words[0].text in ("integer", "float") else set()
    for word in words[1:]:
        name, equals, value = word.text.partition("=")
        if not equals and name[:1] in ("-", "+") and word.literal:
            kinds |= set(name[1:])
            continue
        name = name.removesuffix("+")
        if not is_name(name):
            found.unsure("the command line sets a variable whose name is not written out")
            continue
        rest = Word(value)
        rest.names = word.names
        if kinds & set("iEF"):
            found.evaluate(name)  # and so is all that is assigned to it later
        if not equals:
            continue
        found.assign(name, tame=rest.tame)
        if not rest.tame:
            found.declare(name)
            if kinds & set("aA"):
                found.unsure("the command line sets a variable by a text that can run commands")
        if SPLIT in value:
            found.unsure_if_strict("the command line sets a variable by words that are not written out")
    if kinds & set("nT") and words[0].text != "export":
        found.unsure("the command line gives a variable another name")


def _variables(words: list[Word], found: Findings) -> None:
    for word in words:
        if not is_name(word.text):
            found.unsure("the command line sets a variable whose name is not written out")
        else:
            found.assign(word.text)


def _read(words: list[Word], found: Findings, nested: Nested) -> None:
    at = 1
    while at < len(words) and words[at].text.startswith("-") and len(words[at].text) > 1:
        evaluate_names(words[at], found)
        letters = words[at].text[1:]
        takes = next((place for place, letter in enumerate(letters) if letter in _READ_VALUES), None)
        at += 1
        if takes is not None and takes == len(letters) - 1:
            if letters[takes] == "a":
                continue
            for word in words[at : at + 1]:
                evaluate_names(word, found)
            at += 1
    _variables(words[at:], found)
    if at >= len(words):
        found.assign("REPLY")


def _unset(words: list[Word], found: Findings, nested: Nested) -> None:
    _variables([word for word in words[1:] if word.text not in ("-f", "-v", "-n", "--")], found)


def _getopts(words: list[Word], found: Findings, nested: Nested) -> None:
    _variables(words[2:3], found)
    found.assign("OPTARG")


def _printf(words: list[Word], found: Findings, nested: Nested) -> None:
    """`-v` names a variable; zsh evaluates what it prints as a number."""
    at, first = 1, words[1].text if len(words) > 1 else ""
    if first.startswith("-v"):
        at = 2 if len(first) > 2 else 3
        _variables([Word(first[2:])] if len(first) > 2 else words[2:3], found)
    at += first == "--"
    # Any of them may be the format, as far as a shell does not take it for an option.
    plain = all(word.literal for word in words[at : at + 1])
    if not plain or not all(_prints_text(word.text) for word in words[1:] if word.literal):
        for word in words[1:]:
            evaluate_names(word, found)


def _prints_text(text: str) -> bool:
    """All conversions of the format are of text."""
    return all(part.lstrip(_CONVERSION_FLAGS)[:1] in ("s", "b", "q") for part in text.split("%")[1:])


def _numbers(words: list[Word], found: Findings, nested: Nested) -> None:
    for word in words[1:]:
        evaluate(word, found)


def _mapfile(words: list[Word], found: Findings, nested: Nested) -> None:
    for word in words[1:]:
        if word.text.startswith("-") and not set(word.text) & set("C" + KEPT + SPLIT):
            continue
        if word.literal and word.text.isdigit():
            continue
        _variables([word], found)


def _test(words: list[Word], found: Findings, nested: Nested) -> None:
    """`-v` reads a subscript in bash, and may itself come from a variable."""
    operands = words[1:-1] if words[0].text == "[" else words[1:]
    reads = any(word.text in ("-v", "-R") for word in operands)
    for at, word in enumerate(operands):
        if reads:
            evaluate(word, found)
        elif SPLIT in word.text or (word.text.startswith(KEPT) and not _is_operand(operands, at)):
            evaluate_names(word, found)
            for name in operands[at + 1].names if at + 1 < len(operands) else ():
                found.evaluate(name)


def _is_operand(operands: list[Word], at: int) -> bool:
    """Beside an operator, or alone, a word cannot be an operator itself."""
    before = operands[at - 1].text if at else ""
    after = operands[at + 1].text if at + 1 < len(operands) else ""
    unary = before[:1] == "-" and before[1:].isalpha() and before not in ("-a", "-o")
    return len(operands) == 1 or after in _BINARY or before in _BINARY or unary


def _jobs(words: list[Word], found: Findings, nested: Nested) -> None:
    if any(not word.literal or "x" in word.text for word in words[1:]):
        found.unsure("jobs can run other programs")


def _hash(words: list[Word], found: Findings, nested: Nested) -> None:
    if any(word.text != "-r" for word in words[1:]):
        found.unsure("hash changes what the names of programs mean")


def _wait(words: list[Word], found: Findings, nested: Nested) -> None:
    if any(word.text.startswith("-") for word in words[1:]):
        found.unsure_if_strict("wait has options that are not known")


BUILTINS: dict[str, Builtin] = {
    "eval": _eval,
    "trap": _trap,
    ".": _source,
    "source": _source,
    "set": _set,
    "shopt": _shopt,
    "read": _read,
    "unset": _unset,
    "getopts": _getopts,
    "printf": _printf,
    "mapfile": _mapfile,
    "readarray": _mapfile,
    **dict.fromkeys(("let", "exit", "return", "break", "continue", "shift", "logout", "bye"), _numbers),
    "print": _printf,
    "test": _test,
    "[": _test,
    "jobs": _jobs,
    "hash": _hash,
    "wait": _wait,
    **dict.fromkeys(("declare", "typeset", "local", "export", "readonly", "integer", "float"), _declare),
    **dict.fromkeys(_OPAQUE, _opaque),
}
