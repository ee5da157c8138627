"""Expansions that shells compute: `${...}`, arithmetic, subscripts.

Their variables are evaluated, so a value can be a program to run; `findings` says which ones are harmless.
"""

from __future__ import annotations

from subluminal.core.engine.shell.findings import Stop
from subluminal.core.engine.shell.word import BLANKS, DIGITS, NAME, NAME_START, names_in

TYPE_CHECKING = False
if TYPE_CHECKING:
    from subluminal.core.engine.shell.words import Words

# Parameters of one character, beside names.
ONE_CHARACTER = frozenset("@*#?$!-0123456789")
# An index is short; what is longer is not looked at, so that many open brackets cost no more than their number.
_LONGEST_SUBSCRIPT = 100
# What may follow the name in `${name`.
_OPERATORS = frozenset("}:-=?+#%/^,@[*!")
# In arithmetic: what no shell takes for the end of it, or for a quote.
_ARITHMETIC = NAME | frozenset(" \t\n+-*/%<>=!&|^~?:,.#@")


def braces(words: Words, within_quotes: bool) -> bool:
    """`${...}`. True: even inside quotes it may become several words."""
    found = words.found
    words.at += 2
    words.deeper()
    length = words.peek() == "#" and words.peek(1) not in ("}", "-", ":", "=", "+", "?", "%", "/", "")
    words.at += length
    indirect = words.peek() == "!" and words.peek(1) in NAME_START | DIGITS
    words.at += indirect
    char = words.peek()
    if char and char in NAME_START | DIGITS:
        name = words.name()
    elif char and char in ONE_CHARACTER:
        words.at += 1
        name = char
    else:
        raise Stop("the command line has an expansion that shells read in different ways")
    if words.peek() not in _OPERATORS:
        raise Stop("the command line has an expansion that shells read in different ways")
    several = name in ("@", "*")
    keys = False
    if words.peek() == "[":
        keys = _subscript(words)
        several = several or keys
    if indirect and not keys and not (words.peek() in ("*", "@") and words.peek(1) == "}"):
        found.evaluate(name)
    if not length:
        words.names.append(name)
    _operation(words, name, within_quotes)
    words.nesting -= 1
    return several or indirect


def _subscript(words: Words) -> bool:
    """`[...]` behind a name. True for all elements."""
    if words.peek(1) in ("@", "*") and words.peek(2) == "]":
        words.at += 3
        return True
    words.at += 1
    computed(words, "]")
    return False


def _operation(words: Words, name: str, within_quotes: bool) -> None:
    """The rest of `${name`, to behind its brace."""
    operator, operand = words.peek(), words.peek(1)
    if operator == ":" and operand not in ("-", "=", "?", "+"):
        words.at += 1
        computed(words, "}")
        return
    if operator == "=" or (operator == ":" and operand == "="):
        words.found.assign(name)
    if operator == "@" and operand not in ("}", "Q", "U", "u", "L", "E", "A", "a", "K", "k"):
        words.found.unsure("the command line expands a value as if it were a prompt")
    while words.at < words.end:
        char = words.text[words.at]
        if char == "}":
            words.at += 1
            return
        if char == "\\":
            words.at += 2
        elif char == "$":
            words.dollar(within_quotes=within_quotes)
        elif char == "`":
            words.backtick(within_quotes=within_quotes)
        elif char in "'\"":
            _quote_in_braces(words, char, within_quotes)
        elif char in "<>=" and words.peek(1) == "(":
            raise Stop("the command line has a substitution within an expansion")
        else:
            words.spans_lines = words.spans_lines or char == "\n"
            words.at += 1
    raise Stop("the command line has an unterminated expansion")


def _quote_in_braces(words: Words, char: str, within_quotes: bool) -> None:
    if within_quotes:
        raise Stop("the command line has quotes within a quoted expansion, on which shells differ")
    words.quoted(char)


def zsh_subscript(words: Words) -> None:
    """`$name[...]` is an element to zsh, and text to others."""
    if words.peek() != "[":
        return
    close = words.text.find("]", words.at, words.at + _LONGEST_SUBSCRIPT)
    if close < 0:
        words.found.unsure("the command line has an expansion that shells read in different ways")
        return
    for name in names_in(words.text[words.at : close]):
        words.found.evaluate(name)


def arithmetic(words: Words) -> None:
    """From behind `((` to behind `))`. A shell would try it as commands where it does not end so: not guessed."""
    computed(words, ")")
    if words.peek() != ")":
        raise Stop("the command line has (( that is not closed by ))")
    words.at += 1


def computed(words: Words, close: str, also: str = "") -> None:
    """Arithmetic, to behind the character that closes it; its variables are evaluated."""
    found, opened = words.found, 0
    words.deeper()
    outer = words.names
    words.names = []
    while words.at < words.end:
        char = words.text[words.at]
        if char in DIGITS:
            _number(words)
        elif char in NAME_START:
            _computed_name(words)
        elif char == "$":
            words.dollar(within_quotes=True)
        elif char == "`":
            words.backtick(within_quotes=True)
        elif char == close and not opened:
            words.at += 1
            break
        elif char in "([":
            opened += 1
            words.at += 1
        elif char in ")]":
            opened -= 1
            words.at += 1
            if opened < 0:
                raise Stop("the command line has arithmetic that is not balanced")
        elif char in _ARITHMETIC or char in also:
            if char in "<>" and words.peek(1) == "(":
                raise Stop("the command line has a substitution within arithmetic")
            words.spans_lines = words.spans_lines or char == "\n"
            words.at += 1
        else:
            raise Stop("the command line has arithmetic that shells read in different ways")
    else:
        raise Stop("the command line has arithmetic without an end")
    for name in words.names:
        found.evaluate(name)
    words.names = outer
    words.nesting -= 1


def _number(words: Words) -> None:
    """Also `0x1f` and `16#ff`."""
    while words.at < words.end and (words.text[words.at] in NAME or words.text[words.at] in "#@"):
        words.at += 1


def _computed_name(words: Words) -> None:
    name = words.name()
    at = words.at
    while at < words.end and words.text[at] in BLANKS:
        at += 1
    sets = words.text.startswith(("=", "+=", "-=", "*=", "/=", "%=", "++", "--"), at)
    if sets and not words.text.startswith("==", at):
        words.found.assign(name, tame=True)
    words.names.append(name)
