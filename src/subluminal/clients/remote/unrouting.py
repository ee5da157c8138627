"""Taking an entry with a URL out of the shim again: exactly, with the record of its import, else by its meaning."""

from __future__ import annotations

from subluminal.clients import wrapping
from subluminal.clients.backups import RemovedMembers, WrappedEntry
from subluminal.clients.base import Client, Entry, HttpFields
from subluminal.clients.document import Document
from subluminal.clients.remote.spelling import header_key, key_literal, mark_of, renamed_key, replaced
from subluminal.clients.routed import Wrapping, words_of
from subluminal.clients.spans import Edit, Node


def irreversible(entry: Entry, found: Wrapping, client: Client) -> str | None:
    """Why an entry cannot be put back as it was; None if it can."""
    if client.http is None:
        return "names a server behind a URL, which this client cannot reach by itself"
    own = {variable for _, variable in found.header_envs} | {found.value("--url-env")}
    strangers = [m.key for m in entry.env.members if m.key not in own] if entry.env is not None else []
    if strangers:
        return f"sets {', '.join(strangers[:5])}, which a server behind a URL has no use for; take it out"
    hidden = found.value("--url-env")
    if hidden is not None and (entry.env is None or entry.env.get(hidden) is None):
        return f"should have its URL in {hidden}, which is not there"
    return None


def unwrap(
    entry: Entry, found: Wrapping, client: Client, document: Document, record: WrappedEntry | None
) -> list[Edit]:
    """Take away what `wrap` did; `irreversible` has been asked."""
    assert client.http is not None and entry.command is not None
    spelled = record.spelled if record is not None else {}
    command = entry.command
    key = spelled.get("command") or key_literal(document, _url_key(entry, found, client.http))
    edits = [Edit(command.key_start, command.key_end, key), replaced(command.node, _raw_url(entry, found, document))]
    if entry.args is not None and command.node.kind != "array":
        edits.append(document.remove_member(entry.holder, entry.args))
    kind = entry.node.member("type")
    if kind is not None:
        edits.append(replaced(kind.node, spelled.get("type") or document.literal(_type(found, client))))
    edits += _headers_again(entry, found, client, document, record)
    removed = record.removed if record is not None else []
    edits += _aside_again(entry, found, client, document, {key for one in removed for key in one.keys})
    edits += wrapping.withdraw_variables(entry, client, document, record, found.variables)
    return edits + [_put_back(entry.node, one) for one in removed]


def _raw_url(entry: Entry, found: Wrapping, document: Document) -> str:
    hidden = found.value("--url-env")
    if hidden is not None:
        assert entry.env is not None
        node = entry.env.get(hidden)
        assert node is not None
        return document.raw(node)
    url = found.value("--url") or ""
    word = words_of(entry)[found.place("--url")]
    return document.raw(word) if word.value == url else document.literal(url)


def _url_key(entry: Entry, found: Wrapping, fields: HttpFields) -> str:
    transport = found.value("--transport") or "auto"
    if entry.node.get("type") is not None:
        return fields.urls[-1][0]  # beside a type there is one key for every transport
    return next((key for key, stands_for in fields.urls if stands_for == transport), fields.urls[0][0])


def _type(found: Wrapping, client: Client) -> str:
    if client.stdio == "local":
        return "remote"
    return "sse" if found.value("--transport") == "sse" else "http"


def _headers_again(
    entry: Entry, found: Wrapping, client: Client, document: Document, record: WrappedEntry | None
) -> list[Edit]:
    member = entry.holder.member(client.env_key)
    assert client.http is not None
    if member is None:
        return []
    added = record is not None and client.env_key in record.added_keys
    names = {variable: name for name, variable in found.header_envs}
    if added or (record is None and not any(inner.key in names for inner in member.node.members)):
        return [document.remove_member(entry.holder, member)]
    spelled = record.spelled if record is not None else {}
    hidden = member.node.member(found.value("--url-env") or "")
    kept = [inner for inner in member.node.members if inner is not hidden]
    edits = renamed_key(
        document, member, kept, spelled.get(client.env_key) or key_literal(document, client.http.headers)
    )
    for inner in kept:
        key = spelled.get(inner.key) or header_key(document, names[inner.key])
        edits.append(Edit(inner.key_start, inner.key_end, key))
    if hidden is not None:
        edits.append(document.remove_member(member.node, hidden))
    return edits


def _aside_again(entry: Entry, found: Wrapping, client: Client, document: Document, kept: set[str]) -> list[Edit]:
    """A client that has written its file anew has dropped comments: then the shim's words tell. `kept` are recorded."""
    fields = client.http
    assert fields is not None and entry.command is not None
    edits = []
    own = {m.key for m in entry.env.members} if entry.env is not None else set()
    pairs = [(name, variable) for name, variable in found.header_envs if variable not in own]
    inside = ", ".join(f"{header_key(document, name)} = {document.literal(variable)}" for name, variable in pairs)
    bearer = found.value("--bearer-env")
    wanted: dict[str | None, str | None] = {
        fields.env_headers: "{ " + inside + " }" if pairs else None,
        fields.bearer: document.literal(bearer) if bearer else None,
    }
    wanted.update(dict.fromkeys(fields.logins))
    for key, value in wanted.items():
        if key is None or key in kept:
            continue
        comments = document.taken_back(mark_of(entry, key))
        edits += comments
        if value is not None and not comments:
            edits.append(document.insert_after(entry.command, key, value))
    return edits


def _put_back(table: Node, removed: RemovedMembers) -> Edit:
    if not removed.after:
        return Edit(table.members[0].start, table.members[0].start, removed.text)
    before = table.member(removed.after) or table.members[0]
    return Edit(before.node.end, before.node.end, removed.text)
