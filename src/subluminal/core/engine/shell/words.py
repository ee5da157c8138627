"""One word of a shell line: quotes, escapes, expansions, and the substitutions in it.

What an expansion gives is not known. In the text of a word it stands as a mark: `KEPT` where it stays within the word
(inside double quotes), `SPLIT` where it may become several words or none.
"""

from __future__ import annotations

from subluminal.core.engine.shell.findings import MAX_NESTING, Findings, Stop

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

KEPT, SPLIT = "\0", "\1"
BLANKS = " \t"
# What ends a word, where it is not quoted.
META = frozenset(" \t\n;&|<>()")
_SPECIAL = META | frozenset("\\'\"$`")
_DOUBLE, _DOCUMENT, _BACKTICK, _ANSI = frozenset('"\\$`'), frozenset("\\$`"), frozenset("\\`"), frozenset("\\'")
_NAME_START = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_")
_DIGITS = frozenset("0123456789")
_NAME = _NAME_START | _DIGITS
_ONE_CHARACTER = frozenset("@*#?$!-0123456789")
_ESCAPES = {
    "a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v",
    "\\": "\\", "'": "'", '"': '"', "?": "?",
}  # fmt: skip
_HEX_DIGITS = {"x": 2, "u": 4, "U": 8}
# An index is short; what is longer is not looked at, so that many open brackets cost no more than their number.
_LONGEST_SUBSCRIPT = 100
# What may follow the name in `${name`.
_OPERATORS = frozenset("}:-=?+#%/^,@[*!")
# In arithmetic: what no shell takes for the end of it, or for a quote.
_ARITHMETIC = _NAME | frozenset(" \t\n+-*/%<>=!&|^~?:,.#@")


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
        return not self.names and (not number or (number.isascii() and number.isdigit()))


def names_in(text: str) -> list[str]:
    """What could be variables in a piece of arithmetic."""
    return [part for part in "".join(char if char in _NAME else " " for char in text).split() if is_name(part)]


def is_name(text: str) -> bool:
    return bool(text) and text[0] in _NAME_START and all(char in _NAME for char in text)


class Words:
    """A position in a text, moved on by what is read. `substitute` reads the list of `$(` and returns where it ends."""

    __slots__ = ("_substitute", "at", "end", "found", "names", "nesting", "parse", "spans_lines", "text")

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
        self._substitute = substitute

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
                parts.append(self._quoted(char))
        if self.at == began:
            return None
        word = Word("".join(parts), quoted=quoted)
        word.head = word.text if head is None else head
        word.names = tuple(self.names)
        word.mixed = mixed
        word.open = _expands("".join(unquoted), word)
        return word

    def _run(self, stops: frozenset[str]) -> str:
        text, began, at, end = self.text, self.at, self.at, self.end
        while at < end and text[at] not in stops:
            at += 1
        self.at = at
        return text[began:at]

    def _quoted(self, char: str) -> str:
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
                self.arithmetic()
            else:
                self._substituted(2)
            return mark
        if char == "{":
            return SPLIT if self._braces(within_quotes) else mark
        if char and char in _NAME_START:
            self.at += 1
            self.names.append(self._name())
            self._zsh_subscript()
            return mark
        if char and char in _ONE_CHARACTER:
            self.at += 2
            if char not in "#?$!":
                self.names.append(char)
            elif char == "#" and self.peek() in _NAME_START:
                self._name()  # zsh: the length of a variable
            self._zsh_subscript()
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

    def _zsh_subscript(self) -> None:
        """`$name[...]` is an element to zsh, and text to others."""
        if self.peek() != "[":
            return
        close = self.text.find("]", self.at, self.at + _LONGEST_SUBSCRIPT)
        if close < 0:
            self.found.unsure("the command line has an expansion that shells read in different ways")
            return
        for name in names_in(self.text[self.at : close]):
            self.found.evaluate(name)

    def _name(self) -> str:
        began = self.at
        while self.at < self.end and self.text[self.at] in _NAME:
            self.at += 1
        return self.text[began : self.at]

    def _substituted(self, skip: int) -> None:
        """`$(`, `<(`, `>(`: a list of commands."""
        names = self.names
        self.deeper()
        self.at = self._substitute(self.text, self.at + skip, self.nesting)
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

    def _braces(self, within_quotes: bool) -> bool:
        """`${...}`. True: even inside quotes it may become several words."""
        found = self.found
        self.at += 2
        self.deeper()
        length = self.peek() == "#" and self.peek(1) not in ("}", "-", ":", "=", "+", "?", "%", "/", "")
        self.at += length
        indirect = self.peek() == "!" and self.peek(1) in _NAME_START | _DIGITS
        self.at += indirect
        char = self.peek()
        if char and char in _NAME_START | _DIGITS:
            name = self._name()
        elif char and char in _ONE_CHARACTER:
            self.at += 1
            name = char
        else:
            raise Stop("the command line has an expansion that shells read in different ways")
        if self.peek() not in _OPERATORS:
            raise Stop("the command line has an expansion that shells read in different ways")
        several = name in ("@", "*")
        keys = False
        if self.peek() == "[":
            keys = self._subscript()
            several = several or keys
        if indirect and not keys and not (self.peek() in ("*", "@") and self.peek(1) == "}"):
            found.evaluate(name)
        if not length:
            self.names.append(name)
        self._operation(name, within_quotes)
        self.nesting -= 1
        return several or indirect

    def _subscript(self) -> bool:
        """`[...]` behind a name. True for all elements."""
        if self.peek(1) in ("@", "*") and self.peek(2) == "]":
            self.at += 3
            return True
        self.at += 1
        self.computed("]")
        return False

    def _operation(self, name: str, within_quotes: bool) -> None:
        """The rest of `${name`, to behind its brace."""
        operator, operand = self.peek(), self.peek(1)
        if operator == ":" and operand not in ("-", "=", "?", "+"):
            self.at += 1
            self.computed("}")
            return
        if operator == "=" or (operator == ":" and operand == "="):
            self.found.assign(name)
        if operator == "@" and operand not in ("}", "Q", "U", "u", "L", "E", "A", "a", "K", "k"):
            self.found.unsure("the command line expands a value as if it were a prompt")
        while self.at < self.end:
            char = self.text[self.at]
            if char == "}":
                self.at += 1
                return
            if char == "\\":
                self.at += 2
            elif char == "$":
                self.dollar(within_quotes=within_quotes)
            elif char == "`":
                self.backtick(within_quotes=within_quotes)
            elif char in "'\"":
                self._quote_in_braces(char, within_quotes)
            elif char in "<>=" and self.peek(1) == "(":
                raise Stop("the command line has a substitution within an expansion")
            else:
                self.spans_lines = self.spans_lines or char == "\n"
                self.at += 1
        raise Stop("the command line has an unterminated expansion")

    def _quote_in_braces(self, char: str, within_quotes: bool) -> None:
        if within_quotes:
            raise Stop("the command line has quotes within a quoted expansion, on which shells differ")
        self._quoted(char)

    def arithmetic(self) -> None:
        """From behind `((` to behind `))`. A shell would try it as commands where it does not end so: not guessed."""
        self.computed(")")
        if self.peek() != ")":
            raise Stop("the command line has (( that is not closed by ))")
        self.at += 1

    def computed(self, close: str, also: str = "") -> None:
        """Arithmetic, to behind the character that closes it; its variables are evaluated."""
        found, opened = self.found, 0
        self.deeper()
        outer = self.names
        self.names = []
        while self.at < self.end:
            char = self.text[self.at]
            if char in _DIGITS:
                self._number()
            elif char in _NAME_START:
                self._computed_name()
            elif char == "$":
                self.dollar(within_quotes=True)
            elif char == "`":
                self.backtick(within_quotes=True)
            elif char == close and not opened:
                self.at += 1
                break
            elif char in "([":
                opened += 1
                self.at += 1
            elif char in ")]":
                opened -= 1
                self.at += 1
                if opened < 0:
                    raise Stop("the command line has arithmetic that is not balanced")
            elif char in _ARITHMETIC or char in also:
                if char in "<>" and self.peek(1) == "(":
                    raise Stop("the command line has a substitution within arithmetic")
                self.spans_lines = self.spans_lines or char == "\n"
                self.at += 1
            else:
                raise Stop("the command line has arithmetic that shells read in different ways")
        else:
            raise Stop("the command line has arithmetic without an end")
        for name in self.names:
            found.evaluate(name)
        self.names = outer
        self.nesting -= 1

    def _number(self) -> None:
        """Also `0x1f` and `16#ff`."""
        while self.at < self.end and (self.text[self.at] in _NAME or self.text[self.at] in "#@"):
            self.at += 1

    def _computed_name(self) -> None:
        name = self._name()
        at = self.at
        while at < self.end and self.text[at] in BLANKS:
            at += 1
        sets = self.text.startswith(("=", "+=", "-=", "*=", "/=", "%=", "++", "--"), at)
        if sets and not self.text.startswith("==", at):
            self.found.assign(name, tame=True)
        self.names.append(name)


def _expands(unquoted: str, word: Word) -> bool:
    """Whether globs, braces, a tilde or zsh's `=` may make other words of it."""
    text, head = word.text, word.head
    if "*" in unquoted or "?" in unquoted or ("[" in unquoted and "]" in unquoted):
        return True
    if "{" in unquoted and ("," in text or ".." in text):
        return True
    return head.startswith("=") or (head.startswith("~") and "/" not in head)
