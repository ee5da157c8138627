"""Redirections. They name no program, but one that writes a file counts as one (`WRITES`)."""

from __future__ import annotations

from subluminal.core.engine.shell.findings import WRITES, Stop
from subluminal.core.engine.shell.word import DIGITS, KEPT, SPLIT, Word, is_number

TYPE_CHECKING = False
if TYPE_CHECKING:
    from subluminal.core.engine.shell.gaps import Gaps
    from subluminal.core.engine.shell.words import Words

_REDIRECTIONS = ("&>>", "&>", "<<<", "<<-", "<<", "<>", "<&", ">&", ">>", ">|", ">", "<")
_INPUT = ("<", "<&", "<<<")
_HARMLESS_TARGETS = frozenset(("/dev/null", "/dev/stdout", "/dev/stderr"))


def is_redirection(words: Words) -> bool:
    """Whether one is at this place: `<`, `2>`, `&>`; not `<(`."""
    text, at = words.text, words.at
    if text.startswith("&>", at):
        return True
    while at < words.end and text[at] in DIGITS:
        at += 1
    return text.startswith(("<", ">"), at) and (at > words.at or not text.startswith("(", at + 1))


def redirect(words: Words, gaps: Gaps) -> str:
    """Returns the first character of its operator."""
    found = words.found
    while words.peek().isdigit():
        words.at += 1
    found.count()
    operator = next(op for op in _REDIRECTIONS if words.text.startswith(op, words.at))
    began = words.at
    words.at += len(operator)
    if words.peek() == "(" or (words.peek() == "\\" and words.peek(1) == "\n"):
        raise Stop("the command line has a redirection that shells read in different ways")
    if operator == "<" and _is_numeric_glob(words.text, began):
        found.unsure("the command line has <...>, which some shells take for a pattern")
    gaps.blanks()
    target = words.word()
    if target is None:
        raise Stop("the command line has a redirection without a target")
    if operator in ("<<", "<<-"):
        gaps.announce(target, tabs=operator == "<<-")
    elif operator in _INPUT and not target.text.startswith(("/dev/tcp", "/dev/udp")):
        if operator != "<<<" and (target.text.startswith((KEPT, SPLIT)) or target.open):
            found.unsure_if_strict("the command line reads from a place that is not written out")
    elif not _harmless(operator, target):
        found.add(WRITES)
    return operator[0]


def _harmless(operator: str, target: Word) -> bool:
    """Writes to nothing, or to a descriptor that is open already."""
    if not target.literal:
        return False
    if operator == ">&" and (target.text == "-" or is_number(target.text.removesuffix("-"))):
        return True
    directory, _, name = target.text.rpartition("/")
    return target.text in _HARMLESS_TARGETS or (directory == "/dev/fd" and is_number(name))


def _is_numeric_glob(text: str, at: int) -> bool:
    at += 1
    while at < len(text) and text[at] in "0123456789-":
        at += 1
    return text.startswith(">", at)
