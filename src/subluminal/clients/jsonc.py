"""JSON with comments, read exactly: every value with its span, nothing guessed.

Accepts what the clients' own readers accept (comments, trailing commas, a byte order mark) and records where the first
such liberty stands (`Reading.liberty`), because some clients take plain JSON only and throw the rest away.

Clients keep megabytes of history beside their servers. With `paths`, only what lies on the way to them is taken apart;
the rest is checked by the standard decoder and kept as one opaque scalar.
"""

from __future__ import annotations

import json
import re
from typing import NamedTuple

from subluminal.clients.spans import MAX_DEPTH, Member, Node, problem_at

_SPACE = re.compile(r"[ \t\r\n]*")
_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]++|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*+"')
_SCALAR = re.compile(r"true|false|null|-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_PASSED_OVER = json.JSONDecoder(parse_float=str, parse_int=str, parse_constant=int)  # `NaN` is no number: ValueError
_WORD = re.compile(r"[^\s,:\[\]{}\"/]*")


class Reading(NamedTuple):
    """The root value, and the offset of the first comment or trailing comma (None: plain JSON)."""

    root: Node
    liberty: int | None


Paths = tuple[tuple[str, ...], ...]


def read(text: str, paths: Paths | None = None) -> Reading:
    """`paths` lead to the tables of interest; "*" stands for any key. None: everything is of interest."""
    scanner = _Scanner(text)
    start = scanner.skip(1 if text.startswith("\ufeff") else 0)
    if start == len(text):
        raise problem_at(text, start, "the file is empty; a JSON object is expected")
    root, at = scanner.value(start, 0, paths)
    at = scanner.skip(at)
    if at != len(text):
        raise problem_at(text, at, "something follows the end of the JSON value")
    return Reading(root, scanner.liberty)


class _Scanner:
    def __init__(self, text: str) -> None:
        self.text = text
        self.liberty: int | None = None

    def note(self, at: int) -> None:
        if self.liberty is None:
            self.liberty = at

    def skip(self, at: int) -> int:
        """Past white space and comments."""
        text = self.text
        while True:
            at = _SPACE.match(text, at).end()  # type: ignore[union-attr]  # matches the empty string
            if not text.startswith("/", at):
                return at
            if text.startswith("//", at):
                self.note(at)
                end = text.find("\n", at)
                at = len(text) if end < 0 else end
            elif text.startswith("/*", at):
                self.note(at)
                end = text.find("*/", at + 2)
                if end < 0:
                    raise problem_at(text, at, "this comment is never closed")
                at = end + 2
            else:
                return at

    def value(self, at: int, depth: int, paths: Paths | None) -> tuple[Node, int]:
        char = self.text[at : at + 1]
        if char == '"':
            return self.string(at)
        if char == "{" or char == "[":
            if depth >= MAX_DEPTH:
                raise problem_at(self.text, at, f"values are nested deeper than {MAX_DEPTH} levels")
            if paths is not None and (char == "[" or not paths):
                return self.pass_over(at) or self.container(at, depth, None)
            return self.container(at, depth, paths)
        match = _SCALAR.match(self.text, at)
        if match is None or _WORD.match(self.text, at).end() != match.end():  # type: ignore[union-attr]
            raise problem_at(self.text, at, "a JSON value is expected here")
        return Node("scalar", at, match.end()), match.end()

    def container(self, at: int, depth: int, paths: Paths | None) -> tuple[Node, int]:
        return self.table(at, depth, paths) if self.text[at] == "{" else self.array(at, depth)

    def pass_over(self, at: int) -> tuple[Node, int] | None:
        """The whole value as one scalar; None if it is not plain JSON and must be read with care."""
        try:
            _, end = _PASSED_OVER.raw_decode(self.text, at)
        except (ValueError, RecursionError):
            return None
        return Node("scalar", at, end), end

    def string(self, at: int) -> tuple[Node, int]:
        match = _STRING.match(self.text, at)
        if match is None:
            raise problem_at(self.text, at, "this string is not closed or holds a character JSON does not allow")
        raw = match.group()
        return Node("string", at, match.end(), json.loads(raw) if "\\" in raw else raw[1:-1]), match.end()

    def table(self, at: int, depth: int, paths: Paths | None) -> tuple[Node, int]:
        node = Node("table", at)
        text = self.text
        at = self.skip(at + 1)
        comma = -1
        while not text.startswith("}", at):
            if not text.startswith('"', at):
                raise problem_at(text, at, 'a key in double quotes or "}" is expected here')
            key, at = self.string(at)
            at = self.skip(at)
            if not text.startswith(":", at):
                raise problem_at(text, at, '":" is expected here')
            value, at = self.value(self.skip(at + 1), depth + 1, _below(paths, key.value))
            node.members.append(Member(key.value, key.start, key.start, key.end, value, "json"))
            at, comma = self.separator(at, "}")
        return self.close(node, at, comma)

    def array(self, at: int, depth: int) -> tuple[Node, int]:
        node = Node("array", at)
        at = self.skip(at + 1)
        comma = -1
        while not self.text.startswith("]", at):
            item, at = self.value(at, depth + 1, None)
            node.items.append(item)
            at, comma = self.separator(at, "]")
        return self.close(node, at, comma)

    def separator(self, at: int, closing: str) -> tuple[int, int]:
        """Past an optional comma: where the next thing starts, and where the comma stood (-1: none)."""
        at = self.skip(at)
        if self.text.startswith(",", at):
            return self.skip(at + 1), at
        if self.text.startswith(closing, at):
            return at, -1
        raise problem_at(self.text, at, f'"," or "{closing}" is expected here')

    def close(self, node: Node, at: int, comma: int) -> tuple[Node, int]:
        if comma >= 0:
            self.note(comma)
            node.trailing = comma + 1
        node.end = at + 1
        return node, at + 1


def _below(paths: Paths | None, key: str) -> Paths | None:
    """What of the paths lies below a key; a path that ends here makes everything below of interest."""
    if paths is None:
        return None
    rest = tuple(path[1:] for path in paths if path[0] in (key, "*"))
    return None if () in rest else rest
