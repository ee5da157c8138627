"""Routing an entry with a URL through the shim, in place.

    "url": "https://e.test/mcp"         ->  "command": "sub", "args": ["shim", ..., "--url", "https://e.test/mcp"]
    "headers": { "X-Key": "${KEY}" }    ->  "env": { "SUB_HEADER_X_KEY": "${KEY}" }, with --header-env in `args`

Nothing moves, so comments and layout stay. What the new text does not tell (how a key was spelled) is in the record of
the import; without it an entry is put back with the same meaning. A URL that holds a credential goes into `env` too.

What a client refuses beside a command (Codex: `bearer_token_env_var`) or what belongs to its own login is set aside: in
TOML as a comment, elsewhere in the record.
"""

from __future__ import annotations

from subluminal.clients import wrapping
from subluminal.clients.backups import RemovedMembers, WrappedEntry
from subluminal.clients.base import Client, Entry, HttpFields
from subluminal.clients.document import Document
from subluminal.clients.remote.reading import Remote, keeps_a_secret
from subluminal.clients.remote.spelling import (
    is_dotted,
    is_spread,
    key_literal,
    mark_of,
    raw_key,
    renamed_key,
    replaced,
)
from subluminal.clients.routed import HEADER_VARIABLE, URL_VARIABLE, Wrapping, words_of
from subluminal.clients.spans import Edit, Member, Node


class _Parts:
    """The members of an entry that an import changes."""

    def __init__(self, entry: Entry, fields: HttpFields) -> None:
        table = entry.node
        self.url = next(member for key, _ in fields.urls if (member := table.member(key)) is not None)
        self.headers = table.member(fields.headers)
        self.type = table.member("type")
        aside = (*fields.logins, fields.env_headers, fields.bearer)
        self.aside = [member for member in table.members if member.key in aside]


def variables_of(headers: tuple[tuple[str, str], ...]) -> dict[str, str]:
    """Header -> the variable that carries its value. Names that differ in punctuation only are numbered."""
    found: dict[str, str] = {}
    for name, _ in headers:
        base = variable = HEADER_VARIABLE + "".join(c if c.isalnum() else "_" for c in name).upper()
        number = 1
        while variable in found.values():
            number += 1
            variable = f"{base}_{number}"
        found[name] = variable
    return found


def wrap(entry: Entry, client: Client, document: Document, sub: str, remote: Remote) -> tuple[list[Edit], WrappedEntry]:
    assert client.http is not None
    parts = _Parts(entry, client.http)
    variables = variables_of(remote.headers)
    hidden = keeps_a_secret(remote.url)
    record = WrappedEntry(list(entry.location), entry.name, entry.occurrence, [], [])
    edits = _command(entry, client, document, parts, _words(entry, client, document, sub, parts, remote, hidden))
    record.spelled["command"] = raw_key(document, parts.url)
    if not client.array_command:
        record.added_keys.append("args")
    if parts.type is not None:
        record.spelled["type"] = document.raw(parts.type.node)
        edits.append(replaced(parts.type.node, document.literal(client.stdio)))
    if is_spread(entry, document):
        edits += [edit for m in parts.aside for edit in document.set_aside(m, mark_of(entry, m.key))]
    else:
        edits += _removed(entry.node, parts, client, document, record)
    edits += _passed(client, document, parts.url, remote, record)
    edits += _headers(client, document, parts, variables, record)
    if hidden:
        edits.append(_hide(client, document, parts, record))
    return edits, record


def _words(
    entry: Entry, client: Client, document: Document, sub: str, parts: _Parts, remote: Remote, hidden: bool
) -> list[str]:
    literal = document.literal
    words = [literal(sub), literal("shim"), *wrapping.name_words(entry, document), literal("--client")]
    words.append(literal(client.word))
    words += (
        [literal("--url-env"), literal(URL_VARIABLE)] if hidden else [literal("--url"), document.raw(parts.url.node)]
    )
    if remote.transport != "auto":
        words += [literal("--transport"), literal(remote.transport)]
    for name, variable in (*variables_of(remote.headers).items(), *remote.from_environment):
        words += [literal("--header-env"), literal(f"{name}={variable}")]
    if remote.bearer is not None:
        words += [literal("--bearer-env"), literal(remote.bearer)]
    return words


def _command(entry: Entry, client: Client, document: Document, parts: _Parts, words: list[str]) -> list[Edit]:
    url = parts.url
    key = Edit(url.key_start, url.key_end, key_literal(document, "command"))
    if client.array_command:
        return [key, replaced(url.node, document.array(words))]
    return [key, replaced(url.node, words[0]), document.insert_after(url, "args", document.array(words[1:]))]


def _passed(client: Client, document: Document, beside: Member, remote: Remote, record: WrappedEntry) -> list[Edit]:
    """A client that keeps its environment to itself must be told which variables the shim needs."""
    if not client.passed_variables:
        return []
    own = [variable for _, variable in remote.from_environment]
    names = list(dict.fromkeys([*client.passed_variables, *own, *([remote.bearer] if remote.bearer else ())]))
    record.added_keys.append("env_vars")
    record.added_env_vars.extend(names)
    return [document.insert_after(beside, "env_vars", document.array([document.literal(name) for name in names]))]


def _headers(
    client: Client, document: Document, parts: _Parts, variables: dict[str, str], record: WrappedEntry
) -> list[Edit]:
    if parts.headers is None:
        return []
    edits = _renamed(document, parts.headers, client.env_key, record)
    for inner in parts.headers.node.members:
        variable = variables[inner.key]
        record.spelled[variable] = raw_key(document, inner)
        edits.append(Edit(inner.key_start, inner.key_end, key_literal(document, variable)))
    return edits


def _hide(client: Client, document: Document, parts: _Parts, record: WrappedEntry) -> Edit:
    """The URL as a variable, spelled as it was."""
    raw, key = document.raw(parts.url.node), key_literal(document, URL_VARIABLE)
    pair = f"{key} = {raw}" if document.dialect == "toml" else f"{key}: {raw}"
    if parts.headers is None:
        record.added_keys.append(client.env_key)
        return document.insert_after(parts.url, client.env_key, "{ " + pair + " }")
    inside = parts.headers.node
    if not inside.members:
        return Edit(inside.start + 1, inside.start + 1, pair)
    if is_dotted(inside):
        return document.insert_after(parts.url, f"{client.env_key}.{URL_VARIABLE}", raw)
    return document.insert_after(inside.members[-1], URL_VARIABLE, raw)


def _removed(table: Node, parts: _Parts, client: Client, document: Document, record: WrappedEntry) -> list[Edit]:
    """Set aside in the record, each run of neighbours at once."""
    edits = []
    members = table.members
    written = {parts.url: "command", **({parts.headers: client.env_key} if parts.headers is not None else {})}
    for first in (
        i for i, m in enumerate(members) if m in parts.aside and (not i or members[i - 1] not in parts.aside)
    ):
        last = first
        while last + 1 < len(members) and members[last + 1] in parts.aside:
            last += 1
        if first:
            before = members[first - 1]
            edit = Edit(before.node.end, members[last].node.end, "")
            key = written.get(before, before.key)
        else:
            edit, key = Edit(members[0].start, members[last + 1].start, ""), ""
        edits.append(edit)
        keys = [member.key for member in members[first : last + 1]]
        record.removed.append(RemovedMembers(key, keys, document.text[edit.start : edit.end]))
    return edits


def correct(entry: Entry, found: Wrapping, client: Client, document: Document, sub: str) -> list[Edit]:
    """Give an entry that is routed already the options that an import gives, and its own server."""
    words = words_of(entry)
    literal = document.literal
    head = [*wrapping.name_words(entry, document), literal("--client"), literal(client.word)]
    for option, value, _ in found.remote:
        head += [literal(option)] if value is None else [literal(option), literal(value)]
    return [replaced(words[0], literal(sub)), Edit(words[2].start, words[-1].end, ", ".join(head))]


def _renamed(document: Document, member: Member, new: str, record: WrappedEntry) -> list[Edit]:
    edits = renamed_key(document, member, member.node.members, key_literal(document, new))
    record.spelled[new] = document.text[edits[0].start : edits[0].end]
    return edits
