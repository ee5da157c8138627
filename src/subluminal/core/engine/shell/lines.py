"""The grammar of a shell line: lists, pipelines, compound commands, redirections, here-documents.

Stricter than any shell on purpose. Where bash sees a syntax error zsh may see a program, so what does not follow the
grammar that they share stops the reading.
"""

from __future__ import annotations

from subluminal.core.engine.shell.builtins import evaluate
from subluminal.core.engine.shell.findings import MAX_LINES_DEEP, WRITES, Findings, Stop
from subluminal.core.engine.shell.programs import run
from subluminal.core.engine.shell.words import BLANKS, KEPT, META, SPLIT, Word, Words, is_name

_RESERVED = frozenset(
    [
        "!",
        "{",
        "}",
        "[[",
        "]]",
        "case",
        "coproc",
        "do",
        "done",
        "elif",
        "else",
        "esac",
        "fi",
        "for",
        "function",
        "if",
        "in",
        "select",
        "then",
        "time",
        "until",
        "while",
    ]
)
# Words that zsh alone takes for more than the name of a program.
_ZSH_RESERVED = frozenset(["repeat", "foreach", "end", "nocorrect", "noglob", "always", "-"])
_LONGEST_RESERVED = max(map(len, _RESERVED))
_REDIRECTIONS = ("&>>", "&>", "<<<", "<<-", "<<", "<>", "<&", ">&", ">>", ">|", ">", "<")
_INPUT = ("<", "<&", "<<<")
_HARMLESS_TARGETS = frozenset(("/dev/null", "/dev/stdout", "/dev/stderr"))
_COMPUTING = frozenset(["-eq", "-ne", "-lt", "-le", "-gt", "-ge", "-v", "-R"])
_DECLARING = frozenset(["declare", "typeset", "local", "export", "readonly"])
# What an operator could have gone on with, had the line not been continued there.
_OPERATORS = frozenset("&|;<>()!-{'\"[$")


def parse(text: str, found: Findings, *, nesting: int = 0, lines_deep: int = 0) -> None:
    """All programs of a whole line, into `found`."""
    line = Line(text, 0, found, nesting, lines_deep)
    line.list_until(())
    line.end()


class Line:
    """A list of commands in a text, from a place on. Substitutions in it are lines of their own in the same text."""

    __slots__ = ("_documents", "_found", "_lines_deep", "_outer_documents", "_text", "_words")

    def __init__(self, text: str, at: int, found: Findings, nesting: int, lines_deep: int, waits: bool = False) -> None:
        self._text = text
        self._found = found
        self._lines_deep = lines_deep
        self._words = Words(text, at, found, nesting, self._substitute, self._nested)
        self._documents: list[tuple[str, bool, bool]] = []  # here-documents whose bodies are still to come
        self._outer_documents = waits

    def end(self) -> None:
        if self._documents:
            self._found.unsure("the command line has a here-document without a body")

    def _substitute(self, text: str, at: int, nesting: int) -> int:
        inner = Line(text, at, self._found, nesting, self._lines_deep, self._waits())
        inner.list_until((), ")")
        if inner._documents:
            raise Stop("the command line has a here-document that ends outside its substitution")
        self._words.spans_lines = self._words.spans_lines or inner._words.spans_lines
        return inner._words.at + 1

    def _nested(self, text: str, nesting: int) -> None:
        parse(text, self._found, nesting=nesting, lines_deep=self._lines_deep)

    def _waits(self) -> bool:
        return bool(self._documents) or self._outer_documents

    # Blanks, newlines and here-documents.

    def _blanks(self) -> str:
        """The next character that is neither blank nor in a comment."""
        words, text = self._words, self._text
        while words.at < words.end:
            char = text[words.at]
            if char in BLANKS:
                words.at += 1
            elif char == "\\" and words.peek(1) == "\n":
                self._continued()
            elif char == "#" and (words.at == 0 or text[words.at - 1] in META or text[words.at - 1] == "`"):
                end = text.find("\n", words.at)
                words.at = words.end if end < 0 else end
            else:
                return char
        return ""

    def _continued(self) -> None:
        words = self._words
        before = self._text[words.at - 1] if words.at else "\n"
        while self._text.startswith("\\\n", words.at):
            words.at += 2
        if before in META and before not in " \t\n" and words.peek() in _OPERATORS:
            raise Stop("the command line is continued within an operator")
        if words.peek() == "#" and before not in META:
            raise Stop("the command line is continued before a #")

    def _newlines(self) -> str:
        char = self._blanks()
        while char == "\n":
            self._newline()
            char = self._blanks()
        return char

    def _newline(self) -> None:
        self._words.at += 1
        if self._outer_documents or (self._documents and self._words.spans_lines):
            self._found.unsure("the command line goes on across the line of a here-document")
        documents, self._documents = self._documents, []
        for delimiter, tabs, quoted in documents:
            self._document(delimiter, tabs, quoted)
        self._words.spans_lines = True

    def _document(self, delimiter: str, tabs: bool, quoted: bool) -> None:
        words, text = self._words, self._text
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
        if not quoted:
            Words(text[began:at], 0, self._found, words.nesting, self._substitute, self._nested).document()
        words.at = min(at + len(line), words.end) if at < words.end else words.end

    # Lists.

    def list_until(self, closers: tuple[str, ...], close: str = "") -> str:
        """Commands up to one of these reserved words or this character, which is not consumed; without, to the end."""
        words, empty = self._words, True
        words.deeper()
        while True:
            char = self._newlines()
            if not char or char == close or (closers and self._reserved() in closers) or self._ends_clause(close):
                break
            self._and_or()
            empty = False
            char = self._blanks()
            if char in (";", "&"):
                if self._ends_clause(close):
                    break
                if words.peek(1) == ";" or (char == ";" and words.peek(1) in ("&", "|")):
                    raise Stop("the command line has ;; outside of case")
                words.at += 1
            elif char and char != "\n" and char != close:
                raise Stop(f"the command line has {char} where a command ends")
        if empty and (closers or close) and close != ";;":
            raise Stop("the command line has a group without a command")
        if not char and (closers or close):
            raise Stop("the command line has a group that is not closed")
        words.nesting -= 1
        return char

    def _ends_clause(self, close: str) -> bool:
        return close == ";;" and self._text.startswith((";;", ";&"), self._words.at)

    def _and_or(self) -> None:
        while True:
            self._pipeline()
            self._blanks()
            if not self._text.startswith(("&&", "||"), self._words.at):
                return
            self._words.at += 2
            self._newlines()

    def _pipeline(self) -> None:
        while True:
            self._command()
            if self._blanks() != "|" or self._words.peek(1) == "|":
                return
            self._words.at += 2 if self._words.peek(1) == "&" else 1
            self._newlines()

    # Commands.

    def _reserved(self) -> str:
        """The reserved word at this place, or nothing."""
        at, end = self._words.at, self._words.at
        limit = min(self._words.end, at + _LONGEST_RESERVED + 1)
        while end < limit and self._text[end] not in META:
            end += 1
        word = self._text[at:end]
        return word if word in _RESERVED else ""

    def _expect(self, reserved: str) -> None:
        self._blanks()
        if self._reserved() != reserved:
            raise Stop(f"the command line has no {reserved} where it needs one")
        self._words.at += len(reserved)

    def _command(self) -> None:
        words = self._words
        char = self._blanks()
        reserved = self._reserved()
        prefixed = False
        while reserved in ("!", "time", "coproc"):
            prefixed = True
            words.at += len(reserved)
            if reserved == "!" and words.peek() == "(":
                self._found.unsure("the command line has !( which shells read in different ways")
            if reserved == "coproc":
                self._found.unsure("the command line has a coprocess")
            if reserved == "time":
                self._time()
            char = self._blanks()
            reserved = self._reserved()
        if prefixed and (not char or char in "\n;&|)") and not self._text.startswith("&>", words.at):
            return
        words.deeper()
        if char == "(":
            self._parenthesis()
        elif reserved:
            self._compound(reserved)
        else:
            self._simple()
        words.nesting -= 1

    def _time(self) -> None:
        """A reserved word to bash and zsh, a program to others: it counts as one."""
        self._found.add("time")
        self._blanks()
        for option in ("-p", "--"):
            at = self._words.at
            if self._text.startswith(option, at) and self._text[at + 2 : at + 3] in ("", *META):
                self._words.at += 2
                self._blanks()
        if self._words.peek() == "-":
            raise Stop("the command line has an option of time that is not known")

    def _parenthesis(self) -> None:
        words = self._words
        words.at += 1
        if words.peek() == "(":
            words.at += 1
            self._found.add("((")
            self._found.unsure_if_strict("the command line has ((...)), which not every shell takes for arithmetic")
            words.arithmetic()
        else:
            self.list_until((), ")")
            words.at += 1
        self._redirections()

    def _compound(self, reserved: str) -> None:
        self._words.at += len(reserved)
        if reserved == "{":
            self.list_until(("}",))
            self._expect("}")
        elif reserved == "if":
            self._if()
        elif reserved in ("while", "until"):
            self.list_until(("do",))
            self._body()
        elif reserved in ("for", "select"):
            self._for()
        elif reserved == "case":
            self._case()
        elif reserved == "[[":
            self._test()
        elif reserved == "function":
            self._function()
        else:
            raise Stop(f"the command line has {reserved} where a command starts")
        self._redirections()

    def _if(self) -> None:
        self.list_until(("then",))
        self._expect("then")
        while True:
            self.list_until(("elif", "else", "fi"))
            reserved = self._reserved()
            self._words.at += len(reserved)
            if reserved == "fi":
                return
            if reserved == "elif":
                self.list_until(("then",))
                self._expect("then")
            else:
                self.list_until(("fi",))
                self._expect("fi")
                return

    def _body(self) -> None:
        self._expect("do")
        self.list_until(("done",))
        self._expect("done")

    def _for(self) -> None:
        words = self._words
        if self._blanks() == "(":
            if words.peek(1) != "(":
                raise Stop("the command line has a loop that shells read in different ways")
            words.at += 2
            words.computed(")", also=";")
            if words.peek() != ")":
                raise Stop("the command line has (( that is not closed by ))")
            words.at += 1
        else:
            self._for_each()
        if self._blanks() == ";":
            words.at += 1
        self._newlines()
        self._body()

    def _for_each(self) -> None:
        words = self._words
        name = words.word()
        if name is None or not name.bare or not is_name(name.text):
            raise Stop("the command line has a loop that shells read in different ways")
        tame = False
        self._newlines()
        if self._reserved() == "in":
            words.at += 2
            tame = True
            while (char := self._blanks()) and char not in "\n;":
                value = words.word()
                if value is None:
                    raise Stop(f"the command line has {char} in the words of a loop")
                tame = tame and (value.tame or _is_range(value))
        self._found.assign(name.text, tame=tame)

    def _case(self) -> None:
        words = self._words
        self._blanks()
        if words.word() is None:
            raise Stop("the command line has a case without a word")
        self._newlines()
        self._expect("in")
        while self._newlines() and self._reserved() != "esac":
            if words.peek() == "(":
                words.at += 1
            while True:
                self._blanks()
                if words.word() is None:
                    raise Stop("the command line has a case without a pattern")
                char = self._blanks()
                words.at += 1
                if char == ")":
                    break
                if char != "|":
                    raise Stop("the command line has a case that shells read in different ways")
            self.list_until(("esac",), ";;")
            if self._text.startswith(";;&", words.at):
                words.at += 3
            elif self._ends_clause(";;"):
                words.at += 2
        self._expect("esac")

    def _test(self) -> None:
        """`[[ ... ]]`: no program, but listed as one, as `[` is."""
        words = self._words
        self._found.add("[[")
        operands: list[Word] = []
        while True:
            char = self._newlines()
            if self._reserved() == "]]":
                words.at += 2
                break
            if not char or char in ";`":
                raise Stop("the command line has [[ that is not closed")
            word = words.word()
            if word is not None:
                operands.append(word)
                continue
            if char in "|(":
                self._found.unsure_if_strict("the command line has | or ( in [[ ]], which not every shell knows")
            if char == "&" and words.peek(1) != "&":
                raise Stop("the command line has & in [[ ]]")
            words.at += 2 if char == "&" else 1
        if any(operand.text in _COMPUTING for operand in operands):
            for operand in operands:
                if operand.text not in _COMPUTING:
                    evaluate(operand, self._found)

    def _function(self) -> None:
        self._blanks()
        name = self._words.word()
        if name is None or not name.bare or not name.literal or name.text in _RESERVED:
            raise Stop("the command line has a function that shells read in different ways")
        if self._blanks() == "(":
            self._words.at += 1
            if self._blanks() != ")":
                raise Stop("the command line has a function that shells read in different ways")
            self._words.at += 1
        self._function_body()

    def _function_body(self) -> None:
        """What a function runs is listed where it is defined; its name where it is called."""
        self._newlines()
        self._command()

    # Simple commands.

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
        words, found = self._words, self._found
        assigned = redirected = both = False
        while True:
            char = self._blanks()
            if self._redirection():
                redirected = True
                both = self._redirect() == "&" or both
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
        if first.bare and first.text in _RESERVED:
            raise Stop(f"the command line has {first.text} where a command starts")
        if first.bare and first.text in _ZSH_RESERVED:
            self._found.unsure(f"the command line has {first.text}, which some shells take for a word of their own")
        self.run(argv)

    def run(self, argv: list[Word]) -> None:
        run(argv, self._found, self._nested_line)

    def _nested_line(self, text: str) -> None:
        if self._lines_deep >= MAX_LINES_DEEP:
            self._found.unsure(f"the command line has lines nested more than {MAX_LINES_DEEP} deep")
            return
        self._words.deeper()
        parse(text, self._found, nesting=self._words.nesting, lines_deep=self._lines_deep + 1)
        self._words.nesting -= 1

    def _defined(self, name: Word) -> None:
        self._words.at += 1
        if self._blanks() != ")":
            raise Stop("the command line has ( where a word belongs")
        self._words.at += 1
        if not name.bare or not name.literal or name.text in _RESERVED:
            raise Stop("the command line has a function that shells read in different ways")
        self._function_body()

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
            if not (index.endswith("]") and index[:-1].isascii() and index[:-1].isdigit()):
                raise Stop("the command line sets an element that shells read in different ways")
            self._found.unsure_if_strict("the command line sets an element, which not every shell knows")
        value = Word(word.text[len(word.head.partition("=")[0]) + 1 :])
        value.names = word.names
        self._found.assign(name, tame=value.tame)
        if self._words.peek() == "(":
            if value.text:
                raise Stop("the command line has ( where a word belongs")
            self._array()
            self._found.assign_list(name)
        return True

    def _array(self) -> None:
        """`(...)` behind an assignment: its elements are words."""
        self._words.at += 1
        while (char := self._newlines()) != ")":
            element = self._words.word()
            if element is None:
                raise Stop("the command line has a list of values that is not closed")
            if element.head.startswith("["):
                self._found.unsure_if_strict("the command line sets elements by name, which can run commands")
            if char == "":
                raise Stop("the command line has a list of values that is not closed")
        self._words.at += 1

    # Redirections.

    def _redirections(self) -> None:
        """Behind a compound command."""
        while self._blanks() and self._redirection():
            self._redirect()

    def _redirection(self) -> bool:
        """Whether one is at this place: `<`, `2>`, `&>`; not `<(`."""
        text, at = self._text, self._words.at
        if text.startswith("&>", at):
            return True
        while at < self._words.end and text[at] in "0123456789":
            at += 1
        return text.startswith(("<", ">"), at) and (at > self._words.at or not text.startswith("(", at + 1))

    def _redirect(self) -> str:
        """Returns the first character of its operator."""
        words, found = self._words, self._found
        while words.peek().isdigit():
            words.at += 1
        found.count()
        operator = next(op for op in _REDIRECTIONS if self._text.startswith(op, words.at))
        began = words.at
        words.at += len(operator)
        if words.peek() == "(" or (words.peek() == "\\" and words.peek(1) == "\n"):
            raise Stop("the command line has a redirection that shells read in different ways")
        if operator == "<" and _is_numeric_glob(self._text, began):
            found.unsure("the command line has <...>, which some shells take for a pattern")
        self._blanks()
        target = words.word()
        if target is None:
            raise Stop("the command line has a redirection without a target")
        if operator in ("<<", "<<-"):
            self._announce(target, tabs=operator == "<<-")
        elif operator in _INPUT and not target.text.startswith(("/dev/tcp", "/dev/udp")):
            if operator != "<<<" and (target.text.startswith((KEPT, SPLIT)) or target.open):
                found.unsure_if_strict("the command line reads from a place that is not written out")
        elif not _harmless(operator, target):
            found.add(WRITES)
        return operator[0]

    def _announce(self, delimiter: Word, *, tabs: bool) -> None:
        """A here-document: its body starts behind this line."""
        if (not delimiter.literal and not delimiter.open) or delimiter.mixed or "\n" in delimiter.text:
            raise Stop("the command line has a here-document whose end shells read in different ways")
        if not self._documents:
            self._words.spans_lines = False
        self._documents.append((delimiter.text, tabs, delimiter.quoted))


def _harmless(operator: str, target: Word) -> bool:
    """Writes to nothing, or to a descriptor that is open already."""
    if not target.literal:
        return False
    if operator == ">&" and (target.text == "-" or _is_number(target.text.removesuffix("-"))):
        return True
    directory, _, name = target.text.rpartition("/")
    return target.text in _HARMLESS_TARGETS or (directory == "/dev/fd" and _is_number(name))


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()


def _is_range(word: Word) -> bool:
    first, dots, last = word.text.removeprefix("{").removesuffix("}").partition("..")
    return word.bare and word.head.startswith("{") and bool(dots) and _is_number(first) and _is_number(last)


def _is_numeric_glob(text: str, at: int) -> bool:
    at += 1
    while at < len(text) and text[at] in "0123456789-":
        at += 1
    return text.startswith(">", at)
