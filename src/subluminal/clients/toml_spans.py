"""TOML with spans. `tomllib` decides whether the text is TOML; this scanner only says where things stand.

Round-trip libraries rewrite line ends and the spacing of inline tables, so a user's file is edited by spans instead.
The scanner's own reading is compared with `tomllib`'s: if the two disagree about anything, the file is refused.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from subluminal.clients.spans import MAX_DEPTH, Member, Node, SyntaxProblem, problem_at

_BLANK = re.compile(r"[ \t]*")
_FILLER = re.compile(r"(?:[ \t\r\n]++|#[^\n]*+)*+")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_STRINGS = {
    '"""': re.compile(r'"""(?:[^"\\]|\\[\s\S]|"(?!""))*"{3,5}'),
    "'''": re.compile(r"'''(?:[^']|'(?!''))*'{3,5}"),
    '"': re.compile(r'"(?:[^"\\\n]++|\\.)*+"'),
    "'": re.compile(r"'[^'\n]*'"),
}
_SCALAR = re.compile(r"\d{4}-\d\d-\d\d[ Tt]\d\d:\d\d[^\s,\]}#]*|[^\s,\]}#]+")
_AT = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")


def read(text: str) -> Node:
    import tomllib  # where there is any: most clients keep JSON

    bom = 1 if text.startswith("\ufeff") else 0
    try:
        values = tomllib.loads(text[bom:])
    except tomllib.TOMLDecodeError as error:
        raise _problem(text, str(error)) from None
    except RecursionError:
        raise problem_at(text, 0, "values are nested too deeply") from None
    root = _Scanner(text).document(bom)
    if not _agree(root, values):
        raise problem_at(text, 0, "this file is laid out in a way that cannot be edited safely")
    return root


def key_spans(text: str, at: int) -> list[tuple[int, int]]:
    """Where the segments of the key at this place stand."""
    return [(key.start, key.end) for key in _Scanner(text).keys(at, 0)[0]]


class Section(NamedTuple):
    """A header and the lines below it that set something; what follows them (comments, blank lines) is nobody's."""

    keys: tuple[str, ...]
    double: bool
    start: int
    end: int  # behind the newline of its last line


def sections(text: str) -> list[Section]:
    """Every `[header]` and `[[header]]` of text that `read` takes."""
    scanner = _Scanner(text)
    found: list[Section] = []
    root = table = Node("table", 0, len(text))
    at = depth = 0
    if text.startswith("\ufeff"):
        at = 1
    while (at := scanner.filler(at)) < len(text):
        start = at
        if text.startswith("[", at):
            keys, _ = scanner.keys(scanner.blank(at + (2 if text.startswith("[[", at) else 1)), 0)
            table, at, depth = scanner.header(root, at)
            found.append(Section(tuple(key.value for key in keys), text.startswith("[[", start), start, at))
        else:
            at = scanner.pair(table, at, "line", depth)
        newline = text.find("\n", at)
        if found:
            found[-1] = found[-1]._replace(end=len(text) if newline < 0 else newline + 1)
    return found


def _problem(text: str, message: str) -> SyntaxProblem:
    match = _AT.search(message)
    if match is None or match.group(1) is None:
        return problem_at(text, len(text), _AT.sub("", message))
    return SyntaxProblem(message[: match.start()], int(match.group(1)), int(match.group(2)))


def _agree(node: Node, value: Any) -> bool:
    if node.kind == "table":
        return (
            isinstance(value, dict)
            and len(node.members) == len(value)
            and all(m.key in value and _agree(m.node, value[m.key]) for m in node.members)
        )
    if node.kind == "array":
        return isinstance(value, list) and len(node.items) == len(value) and all(map(_agree, node.items, value))
    if node.kind == "string":
        return bool(node.value == value)
    return not isinstance(value, dict | list | str)


class _Key(NamedTuple):
    """One segment of a dotted key."""

    value: str
    start: int
    end: int


class _Scanner:
    """Walks text that is known to be TOML; anything unexpected is still refused, never skipped."""

    def __init__(self, text: str) -> None:
        self.text = text
        # Members by key, for tables that headers and dotted keys open again and again: a search would be quadratic.
        self.index: dict[Node, dict[str, Node]] = {}

    def child(self, table: Node, key: str) -> Node | None:
        return self.index.get(table, {}).get(key)

    def add(self, table: Node, member: Member) -> None:
        table.members.append(member)
        self.index.setdefault(table, {})[member.key] = member.node

    def document(self, at: int) -> Node:
        root = table = Node("table", at, len(self.text))
        depth = 0
        while (at := self.filler(at)) < len(self.text):
            if self.text.startswith("[", at):
                table, at, depth = self.header(root, at)
            else:
                at = self.pair(table, at, "line", depth)
        return root

    def filler(self, at: int) -> int:
        return _FILLER.match(self.text, at).end()  # type: ignore[union-attr]  # matches the empty string

    def blank(self, at: int) -> int:
        return _BLANK.match(self.text, at).end()  # type: ignore[union-attr]

    def expect(self, at: int, token: str) -> int:
        if not self.text.startswith(token, at):
            raise problem_at(self.text, at, f'"{token}" is expected here')
        return at + len(token)

    def header(self, root: Node, at: int) -> tuple[Node, int, int]:
        """The table a header opens, where the header ends, and how deep the table lies."""
        double = self.text.startswith("[[", at)
        keys, at = self.keys(self.blank(at + (2 if double else 1)), 0)
        at = self.expect(self.blank(at), "]]" if double else "]")
        table = root
        for key in keys[:-1]:
            table = self.descend(table, key)
        if not double:
            return self.descend(table, keys[-1]), at, len(keys)
        last = keys[-1]
        array = self.child(table, last.value)
        if array is None:
            array = Node("array", last.start, last.end)
            self.add(table, Member(last.value, last.start, last.start, last.end, array, "line"))
        array.items.append(Node("table", last.start, last.end))
        return array.items[-1], at, len(keys)

    def descend(self, table: Node, key: _Key) -> Node:
        """The table under `key`, created where a header or dotted key implies it; of an array its last table."""
        found = self.child(table, key.value)
        if found is None:
            found = Node("table", key.start, key.end)
            self.add(table, Member(key.value, key.start, key.start, key.end, found, "line"))
        return found.items[-1] if found.kind == "array" and found.items else found

    def keys(self, at: int, depth: int) -> tuple[list[_Key], int]:
        keys = []
        while True:
            quote = self.text[at : at + 1]
            if quote in ('"', "'") and quote:
                node = self.string(at, quote)
                keys.append(_Key(node.value, at, node.end))
            else:
                match = _BARE_KEY.match(self.text, at)
                if match is None:
                    raise problem_at(self.text, at, "a key is expected here")
                keys.append(_Key(match.group(), at, match.end()))
            at = keys[-1].end
            if depth + len(keys) > MAX_DEPTH:
                raise problem_at(self.text, at, f"tables are nested deeper than {MAX_DEPTH} levels")
            after = self.blank(at)
            if not self.text.startswith(".", after):
                return keys, at
            at = self.blank(after + 1)

    def pair(self, table: Node, at: int, layout: str, depth: int) -> int:
        keys, at = self.keys(at, depth)
        for key in keys[:-1]:
            table = self.descend(table, key)
        at = self.expect(self.blank(at), "=")
        node = self.value(self.blank(at), depth + len(keys))
        last = keys[-1]
        self.add(table, Member(last.value, keys[0].start, last.start, last.end, node, layout))
        return node.end

    def value(self, at: int, depth: int) -> Node:
        if depth > MAX_DEPTH:
            raise problem_at(self.text, at, f"values are nested deeper than {MAX_DEPTH} levels")
        for quote in _STRINGS:
            if self.text.startswith(quote, at):
                return self.string(at, quote)
        if self.text.startswith("[", at):
            return self.array(at, depth)
        if self.text.startswith("{", at):
            return self.inline_table(at, depth)
        match = _SCALAR.match(self.text, at)
        if match is None:
            raise problem_at(self.text, at, "a value is expected here")
        return Node("scalar", at, match.end())

    def string(self, at: int, quote: str) -> Node:
        match = _STRINGS[quote].match(self.text, at)
        if match is None:
            raise problem_at(self.text, at, "this string is not closed")
        raw = match.group()
        if quote == "'" or (len(quote) == 1 and "\\" not in raw):
            return Node("string", at, match.end(), raw[1:-1])
        import tomllib

        value = tomllib.loads("v = " + raw)["v"]
        return Node("string", at, match.end(), value)

    def array(self, at: int, depth: int) -> Node:
        node = Node("array", at)
        at = self.filler(at + 1)
        while not self.text.startswith("]", at):
            item = self.value(at, depth + 1)
            node.items.append(item)
            node.trailing = None
            at = self.filler(item.end)
            if self.text.startswith(",", at):
                node.trailing = at + 1
                at = self.filler(at + 1)
            elif not self.text.startswith("]", at):
                raise problem_at(self.text, at, '"," or "]" is expected here')
        node.end = at + 1
        return node

    def inline_table(self, at: int, depth: int) -> Node:
        node = Node("table", at)
        at = self.blank(at + 1)
        while not self.text.startswith("}", at):
            at = self.blank(self.pair(node, at, "inline", depth))
            if self.text.startswith(",", at):
                at = self.blank(at + 1)
            elif not self.text.startswith("}", at):
                raise problem_at(self.text, at, '"," or "}" is expected here')
        node.end = at + 1
        return node
