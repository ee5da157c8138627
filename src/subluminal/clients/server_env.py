"""One environment value of one server, read or replaced in place: what `sub secrets adopt` needs.

Replacing keeps every other byte and is refused if the file changes meanwhile. No backup is made: it would be one more
copy of the secret that is being moved away.
"""

from __future__ import annotations

from typing import NamedTuple

from subluminal.clients import files
from subluminal.clients.base import Client, Entry, Place
from subluminal.clients.document import Document
from subluminal.clients.importing import load
from subluminal.clients.registry import client_named
from subluminal.clients.spans import Edit, Member, apply, plain
from subluminal.contracts.errors import ClientConfigError


class ServerEnv(NamedTuple):
    """Where a variable of a server stands, and its value. Never print the value."""

    path: str
    scope: str
    value: str

    def __repr__(self) -> str:
        return f"ServerEnv(path={self.path!r}, scope={self.scope!r})"


def find_server_env(client: str, server: str, name: str, *, scope: str | None = None) -> list[ServerEnv]:
    """Every place in the client's files where this variable of this server is set."""
    found = []
    known = client_named(client)
    for file in known.find(Place()):
        loaded = load(known, file.path)
        if loaded is not None:
            for entry, member in _settings(known, loaded[1], file.scope, server, name, scope):
                found.append(ServerEnv(file.path, entry.scope, member.node.value))
    return found


def set_server_env(
    client: str, server: str, name: str, value: str, *, scope: str | None = None, expected: str | None = None
) -> list[str]:
    """Replace the value wherever it is set (`expected`: only where it is this); returns the paths changed."""
    known = client_named(client)
    planned: list[tuple[files.Snapshot, str]] = []
    for file in known.find(Place()):
        loaded = load(known, file.path)
        if loaded is None:
            continue
        snapshot, document = loaded
        settings = _settings(known, document, file.scope, server, name, scope)
        members = [m for _, m in settings if expected is None or m.node.value == expected]
        if members:
            files.check_writable(snapshot)
            planned.append((snapshot, _replaced(known, document, members, value)))
    if not planned:
        hint = f"`sub import` (without arguments) lists the servers that {known.title} knows."
        raise ClientConfigError(f"{known.title} sets no {name} for a server called {server!r}", hint=hint)
    for snapshot, text in planned:
        files.replace(snapshot, text.encode())
    return [snapshot.path for snapshot, _ in planned]


def _settings(
    client: Client, document: Document, file_scope: str, server: str, name: str, scope: str | None
) -> list[tuple[Entry, Member]]:
    found = []
    for entry in client.entries(document, file_scope):
        if entry.name == server and entry.env is not None and (scope is None or entry.scope == scope):
            found += [(entry, member) for member in entry.env.all(name) if member.node.kind == "string"]
    return found


def _replaced(client: Client, document: Document, members: list[Member], value: str) -> str:
    edits = [Edit(m.node.start, m.node.end, document.literal(value)) for m in members]
    text = apply(document.text, edits)
    after = client.read(text)
    unchanged = plain(document.root, document.text, frozenset(members))
    places = set()
    shift = 0
    for edit in sorted(edits, key=lambda edit: edit.start):
        places.add(edit.start + shift)
        shift += len(edit.text) - (edit.end - edit.start)
    same = frozenset(m for m in _all_members(after) if m.node.start in places and m.node.value == value)
    if len(same) != len(members) or plain(after.root, after.text, same) != unchanged:
        raise ClientConfigError("the value could not be replaced without side effects; the file was left alone")
    return text


def _all_members(document: Document) -> list[Member]:
    found: list[Member] = []
    stack = [document.root]
    while stack:
        node = stack.pop()
        found += node.members
        stack += [member.node for member in node.members]
        stack += node.items
    return found
