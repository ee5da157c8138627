"""Values of a configuration file together with where they stand in its text.

Both readers (`jsonc`, `toml_spans`) build the same small tree, so that wrapping an entry is written once. Offsets
count characters of the decoded text. A table keeps every occurrence of a key: two parsers may disagree about which
one counts, and an importer that sees only one of them leaves the other unguarded.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from msgspec import Struct

from subluminal.contracts.errors import ClientConfigError

# Real files are a handful of levels deep; the bound keeps a hostile file from exhausting the stack.
MAX_DEPTH = 200


class Node(Struct, eq=False):
    """One value. `kind` is "table", "array", "string" or "scalar"; `value` is set for strings only."""

    kind: str
    start: int
    end: int = -1
    value: str = ""
    members: list[Member] = []
    items: list[Node] = []
    trailing: int | None = None  # the end of an array's trailing comma

    def member(self, key: str) -> Member | None:
        """The last occurrence, which is the one most parsers keep."""
        for member in reversed(self.members):
            if member.key == key:
                return member
        return None

    def get(self, key: str) -> Node | None:
        member = self.member(key)
        return member.node if member else None

    def all(self, key: str) -> list[Member]:
        return [member for member in self.members if member.key == key]


class Member(NamedTuple):
    """A key and its value. `layout` says how a neighbour must be written: "json", "inline" or "line" (TOML)."""

    key: str
    start: int  # of the whole dotted key; equal to key_start where keys have no dots
    key_start: int
    key_end: int
    node: Node
    layout: str


class Edit(NamedTuple):
    """Replace text[start:end] by `text`."""

    start: int
    end: int
    text: str


class SyntaxProblem(ClientConfigError):
    """The text cannot be read; `line` counts from 1."""

    def __init__(self, message: str, line: int, column: int) -> None:
        super().__init__(f"line {line}, column {column}: {message}")
        self.line = line
        self.column = column


def problem_at(text: str, offset: int, message: str) -> SyntaxProblem:
    line = text.count("\n", 0, offset) + 1
    return SyntaxProblem(message, line, offset - (text.rfind("\n", 0, offset) + 1) + 1)


def line_of(text: str, offset: int) -> int:
    return text.count("\n", 0, offset) + 1


def apply(text: str, edits: list[Edit]) -> str:
    """All edits at once. Edits at one place keep their order; overlapping ones are a defect of the caller."""
    parts: list[str] = []
    at = 0
    for edit in sorted(edits, key=lambda e: (e.start, e.end)):
        if edit.start < at:
            raise ClientConfigError("two changes of one entry overlap; nothing was changed")
        parts += (text[at : edit.start], edit.text)
        at = edit.end
    parts.append(text[at:])
    return "".join(parts)


def plain(node: Node, text: str, without: frozenset[Member] = frozenset()) -> Any:
    """A comparable value that keeps duplicates, order and the spelling of numbers; `without` is left out."""
    if node.kind == "table":
        kept = (m for m in node.members if m not in without)
        return ("table", tuple((m.key, plain(m.node, text, without)) for m in kept))
    if node.kind == "array":
        return tuple(plain(item, text, without) for item in node.items)
    return node.value if node.kind == "string" else ("scalar", text[node.start : node.end])


def walk(node: Node, key: str = "") -> Iterator[tuple[str, Node]]:
    """Every string below a node with the key it stands under (an array's items carry the array's key)."""
    stack = [(key, node)]
    while stack:
        key, node = stack.pop()
        if node.kind == "string":
            yield key, node
        stack += [(key, item) for item in node.items]
        stack += [(member.key, member.node) for member in node.members]
