"""The words of a shell line: quotes, escapes, and the substitutions in them."""

from __future__ import annotations

from subluminal.core.engine.shell.expansions import ONE_CHARACTER, arithmetic, braces, zsh_subscript
from subluminal.core.engine.shell.findings import MAX_NESTING, Findings, Stop
from subluminal.core.engine.shell.word import KEPT, META, NAME, NAME_START, SPLIT, Word, expands

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_SPECIAL = META | frozenset("\\'\"$`")
_DOUBLE, _DOCUMENT, _BACKTICK, _ANSI = frozenset('"\\$`'), frozenset("\\$`"), frozenset("\\`"), frozenset("\\'")
_ESCAPES = {
    "a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v",
    "\\": "\\", "'": "'", '"': '"', "?": "?",
}  # fmt: skip
_HEX_DIGITS = {"x": 2, "u": 4, "U": 8}


class Words:
    """A position in a text, moved on by what is read. `substitute` reads the list of `$(` and returns where it ends."""

    __slots__ = ("at", "end", "found", "names", "nesting", "parse", "spans_lines", "substitute", "text")

    def __init__(
        self,
        text: str,
        at: int,
        found: Findings,
        nesting: int,
        substitute: Callable[[str, int, int], int],
        parse: Callable[[str, int], None],
    ) -> None:
        self.text = text
        self.at = at
        self.end = len(text)
        self.found = found
        self.nesting = nesting
        self.parse = parse
        self.names: list[str] = []
        self.spans_lines = False  # a newline was read within a word
        self.substitute = substitute

    def peek(self, ahead: int = 0) -> str:
        at = self.at + ahead
        return self.text[at] if at < self.end else ""

    def deeper(self) -> None:
        self.nesting += 1
        if self.nesting > MAX_NESTING:
            raise Stop("the command line is nested too deeply")

    def word(self) -> Word | None:
        """The word at this place; None where there is none."""
        text, began = self.text, self.at
        parts: list[str] = []
        unquoted: list[str] = []
        head: str | None = None
        quoted = mixed = False
        self.names = []
        while self.at < self.end:
            char = text[self.at]
            if char not in _SPECIAL:
                run = self._run(_SPECIAL)
                parts.append(run)
                unquoted.append(run)
                continue
            if char in META:
                if not (char in "<>" and self.peek(1) == "("):
                    break
                head = "".join(parts) if head is None else head
                self._substituted(2)
                parts.append(SPLIT)
                continue
            if text.startswith("\\\n", self.at):
                self.at += 2
                continue
            head = "".join(parts) if head is None else head
            if char == "$":
                if self.peek(1) in ("'", '"'):
                    mixed = quoted = True
                parts.append(self.dollar(within_quotes=False))
            elif char == "`":
                self.backtick(within_quotes=False)
                parts.append(SPLIT)
            else:
                quoted = True
                parts.append(self.quoted(char))
        if self.at == began:
            return None
        word = Word("".join(parts), quoted=quoted)
        word.head = word.text if head is None else head
        word.names = tuple(self.names)
        word.mixed = mixed
        word.open = expands("".join(unquoted), word)
        return word

    def _run(self, stops: frozenset[str]) -> str:
        text, began, at, end = self.text, self.at, self.at, self.end
        while at < end and text[at] not in stops:
            at += 1
        self.at = at
        return text[began:at]

    def quoted(self, char: str) -> str:
        if char == '"':
            self.at += 1
            return self.double_quoted()
        if char == "'":
            return self._single_quoted()
        self.at += 2
        if self.at > self.end:
            raise Stop("the command line ends in a backslash")
        return self.text[self.at - 1]

    def _single_quoted(self) -> str:
        close = self.text.find("'", self.at + 1)
        if close < 0:
            raise Stop("the command line has an unterminated quote")
        inner = self.text[self.at + 1 : close]
        self.spans_lines = self.spans_lines or "\n" in inner
        self.at = close + 1
        return inner

    def double_quoted(self) -> str:
        """What is inside double quotes, from behind the first to behind the last."""
        parts = []
        self.deeper()
        while self.at < self.end:
            run = self._run(_DOUBLE)
            self.spans_lines = self.spans_lines or "\n" in run
            parts.append(run)
            char = self.peek()
            if char == '"':
                self.at += 1
                self.nesting -= 1
                return "".join(parts)
            parts.append(self._within_quotes(char))
        raise Stop("the command line has an unterminated quote")

    def _within_quotes(self, char: str) -> str:
        """An escape or an expansion inside double quotes, or in a here-document."""
        if char == "$":
            return self.dollar(within_quotes=True)
        if char == "`":
            self.backtick(within_quotes=True)
            return KEPT
        escaped = self.peek(1)
        self.at += 2
        if escaped == "\n":
            return ""
        return escaped if escaped and escaped in '$`"\\' else "\\" + escaped

    def document(self) -> None:
        """The body of a here-document whose end was not quoted: only the substitutions in it matter."""
        while self.at < self.end:
            self._run(_DOCUMENT)
            if self.at < self.end:
                self._within_quotes(self.peek())

    def dollar(self, *, within_quotes: bool) -> str:
        """An expansion, or a plain dollar sign."""
        char = self.peek(1)
        mark = KEPT if within_quotes else SPLIT
        if char == "(":
            if self.peek(2) == "(":
                self.at += 3
                arithmetic(self)
            else:
                self._substituted(2)
            return mark
        if char == "{":
            return SPLIT if braces(self, within_quotes) else mark
        if char and char in NAME_START:
            self.at += 1
            self.names.append(self.name())
            zsh_subscript(self)
            return mark
        if char and char in ONE_CHARACTER:
            self.at += 2
            if char not in "#?$!":
                self.names.append(char)
            elif char == "#" and self.peek() in NAME_START:
                self.name()  # zsh: the length of a variable
            zsh_subscript(self)
            return SPLIT if char in "@*" else mark
        if char == "[":
            raise Stop("the command line has arithmetic in $[...]")
        if char == "\\" and self.peek(2) == "\n":
            raise Stop("the command line is continued within an expansion")
        self.at += 1
        if within_quotes:
            return "$"
        if char == "'":
            return self._ansi_quoted()
        if char == '"':
            self.at += 1
            return self.double_quoted()
        if char and char in "=~^+:":
            self.found.unsure("the command line has an expansion that shells read in different ways")
        return "$"

    def name(self) -> str:
        began = self.at
        while self.at < self.end and self.text[self.at] in NAME:
            self.at += 1
        return self.text[began : self.at]

    def _substituted(self, skip: int) -> None:
        """`$(`, `<(`, `>(`: a list of commands."""
        names = self.names
        self.deeper()
        self.at = self.substitute(self.text, self.at + skip, self.nesting)
        self.nesting -= 1
        self.names = names
        self.names.append("")

    def backtick(self, *, within_quotes: bool) -> None:
        """As the standard says: to the first backtick that is not escaped, and one level of backslashes removed."""
        parts = []
        self.at += 1
        while True:
            parts.append(self._run(_BACKTICK))
            if self.at + 1 >= self.end and self.peek() != "`":
                raise Stop("the command line has an unterminated backtick")
            if self.peek() == "`":
                break
            escaped = self.peek(1)
            self.at += 2
            if escaped == '"' and within_quotes:
                self.found.unsure("the command line has an escaped quote within backticks, on which shells differ")
            parts.append(escaped if escaped in "$`\\" or (escaped == '"' and within_quotes) else "\\" + escaped)
        self.at += 1
        inner = "".join(parts)
        self.spans_lines = self.spans_lines or "\n" in inner
        names = self.names
        self.deeper()
        self.parse(inner, self.nesting)
        self.nesting -= 1
        self.names = names
        self.names.append("")

    def _ansi_quoted(self) -> str:
        """`$'...'`, at its quote. dash does not know it, and ends it at an escaped quote."""
        parts = []
        self.at += 1
        while True:
            parts.append(self._run(_ANSI))
            if self.at + 1 >= self.end and self.peek() != "'":
                raise Stop("the command line has an unterminated quote")
            if self.peek() == "'":
                self.at += 1
                break
            parts.append(self._ansi_escape(self.peek(1)))
        value = "".join(parts)
        self.spans_lines = self.spans_lines or "\n" in value
        if KEPT in value or SPLIT in value:
            self.found.unsure("the command line has control characters")
        return value

    def _ansi_escape(self, char: str) -> str:
        self.at += 2
        if char == "'":
            self.found.unsure_if_strict("the command line has an escaped quote in $'...', on which shells differ")
        if char in _ESCAPES:
            return _ESCAPES[char]
        if char in "01234567":
            self.at -= 1
            return chr(int(self._digits(3, "01234567"), 8) & 0xFF)
        if char in _HEX_DIGITS:
            digits = self._digits(_HEX_DIGITS[char], "0123456789abcdefABCDEF")
            code = int(digits, 16) if digits else 0
            if code > 127:
                self.found.unsure_if_strict("the command line spells characters by number")
            return chr(code) if digits and code < 0x110000 else KEPT
        if char == "c":
            self.at += 1
            return KEPT
        return "\\" + char

    def _digits(self, most: int, allowed: str) -> str:
        began = self.at
        while self.at < min(self.end, began + most) and self.text[self.at] in allowed:
            self.at += 1
        return self.text[began : self.at]
