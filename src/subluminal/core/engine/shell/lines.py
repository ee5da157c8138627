"""The grammar of a shell line: lists, pipelines, compound commands, redirections, here-documents.

Stricter than any shell on purpose. Where bash sees a syntax error zsh may see a program, so what does not follow the
grammar that they share stops the reading.
"""

from __future__ import annotations

from subluminal.core.engine.shell.compounds import compound
from subluminal.core.engine.shell.expansions import arithmetic
from subluminal.core.engine.shell.findings import MAX_LINES_DEEP, Findings, Stop
from subluminal.core.engine.shell.gaps import Gaps
from subluminal.core.engine.shell.programs import run
from subluminal.core.engine.shell.redirections import is_redirection, redirect
from subluminal.core.engine.shell.word import META, RESERVED, Word, is_name, is_number
from subluminal.core.engine.shell.words import Words

# Words that zsh alone takes for more than the name of a program.
_ZSH_RESERVED = frozenset(["repeat", "foreach", "end", "nocorrect", "noglob", "always", "-"])
_LONGEST_RESERVED = max(map(len, RESERVED))
_DECLARING = frozenset(["declare", "typeset", "local", "export", "readonly"])


def parse(text: str, found: Findings, *, nesting: int = 0, lines_deep: int = 0) -> None:
    """All programs of a whole line, into `found`."""
    line = Line(text, 0, found, nesting, lines_deep)
    line.list_until(())
    if line.gaps.documents_wait:
        found.unsure("the command line has a here-document without a body")


class Line:
    """A list of commands in a text, from a place on. Substitutions in it are lines of their own in the same text."""

    __slots__ = ("_lines_deep", "_text", "found", "gaps", "words")

    def __init__(
        self, text: str, at: int, found: Findings, nesting: int, lines_deep: int, around: Gaps | None = None
    ) -> None:
        self._text = text
        self._lines_deep = lines_deep
        self.found = found
        self.words = Words(text, at, found, nesting, self._substitute, self._nested)
        outer = around is not None and around.any_documents_wait
        self.gaps = Gaps(self.words, found, outer=outer, substituted=around is not None)

    def _substitute(self, text: str, at: int, nesting: int) -> int:
        inner = Line(text, at, self.found, nesting, self._lines_deep, self.gaps)
        inner.list_until((), ")")
        if inner.gaps.documents_wait:
            raise Stop("the command line has a here-document that ends outside its substitution")
        self.words.spans_lines = self.words.spans_lines or inner.words.spans_lines
        return inner.words.at + 1

    def _nested(self, text: str, nesting: int) -> None:
        parse(text, self.found, nesting=nesting, lines_deep=self._lines_deep)

    def list_until(self, closers: tuple[str, ...], close: str = "") -> str:
        """Commands up to one of these reserved words or this character, which is not consumed; without, to the end."""
        words, empty = self.words, True
        words.deeper()
        while True:
            char = self.gaps.newlines()
            if not char or char == close or (closers and self.reserved() in closers) or self.ends_clause(close):
                break
            self._and_or()
            empty = False
            char = self.gaps.blanks()
            if char in (";", "&"):
                if self.ends_clause(close):
                    break
                if words.peek(1) == ";" or (char == ";" and words.peek(1) in ("&", "|")):
                    raise Stop("the command line has ;; outside of case")
                if char == "&" and words.peek(1) == "!":
                    raise Stop("the command line has &! which shells read in different ways")
                words.at += 1
            elif char and char != "\n" and char != close:
                raise Stop(f"the command line has {char} where a command ends")
        if empty and (closers or close) and close != ";;":
            raise Stop("the command line has a group without a command")
        if not char and (closers or close):
            raise Stop("the command line has a group that is not closed")
        words.nesting -= 1
        return char

    def ends_clause(self, close: str) -> bool:
        return close == ";;" and self._text.startswith((";;", ";&"), self.words.at)

    def _and_or(self) -> None:
        while True:
            self._pipeline()
            self.gaps.blanks()
            if not self._text.startswith(("&&", "||"), self.words.at):
                return
            self.words.at += 2
            self.gaps.newlines()

    def _pipeline(self) -> None:
        while True:
            self._command()
            if self.gaps.blanks() != "|" or self.words.peek(1) == "|":
                return
            self.words.at += 2 if self.words.peek(1) == "&" else 1
            self.gaps.newlines()

    def reserved(self) -> str:
        """The reserved word at this place, or nothing."""
        at, end = self.words.at, self.words.at
        limit = min(self.words.end, at + _LONGEST_RESERVED + 1)
        while end < limit and self._text[end] not in META:
            end += 1
        word = self._text[at:end]
        return word if word in RESERVED else ""

    def expect(self, reserved: str) -> None:
        self.gaps.blanks()
        if self.reserved() != reserved:
            raise Stop(f"the command line has no {reserved} where it needs one")
        self.words.at += len(reserved)

    def _command(self) -> None:
        words = self.words
        char = self.gaps.blanks()
        reserved = self.reserved()
        prefixed = False
        while reserved in ("!", "time", "coproc"):
            prefixed = True
            words.at += len(reserved)
            if reserved == "!" and words.peek() == "(":
                self.found.unsure("the command line has !( which shells read in different ways")
            if reserved == "coproc":
                self.found.unsure("the command line has a coprocess")
            if reserved == "time":
                self._time()
            char = self.gaps.blanks()
            reserved = self.reserved()
        if prefixed and (not char or char in "\n;&|)") and not self._text.startswith("&>", words.at):
            return
        words.deeper()
        if char == "(":
            self._parenthesis()
        elif reserved:
            words.at += len(reserved)
            compound(self, reserved)
            self._redirections()
        else:
            self._simple()
        words.nesting -= 1

    def _time(self) -> None:
        """A reserved word to bash and zsh, a program to others: it counts as one."""
        self.found.add("time")
        self.gaps.blanks()
        for option in ("-p", "--"):
            at = self.words.at
            if self._text.startswith(option, at) and self._text[at + 2 : at + 3] in ("", *META):
                self.words.at += 2
                if self.gaps.blanks() == "(" or self.reserved():
                    raise Stop("the command line has an option of time that zsh does not know")
        if self.words.peek() == "-":
            raise Stop("the command line has an option of time that is not known")

    def _parenthesis(self) -> None:
        words = self.words
        words.at += 1
        if words.peek() == "(":
            words.at += 1
            self.found.add("((")
            self.found.unsure_if_strict("the command line has ((...)), which not every shell takes for arithmetic")
            arithmetic(words)
        else:
            self.list_until((), ")")
            words.at += 1
        self._redirections()

    def function_body(self) -> None:
        """What a function runs is listed where it is defined; its name where it is called."""
        self.gaps.newlines()
        self._command()

    def _simple(self) -> None:
        argv: list[Word] = []
        try:
            bare = self._gather(argv)
        except Stop:
            if argv:  # what is denied must be seen, whatever follows it
                self._run(argv)
            raise
        if argv:
            self._run(argv)
        elif bare:
            raise Stop("the command line has no command where it needs one")

    def _gather(self, argv: list[Word]) -> bool:
        """The words of a simple command. True: there is neither an assignment nor a redirection either."""
        words, found = self.words, self.found
        assigned = redirected = both = False
        while True:
            char = self.gaps.blanks()
            if is_redirection(self.words):
                redirected = True
                both = redirect(self.words, self.gaps) == "&" or both
                continue
            if not char or char in "\n;|&)":
                break
            if char == "(":
                if len(argv) != 1 or assigned or redirected:
                    raise Stop("the command line has ( where a word belongs")
                self._defined(argv.pop())
                return False
            word = words.word()
            if word is None:
                raise Stop(f"the command line has {char} where a word belongs")
            if words.peek() in ("<", ">") and is_number(word.text) and word.bare:
                raise Stop("the command line is continued within a redirection")
            if not argv and self._assignment(word):
                assigned = True
                continue
            if argv and argv[0].text in _DECLARING and words.peek() == "(" and word.bare and word.text.endswith("="):
                self._array()
                found.assign_list(word.text[:-1])
            if word.bare and word.text.count("}") > word.text.count("{"):
                found.unsure("the command line has } among words, which some shells take for the end of a group")
            if both:
                found.unsure_if_strict("the command line has words behind &>, which not every shell knows")
            if words.peek() in ("<", ">") and word.head[:1] == "{":
                found.unsure_if_strict("the command line puts a descriptor into a variable")
            argv.append(word)
        if redirected and not argv:
            found.unsure_if_strict("the command line has a redirection without a command, which zsh gives to a program")
        return not assigned and not redirected

    def _run(self, argv: list[Word]) -> None:
        first = argv[0]
        if first.bare and first.text in RESERVED:
            raise Stop(f"the command line has {first.text} where a command starts")
        if first.bare and first.text in _ZSH_RESERVED:
            self.found.unsure(f"the command line has {first.text}, which some shells take for a word of their own")
        self.run(argv)

    def run(self, argv: list[Word]) -> None:
        run(argv, self.found, self._nested_line)

    def _nested_line(self, text: str) -> None:
        if self._lines_deep >= MAX_LINES_DEEP:
            self.found.unsure(f"the command line has lines nested more than {MAX_LINES_DEEP} deep")
            return
        self.words.deeper()
        parse(text, self.found, nesting=self.words.nesting, lines_deep=self._lines_deep + 1)
        self.words.nesting -= 1

    def _defined(self, name: Word) -> None:
        self.words.at += 1
        if self.gaps.blanks() != ")":
            raise Stop("the command line has ( where a word belongs")
        self.words.at += 1
        if not name.bare or not name.literal or name.text in RESERVED:
            raise Stop("the command line has a function that shells read in different ways")
        self.function_body()

    def _assignment(self, word: Word) -> bool:
        """`NAME=`, `NAME+=`, `NAME[...]=` before a command."""
        target, equals, _ = word.head.partition("=")
        if not equals:
            if "[" in word.head and is_name(word.head.partition("[")[0]) and "=" in word.text:
                raise Stop("the command line sets an element that shells read in different ways")
            return False
        target = target.removesuffix("+")
        name, bracket, index = target.partition("[")
        if not is_name(name):
            return False
        if bracket:
            if not (index.endswith("]") and is_number(index[:-1])):
                raise Stop("the command line sets an element that shells read in different ways")
            self.found.unsure_if_strict("the command line sets an element, which not every shell knows")
        value = Word(word.text[len(word.head.partition("=")[0]) + 1 :])
        value.names = word.names
        self.found.assign(name, tame=value.tame)
        if self.words.peek() == "(":
            if value.text:
                raise Stop("the command line has ( where a word belongs")
            self._array()
            self.found.assign_list(name)
        return True

    def _array(self) -> None:
        """`(...)` behind an assignment: its elements are words."""
        self.words.at += 1
        while self.gaps.newlines() != ")":
            element = self.words.word()
            if element is None:
                raise Stop("the command line has a list of values that is not closed")
            if element.head.startswith("["):
                self.found.unsure_if_strict("the command line sets elements by name, which can run commands")
        self.words.at += 1
        if self.words.peek() not in ("", *META):
            raise Stop("the command line has a word directly behind a list of values")

    def _redirections(self) -> None:
        """Behind a compound command."""
        while self.gaps.blanks() and is_redirection(self.words):
            redirect(self.words, self.gaps)
