"""What stands between the words of a line: blanks, comments, newlines, and the here-documents that follow them."""

from __future__ import annotations

from subluminal.core.engine.shell.findings import Findings, Stop
from subluminal.core.engine.shell.word import BLANKS, META, Word
from subluminal.core.engine.shell.words import Words

# What an operator could have gone on with, had the line not been continued there.
_OPERATORS = frozenset("&|;<>()!-{'\"[$")


class Gaps:
    __slots__ = ("_documents", "_found", "_outer", "_words", "substituted")

    def __init__(self, words: Words, found: Findings, *, outer: bool, substituted: bool) -> None:
        self.substituted = substituted  # within `$(...)`
        self._words = words
        self._found = found
        self._documents: list[tuple[str, bool, bool]] = []  # here-documents whose bodies are still to come
        self._outer = outer  # the same, around a substitution

    @property
    def documents_wait(self) -> bool:
        return bool(self._documents)

    @property
    def any_documents_wait(self) -> bool:
        return bool(self._documents) or self._outer

    def blanks(self) -> str:
        """The next character that is neither blank nor in a comment."""
        words, text = self._words, self._words.text
        while words.at < words.end:
            char = text[words.at]
            if char in BLANKS:
                words.at += 1
            elif char == "\\" and words.peek(1) == "\n":
                self._continued()
            elif char == "#" and (words.at == 0 or text[words.at - 1] in META):
                end = text.find("\n", words.at)
                began, words.at = words.at, words.end if end < 0 else end
                self._text_in_substitution(began, words.at)
            else:
                return char
        return ""

    def _continued(self) -> None:
        words = self._words
        before = self._words.text[words.at - 1] if words.at else "\n"
        while self._words.text.startswith("\\\n", words.at):
            words.at += 2
        if before in META and before not in " \t\n" and words.peek() in _OPERATORS:
            raise Stop("the command line is continued within an operator")
        if words.peek() == "#" and before not in META:
            raise Stop("the command line is continued before a #")

    def _text_in_substitution(self, began: int, end: int) -> None:
        """bash before version 4 looks for quotes and parentheses in comments and here-documents, too."""
        if self.substituted and not _is_balanced(self._words.text[began:end]):
            self._found.unsure_if_strict(
                "the command line has quotes in a comment or text in $(...), on which shells differ"
            )

    def newlines(self) -> str:
        char = self.blanks()
        while char == "\n":
            self._newline()
            char = self.blanks()
        return char

    def _newline(self) -> None:
        self._words.at += 1
        if self._outer or (self._documents and self._words.spans_lines):
            self._found.unsure("the command line goes on across the line of a here-document")
        documents, self._documents = self._documents, []
        for delimiter, tabs, quoted in documents:
            self._document(delimiter, tabs, quoted)
        self._words.spans_lines = True

    def _document(self, delimiter: str, tabs: bool, quoted: bool) -> None:
        words, text = self._words, self._words.text
        began = at = words.at
        logical = ""  # what a line that is continued started with
        while True:
            end = text.find("\n", at)
            line = text[at : end if end >= 0 else words.end]
            plain = line.lstrip("\t") if tabs else line
            if logical and (plain == delimiter or logical + line == delimiter):
                self._found.unsure("the command line has a here-document whose end shells read in different ways")
            if plain == delimiter and not logical:
                break
            if end < 0:
                self._found.unsure("the command line has a here-document without an end")
                at = words.end
                break
            # Only the length of the delimiter matters of what went before.
            continued = not quoted and (len(line) - len(line.rstrip("\\"))) % 2 == 1
            logical = (logical + plain[:-1])[: len(delimiter) + 1] or "\\" if continued else ""
            at = end + 1
        self._text_in_substitution(began, at)
        if not quoted:
            Words(text[began:at], 0, self._found, words.nesting, words.substitute, words.parse).document()
        words.at = min(at + len(line), words.end) if at < words.end else words.end

    def announce(self, delimiter: Word, *, tabs: bool) -> None:
        """A here-document: its body starts behind this line."""
        if (not delimiter.literal and not delimiter.open) or delimiter.mixed or "\n" in delimiter.text:
            raise Stop("the command line has a here-document whose end shells read in different ways")
        if not self._documents:
            self._words.spans_lines = False
        self._documents.append((delimiter.text, tabs, delimiter.quoted))


def _is_balanced(text: str) -> bool:
    if any(text.count(quote) % 2 for quote in "'\"`"):
        return False
    parentheses = [char for char in text if char in "()"]
    if not parentheses:
        return True
    # Never more closed than opened; and within quotes they would not count.
    depth = 0
    for char in parentheses:
        depth += 1 if char == "(" else -1
        if depth < 0:
            return False
    return not depth and not any(quote in text for quote in "'\"`\\")
