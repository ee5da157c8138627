"""The hooks of one file as its nodes, and which of them are ours.

A file has `hooks`, a table of events; an event is a list of groups; a group has a `matcher` and a list of handlers.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import NamedTuple

from subluminal.clients import backups, files
from subluminal.clients.document import Document, decode
from subluminal.clients.hooks.wanted import commands_of
from subluminal.clients.spans import Member, Node, line_of
from subluminal.contracts.errors import ClientConfigError

# Nobody has so many of ours; a file that claims it is made to keep us busy.
MAX_HANDLERS = 100
# Settings have some kilobytes. Every step of an edit reads the whole file anew.
MAX_BYTES = 1024 * 1024
# In Codex the same table also holds what is trusted.
STATE = "state"
# However SUB_HOME was called when it was written, and whatever stands around it.
_OURS = re.compile(r"(?:^|[\s/'\"])sub-hook(?:\.py)?(?:[\s'\"]|$)")


class Handler(NamedTuple):
    """One handler of one group, with its place in both lists."""

    event: Member
    group_at: int
    at: int
    group: Node
    node: Node

    @property
    def command(self) -> str | None:
        node = self.node.get("command") if self.node.kind == "table" else None
        return node.value if node is not None and node.kind == "string" else None

    @property
    def is_alone(self) -> bool:
        hooks = self.group.get("hooks")
        return hooks is not None and len(hooks.items) == 1


def read_file(path: str) -> tuple[files.Snapshot | None, str]:
    """A file with hooks and its text; nothing where there is none. ClientConfigError for what cannot be one."""
    snapshot = files.read(path)
    if snapshot is None:
        return None, ""
    if len(snapshot.data) > MAX_BYTES:
        raise ClientConfigError(f"{path}: larger than {MAX_BYTES // 2**20} MiB; no file of hooks is")
    return snapshot, decode(snapshot.data)


def hooks_table(document: Document) -> Node | None:
    node = document.root.get("hooks")
    return node if node is not None and node.kind == "table" else None


# Codex gives up on a file of hooks that has anything else at its root.
_CODEX_ROOT = ("hooks", "description")


def fault(document: Document, client: str) -> str | None:
    """Why hooks cannot be added to this file, as a sentence about it; None if they can."""
    if client == "codex" and document.dialect == "json":
        for member in document.root.members:
            if member.key not in _CODEX_ROOT:
                line = line_of(document.text, member.start)
                return f'has "{member.key}" (line {line}), for which Codex ignores the whole file; remove it'
    twice = document.root.all("hooks")
    if len(twice) > 1:
        return f'has "hooks" twice (line {line_of(document.text, twice[1].start)}); remove one'
    if twice and twice[0].node.kind != "table":
        return f'has "hooks" that is not a table (line {line_of(document.text, twice[0].start)})'
    seen: set[str] = set()
    for member in twice[0].node.members if twice else ():
        if member.key in seen:
            return f'has "{member.key}" twice in "hooks" (line {line_of(document.text, member.start)}); remove one'
        seen.add(member.key)
    return None


def handlers(document: Document) -> Iterator[Handler]:
    """Every handler of every event, in the order of the file; what has another shape is passed over."""
    table = hooks_table(document)
    for event in table.members if table is not None else ():
        if event.node.kind != "array":
            continue
        for group_at, group in enumerate(event.node.items):
            inner = group.get("hooks") if group.kind == "table" else None
            for at, node in enumerate(inner.items if inner is not None else ()):
                yield Handler(event, group_at, at, group, node)


class Known:
    """The commands by which our handlers are known: today's, those of earlier imports, and any that look like it."""

    def __init__(self, client: str, records: Collection[backups.Record] | None = None) -> None:
        self.current = commands_of(client)
        found = backups.records() if records is None else records
        added = [record.hooks for record in found if record.client == client and record.hooks is not None]
        self.commands = {*self.current.values(), *(command for hooks in added for command in hooks.commands)}
        self.trusted = {each for hooks in added for each in hooks.trusted}

    def covers(self, handler: Handler) -> bool:
        command = handler.command
        return command is not None and (command in self.commands or _OURS.search(command) is not None)

    def ours(self, document: Document) -> list[Handler]:
        """Raises ClientConfigError for more than anybody has."""
        found = [handler for handler in handlers(document) if self.covers(handler)]
        if len(found) > MAX_HANDLERS:
            raise ClientConfigError(f"holds more than {MAX_HANDLERS} hooks of Subluminal; take them out by hand")
        return found
