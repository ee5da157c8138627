"""JSON to a tree with positions. Strict RFC 8259: no comments, no NaN, no trailing commas, no duplicate keys.

The standard decoder gives no positions below the top, hence this small reader. It recurses, so depth is bounded first.
"""

from __future__ import annotations

import re

from subluminal.policy.document.tree import (
    MAX_DEPTH,
    MAX_NODES,
    DocumentError,
    Mapping,
    Node,
    Scalar,
    Sequence,
    check_text,
    duplicate_key,
    number,
)

_SPACE = re.compile(r"[ \t\n\r]*")
_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"')
_ESCAPE = re.compile(r"\\(?:u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|(.))")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_SIMPLE = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_LITERALS = {"true": True, "false": False, "null": None}


def parse_json(text: str) -> Node:
    reader = _Reader(text)
    node = reader.value(0)
    reader.skip_space()
    if reader.at < len(text):
        raise reader.error("json-syntax", "text after the end of the JSON value", "keep one JSON object in the file")
    return node


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.nodes = 0
        self.line = 1
        self.line_start = 0
        self.counted_to = 0

    def here(self) -> tuple[int, int]:
        """Position of `at`; newlines are counted once, as the reader moves on."""
        newlines = self.text.count("\n", self.counted_to, self.at)
        if newlines:
            self.line += newlines
            self.line_start = self.text.rfind("\n", self.counted_to, self.at) + 1
        self.counted_to = self.at
        return self.line, self.at - self.line_start + 1

    def error(self, code: str, message: str, fix: str) -> DocumentError:
        return DocumentError(code, message, fix, *self.here())

    def skip_space(self) -> None:
        match = _SPACE.match(self.text, self.at)
        self.at = match.end() if match else self.at

    def peek(self) -> str:
        self.skip_space()
        return self.text[self.at : self.at + 1]

    def value(self, depth: int) -> Node:
        first = self.peek()
        self.nodes += 1
        if depth > MAX_DEPTH:
            raise self.error("too-deep", f"more than {MAX_DEPTH} levels of nesting", "flatten the document")
        if self.nodes > MAX_NODES:
            raise self.error("too-many-nodes", f"more than {MAX_NODES:,} values", "split the policy")
        if first == "{":
            return self.mapping(depth)
        if first == "[":
            return self.sequence(depth)
        return self.scalar(first)

    def mapping(self, depth: int) -> Mapping:
        node = Mapping(*self.here())
        self.at += 1
        if self.peek() == "}":
            self.at += 1
            return node
        while True:
            if self.peek() != '"':
                raise self.error("json-syntax", "a key in double quotes was expected here", "quote every key")
            key = self.scalar('"')
            if self.peek() != ":":
                raise self.error("json-syntax", 'a ":" was expected after the key', "separate key and value with :")
            self.at += 1
            if key.value in node.items:
                raise duplicate_key(node, key.value, key.line, key.column)
            node.items[key.value] = (key, self.value(depth + 1))
            if self.closed("}"):
                return node

    def sequence(self, depth: int) -> Sequence:
        node = Sequence(*self.here())
        self.at += 1
        if self.peek() == "]":
            self.at += 1
            return node
        while True:
            node.items.append(self.value(depth + 1))
            if self.closed("]"):
                return node

    def closed(self, bracket: str) -> bool:
        found = self.peek()
        if found not in (",", bracket):
            message = f'a "," or "{bracket}" was expected here'
            raise self.error("json-syntax", message, "check commas, quotes and brackets")
        self.at += 1
        return found == bracket

    def scalar(self, first: str) -> Scalar:
        line, column = self.here()
        if first == '"':
            match = _STRING.match(self.text, self.at)
            if not match:
                message = "a string that does not end or holds a bad escape"
                raise self.error("json-syntax", message, "close it; write \\n, \\t, \\uXXXX")
            self.at = match.end()
            return Scalar(line, column, self.unescape(match.group()[1:-1], line, column))
        match = _NUMBER.match(self.text, self.at)
        if match:
            return Scalar(line, column, self.number(match))
        for word, value in _LITERALS.items():
            if self.text.startswith(word, self.at):
                self.at += len(word)
                return Scalar(line, column, value)
        raise self.error("json-syntax", "a JSON value was expected here", "check commas, quotes and brackets")

    def number(self, match: re.Match[str]) -> int | float:
        try:
            value = number(match.group(), integer=not (match.group(1) or match.group(2)))
        except ValueError as error:
            raise self.error("number-range", str(error), "use a number of 64 bits, or a string") from None
        self.at = match.end()
        return value

    def unescape(self, body: str, line: int, column: int) -> str:
        return check_text(_ESCAPE.sub(_unescaped, body), line, column) if "\\" in body else body


def _unescaped(match: re.Match[str]) -> str:
    high, low, single, simple = match.groups()
    if high:
        return chr(0x10000 + ((int(high, 16) - 0xD800) << 10) + (int(low, 16) - 0xDC00))
    if single:
        return chr(int(single, 16))
    return _SIMPLE.get(simple, simple)
