"""How keys and values of an entry are written and replaced, in JSON and in TOML."""

from __future__ import annotations

import json

from subluminal.clients import toml_spans
from subluminal.clients.base import Entry
from subluminal.clients.document import Document
from subluminal.clients.spans import Edit, Member, Node
from subluminal.contracts.digest import sha256_hex


def key_literal(document: Document, name: str) -> str:
    return name if document.dialect == "toml" else json.dumps(name)


def raw_key(document: Document, member: Member) -> str:
    return document.text[member.key_start : member.key_end]


def header_key(document: Document, name: str) -> str:
    bare = all(c.isalnum() or c in "-_" for c in name)
    return name if document.dialect == "toml" and bare else document.literal(name)


def replaced(node: Node, text: str) -> Edit:
    return Edit(node.start, node.end, text)


def renamed_key(document: Document, member: Member, inside: list[Member], literal: str) -> list[Edit]:
    """The key of a member wherever it is written: dotted keys name their table once for each of its members."""
    if not is_dotted(member.node):
        return [Edit(member.key_start, member.key_end, literal)]
    spans = [toml_spans.key_spans(document.text, inner.start)[-2] for inner in inside]
    return [Edit(start, end, literal) for start, end in spans]


def is_dotted(table: Node) -> bool:
    return any(inner.start != inner.key_start for inner in table.members)


def is_spread(entry: Entry, document: Document) -> bool:
    """Whether an entry is written over lines of its own (TOML), and not between braces."""
    return document.dialect == "toml" and not document.text.startswith("{", entry.node.start)


def mark_of(entry: Entry, key: str) -> str:
    """What names the lines of a setting of an entry, with no record of it."""
    return sha256_hex(json.dumps([*entry.location, entry.name, entry.occurrence, key]).encode())[:16]
