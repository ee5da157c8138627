"""Compound commands: `if`, `for`, `while`, `case`, `[[`, functions. Each is read from behind its first word."""

from __future__ import annotations

from subluminal.core.engine.shell.builtins import evaluate
from subluminal.core.engine.shell.expansions import computed
from subluminal.core.engine.shell.findings import Stop
from subluminal.core.engine.shell.word import RESERVED, Word, is_name, is_number

TYPE_CHECKING = False
if TYPE_CHECKING:
    from subluminal.core.engine.shell.lines import Line

_COMPUTING = frozenset(["-eq", "-ne", "-lt", "-le", "-gt", "-ge", "-v", "-R"])


def compound(line: Line, reserved: str) -> None:
    if reserved == "{":
        line.list_until(("}",))
        line.expect("}")
    elif reserved in ("while", "until"):
        line.list_until(("do",))
        _body(line)
    elif reserved in _COMPOUNDS:
        _COMPOUNDS[reserved](line)
    else:
        raise Stop(f"the command line has {reserved} where a command starts")


def _if(line: Line) -> None:
    line.list_until(("then",))
    line.expect("then")
    while True:
        line.list_until(("elif", "else", "fi"))
        reserved = line.reserved()
        line.words.at += len(reserved)
        if reserved == "fi":
            return
        if reserved == "elif":
            line.list_until(("then",))
            line.expect("then")
        else:
            line.list_until(("fi",))
            line.expect("fi")
            return


def _body(line: Line) -> None:
    line.expect("do")
    line.list_until(("done",))
    line.expect("done")


def _for(line: Line) -> None:
    words = line.words
    if line.gaps.blanks() == "(":
        if words.peek(1) != "(":
            raise Stop("the command line has a loop that shells read in different ways")
        words.at += 2
        computed(words, ")", also=";")
        if words.peek() != ")":
            raise Stop("the command line has (( that is not closed by ))")
        words.at += 1
    else:
        _for_each(line)
    if line.gaps.blanks() == ";":
        words.at += 1
    line.gaps.newlines()
    _body(line)


def _for_each(line: Line) -> None:
    words = line.words
    name = words.word()
    if name is None or not name.bare or not is_name(name.text):
        raise Stop("the command line has a loop that shells read in different ways")
    tame = False
    line.gaps.newlines()
    if line.reserved() == "in":
        words.at += 2
        tame = True
        while (char := line.gaps.blanks()) and char not in "\n;":
            value = words.word()
            if value is None:
                raise Stop(f"the command line has {char} in the words of a loop")
            tame = tame and (value.tame or _is_range(value))
    line.found.assign(name.text, tame=tame)


def _case(line: Line) -> None:
    words = line.words
    line.gaps.blanks()
    if words.word() is None:
        raise Stop("the command line has a case without a word")
    line.gaps.newlines()
    line.expect("in")
    while line.gaps.newlines() and line.reserved() != "esac":
        if words.peek() == "(":
            words.at += 1
        elif line.gaps.substituted:  # bash before version 4 ends the substitution at the pattern
            line.found.unsure_if_strict("the command line has a case in $(...), on which shells differ")
        while True:
            line.gaps.blanks()
            if words.word() is None:
                raise Stop("the command line has a case without a pattern")
            char = line.gaps.blanks()
            words.at += 1
            if char == ")":
                break
            if char != "|":
                raise Stop("the command line has a case that shells read in different ways")
        line.list_until(("esac",), ";;")
        if line.words.text.startswith(";;&", words.at):
            words.at += 3
        elif line.ends_clause(";;"):
            words.at += 2
    line.expect("esac")


def _test(line: Line) -> None:
    """`[[ ... ]]`: no program, but listed as one, as `[` is."""
    words = line.words
    line.found.add("[[")
    operands: list[Word] = []
    while True:
        char = line.gaps.newlines()
        if line.reserved() == "]]":
            words.at += 2
            break
        if not char or char == ";":
            raise Stop("the command line has [[ that is not closed")
        word = words.word()
        if word is not None:
            operands.append(word)
            continue
        if char in "|(":
            line.found.unsure_if_strict("the command line has | or ( in [[ ]], which not every shell knows")
        if char == "&" and words.peek(1) != "&":
            raise Stop("the command line has & in [[ ]]")
        words.at += 2 if char == "&" else 1
    if any(operand.text in _COMPUTING for operand in operands):
        for operand in operands:
            if operand.text not in _COMPUTING:
                evaluate(operand, line.found)


def _function(line: Line) -> None:
    line.gaps.blanks()
    name = line.words.word()
    if name is None or not name.bare or not name.literal or name.text in RESERVED:
        raise Stop("the command line has a function that shells read in different ways")
    if line.gaps.blanks() == "(":
        line.words.at += 1
        if line.gaps.blanks() != ")":
            raise Stop("the command line has a function that shells read in different ways")
        line.words.at += 1
    line.function_body()


def _is_range(word: Word) -> bool:
    first, dots, last = word.text.removeprefix("{").removesuffix("}").partition("..")
    return word.bare and word.head.startswith("{") and bool(dots) and is_number(first) and is_number(last)


_COMPOUNDS = {"if": _if, "for": _for, "select": _for, "case": _case, "[[": _test, "function": _function}
