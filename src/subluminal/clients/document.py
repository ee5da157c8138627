"""A configuration file as text that can be changed in small spans, in its own style.

Every operation returns edits and leaves the document alone; `spans.apply` makes the new text. Inserting and removing
are exact inverses: what `prepend_items` or `insert_after` wrote, `remove_items` or `remove_member` takes away to the
byte, so an entry can be put back without any backup.
"""

from __future__ import annotations

import json
import re

from subluminal.clients import jsonc, toml_spans
from subluminal.clients.spans import Edit, Member, Node, SyntaxProblem, problem_at

# Lines that an import has set aside in a file that knows comments, under an id of their own.
_SET_ASIDE = re.compile(r"^\ufeff?(#subluminal:([0-9a-f]{16})# )", re.MULTILINE)


class Document:
    """`dialect` is "json" (plain JSON only), "jsonc" or "toml"; `paths` as for `jsonc.read`."""

    def __init__(self, text: str, dialect: str, paths: jsonc.Paths | None = None) -> None:
        self.text = text
        self.dialect = dialect
        self.root = _read(text, dialect, paths)
        self._set_aside: dict[str, list[Edit]] | None = None

    def raw(self, node: Node) -> str:
        return self.text[node.start : node.end]

    def key_literal(self, member: Member) -> str:
        """The key as a string literal, spelled as the user spelled it where that is a string already."""
        raw = self.text[member.key_start : member.key_end]
        return raw if raw[:1] in ('"', "'") else self.literal(member.key)

    def literal(self, value: str) -> str:
        """A string literal that is valid in JSON and in TOML alike."""
        try:
            value.encode()
        except UnicodeEncodeError:
            return json.dumps(value)
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")

    def array(self, literals: list[str]) -> str:
        return "[" + ", ".join(literals) + "]"

    def prepend_items(self, array: Node, literals: list[str]) -> Edit:
        if not array.items:
            return Edit(array.start + 1, array.start + 1, ", ".join(literals))
        gap = self._item_separator(array)
        at = array.items[0].start
        return Edit(at, at, "".join(literal + gap for literal in literals))

    def append_item(self, array: Node, literal: str) -> Edit:
        if not array.items:
            return Edit(array.start + 1, array.start + 1, literal)
        at = array.items[-1].end
        return Edit(at, at, self._item_separator(array) + literal)

    def remove_items(self, array: Node, unwanted: set[int]) -> list[Edit]:
        """Remove items by index, each run of neighbours with the separators that belong to it."""
        edits = []
        last = len(array.items) - 1
        for first in sorted(i for i in unwanted if i - 1 not in unwanted):
            end = first
            while end + 1 in unwanted:
                end += 1
            if end < last:
                edits.append(Edit(array.items[first].start, array.items[end + 1].start, ""))
            elif first > 0:
                edits.append(Edit(array.items[first - 1].end, array.items[end].end, ""))
            else:
                edits.append(Edit(array.items[0].start, array.trailing or array.items[end].end, ""))
        return edits

    def insert_after(self, member: Member, key: str, value: str) -> Edit:
        """A new member right behind an existing one, written as its neighbour is."""
        if member.layout == "json":
            at = member.node.end
            return Edit(at, at, "," + self._json_gap(member) + json.dumps(key) + self._binder(member, ":") + value)
        pair = self.text[member.start : member.key_start] + key + self._binder(member, "=") + value
        if member.layout == "inline":
            return Edit(member.node.end, member.node.end, ", " + pair)
        at = self._line_end(member.node.end)
        start = self.text.rfind("\n", 0, member.start) + 1
        indent = self.text[start : member.start].lstrip("\ufeff")
        return Edit(at, at, self._newline(at) + indent + pair)

    def add_member(self, table: Node, key: str, value: str) -> Edit:
        """A new member at the end of a table that is written in braces; in TOML, `key` is spelled as it must be."""
        if table.members:
            return self.insert_after(table.members[-1], key, value)
        pair = f"{key} = {value}" if self.dialect == "toml" else f"{json.dumps(key)}: {value}"
        return Edit(table.start + 1, table.start + 1, pair)

    def remove_member(self, table: Node, member: Member) -> Edit:
        if member.layout == "line":
            return self._remove_line(member)
        if member.layout == "inline":
            before = len(self.text[: member.start].rstrip(" \t"))
            if self.text[before - 1] == ",":
                return Edit(before - 1, member.node.end, "")
        index = table.members.index(member)
        if index > 0:
            return Edit(table.members[index - 1].node.end, member.node.end, "")
        end = table.members[1].start if len(table.members) > 1 else member.node.end
        return Edit(member.start, end, "")

    def set_aside(self, member: Member, mark: str) -> list[Edit]:
        """Make comments of the lines (TOML) that a member is written on, whichever way a table is opened."""
        starts = set()
        stack = [member]
        while stack:
            one = stack.pop()
            spread = one.node.kind == "table" and not self.text.startswith("{", one.node.start)
            stack += one.node.members if spread else ()
            starts |= self._line_starts(one.start, one.key_end if spread else one.node.end)
        return [Edit(at, at, f"#subluminal:{mark}# ") for at in starts]

    def taken_back(self, mark: str) -> list[Edit]:
        """Undo `set_aside`; nothing if there are no such lines any more."""
        if self._set_aside is None:
            self._set_aside = {}
            for match in _SET_ASIDE.finditer(self.text):
                self._set_aside.setdefault(match[2], []).append(Edit(match.start(1), match.end(1), ""))
        return self._set_aside.get(mark, [])

    def _line_starts(self, start: int, end: int) -> set[int]:
        first = self.text.rfind("\n", 0, start) + 1
        found = {first + self.text.startswith("\ufeff", first)}
        while (first := self.text.find("\n", first, end) + 1) > 0:
            found.add(first)
        return found

    def _remove_line(self, member: Member) -> Edit:
        start = self.text.rfind("\n", 0, member.start) + 1
        end = self._line_end(member.node.end)
        if start == 0:
            return Edit(0, min(end + len(self._newline(end)), len(self.text)), "")
        before = start - 2 if self.text[start - 2 : start] == "\r\n" else start - 1
        return Edit(before, end, "")

    def _item_separator(self, array: Node) -> str:
        first = array.items[0]
        lead = self.text[array.start + 1 : first.start]
        between = self.text[first.end : array.items[1].start] if len(array.items) > 1 else None
        line = lead.rpartition("\n")[2]
        if "\n" in lead and not line.strip(" \t") and (between is None or "\n" in between):
            return "," + ("\r\n" if "\r\n" in lead else "\n") + line
        if between is not None and between.startswith(",") and not between[1:].strip(" \t"):
            return between
        return ", "

    def _json_gap(self, member: Member) -> str:
        start = member.key_start
        while start > 0 and self.text[start - 1] in " \t\r\n":
            start -= 1
        space = self.text[start : member.key_start]
        if "\n" in space:
            return ("\r\n" if "\r\n" in space else "\n") + space.rpartition("\n")[2]
        return "" if self.text[member.key_end : member.node.start] == ":" else " "

    def _binder(self, member: Member, sign: str) -> str:
        written = self.text[member.key_end : member.node.start]
        if written.strip(" \t") == sign:
            return written
        return ": " if sign == ":" else " = "

    def _line_end(self, at: int) -> int:
        end = self.text.find("\n", at)
        if end < 0:
            return len(self.text)
        return end - 1 if self.text[end - 1 : end] == "\r" else end

    def _newline(self, at: int) -> str:
        if self.text.startswith("\r\n", at) or (at == len(self.text) and "\r\n" in self.text):
            return "\r\n"
        return "\n"


def _read(text: str, dialect: str, paths: jsonc.Paths | None) -> Node:
    if dialect == "toml":
        return toml_spans.read(text)
    reading = jsonc.read(text, paths)
    if dialect == "json" and reading.liberty is not None:
        raise problem_at(text, reading.liberty, "a comment or trailing comma; this client reads plain JSON only")
    if reading.root.kind != "table":
        raise problem_at(text, reading.root.start, "the file holds no JSON object")
    return reading.root


def decode(data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        column = error.start - (data.rfind(b"\n", 0, error.start) + 1) + 1
        raise SyntaxProblem("this is not UTF-8 text", line, column) from None
