"""A word of a shell line, as far as it is known without running anything.

What an expansion gives is not known. In the text of a word it stands as a mark: `KEPT` where it stays within the word
(inside double quotes), `SPLIT` where it may become several words or none.
"""

from __future__ import annotations

KEPT, SPLIT = "\0", "\1"
BLANKS = " \t"
# What ends a word, where it is not quoted.
META = frozenset(" \t\n;&|<>()")
NAME_START = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_")
DIGITS = frozenset("0123456789")
NAME = NAME_START | DIGITS
RESERVED = frozenset([
    "!", "{", "}", "[[", "]]", "case", "coproc", "do", "done", "elif", "else", "esac", "fi", "for", "function", "if",
    "in", "select", "then", "time", "until", "while",
])  # fmt: skip


class Word:
    __slots__ = ("head", "mixed", "names", "open", "quoted", "text")

    def __init__(self, text: str, *, head: str = "", quoted: bool = True) -> None:
        self.text = text
        self.head = head  # what it starts with that is neither quoted nor expanded
        self.quoted = quoted
        self.open = False  # a glob, a brace or tilde expansion: the text may become others
        self.mixed = False  # shells do not agree on its text
        self.names: tuple[str, ...] = ()  # parameters in it; "" is the output of a command

    @property
    def literal(self) -> bool:
        return not self.open and KEPT not in self.text and SPLIT not in self.text

    @property
    def bare(self) -> bool:
        """Nothing quoted, nothing expanded: it can be a reserved word or the name of an assignment."""
        return self.head == self.text

    @property
    def tame(self) -> bool:
        number = self.text.replace(KEPT, "").replace(SPLIT, "").lstrip("+-")
        return not self.names and (not number or is_number(number))


def names_in(text: str) -> list[str]:
    """What could be variables in a piece of arithmetic."""
    return [part for part in "".join(char if char in NAME else " " for char in text).split() if is_name(part)]


def is_name(text: str) -> bool:
    return bool(text) and text[0] in NAME_START and all(char in NAME for char in text)


def is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()


def expands(unquoted: str, word: Word) -> bool:
    """Whether globs, braces, a tilde or zsh's `=` may make other words of it."""
    text, head = word.text, word.head
    if "*" in unquoted or "?" in unquoted or ("[" in unquoted and "]" in unquoted):
        return True
    if "{" in unquoted and ("," in text or ".." in text):
        return True
    return head.startswith("=") or (head.startswith("~") and "/" not in head)
