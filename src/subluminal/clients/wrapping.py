"""Routing one entry through the shim, recognising that it is, and taking it back out.

The original command and arguments stay in the entry, after `--`, spelled as the user spelled them: the client still
expands its variables in them, and an entry can be unwrapped with nothing but itself. What a wrapped entry launches in
the end (`launch`) must be what it launched before; `check` proves that, and that nothing else moved.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from subluminal.clients.backups import WrappedEntry
from subluminal.clients.base import Client, Entry
from subluminal.clients.document import Document
from subluminal.clients.routed import (
    HEADER_VARIABLE,
    URL_VARIABLE,
    Wrapping,
    is_http,
    meaning,
    recognise,
    words_of,
)
from subluminal.clients.spans import Edit, Member, Node, line_of, plain
from subluminal.contracts.errors import ClientConfigError
from subluminal.host.secrets.bindings import CONTROL_VARIABLES, SECRET_PREFIX

_STEERING_VARIABLES = ("PYTHONPATH", "PYTHONHOME", "PYTHONUSERBASE", "PYTHONINSPECT", "LD_PRELOAD", "LD_LIBRARY_PATH")


def reaches_us(entry: Entry) -> list[str]:
    """Variables of an entry that would steer the shim as well as the server: its policy, its home, its interpreter."""
    if entry.env is None:
        return []
    names = dict.fromkeys(member.key for member in entry.env.members)
    return [name for name in names if _is_ours(name) or name in _STEERING_VARIABLES]


def _is_ours(name: str) -> bool:
    return name.startswith("SUB_") and not name.startswith(HEADER_VARIABLE) and name != URL_VARIABLE


def controls(entry: Entry) -> list[str]:
    """Those of them that are Subluminal's own settings: the server itself never sees them."""
    return [name for name in reaches_us(entry) if name in CONTROL_VARIABLES or name.startswith(SECRET_PREFIX)]


def oddity(entry: Entry, client: Client, document: Document) -> str | None:
    """Why an entry cannot be wrapped, as a sentence for its owner; None if it can."""
    if entry.node.kind != "table":
        return "is not a table of settings"
    for key in ("command", "args", "path", "env_vars", client.env_key):
        twice = entry.holder.all(key)
        if len(twice) > 1:
            return f'has "{key}" twice (line {line_of(document.text, twice[1].start)}); remove one'
    if entry.command is None:
        return "names no command"
    array = entry.command.node.kind == "array"
    if array and not (client.array_command and entry.command.node.items):
        return "has a command that is not a string"
    if not array and entry.command.node.kind != "string":
        return "has a command that is not a string"
    for member in (entry.args, entry.holder.member("env_vars") if client.passed_variables else None):
        if member is not None and member.node.kind != "array":
            return f'has "{member.key}" that is not a list'
    return name_fault(entry)


def name_fault(entry: Entry) -> str | None:
    if not entry.name:
        return "has an empty name, which the shim cannot be given"
    return None if _passable(entry.name) else "has a name that no process can be given"


def _passable(name: str) -> bool:
    try:
        return b"\0" not in name.encode()
    except UnicodeEncodeError:
        return False


def wrap(entry: Entry, client: Client, document: Document, sub: str) -> tuple[list[Edit], WrappedEntry]:
    command = entry.command
    assert command is not None
    added: list[str] = []
    literal = document.literal
    shim = [literal("shim"), *name_words(entry, document), literal("--client"), literal(client.word), literal("--")]
    if command.node.kind == "array":
        edits = [document.prepend_items(command.node, [literal(sub), *shim])]
    else:
        edits = [Edit(command.node.start, command.node.end, literal(sub))]
        shim.append(document.raw(command.node))
        if entry.args is None:
            added.append("args")
            edits.append(document.insert_after(command, "args", document.array(shim)))
        else:
            edits.append(document.prepend_items(entry.args.node, shim))
    more, variables = _pass_variables(entry, client, document)
    if more and entry.holder.member("env_vars") is None:
        added.append("env_vars")
    return edits + more, WrappedEntry(list(entry.location), entry.name, entry.occurrence, added, variables)


def name_words(entry: Entry, document: Document) -> list[str]:
    if entry.name.startswith("-"):
        return [document.literal(f"--server-name={entry.name}")]
    return [document.literal("--server-name"), document.key_literal(entry.member)]


def _pass_variables(entry: Entry, client: Client, document: Document) -> tuple[list[Edit], list[str]]:
    if not client.passed_variables:
        return [], []
    member = entry.holder.member("env_vars")
    present = set(variable_names(member.node)) if member else set()
    missing = [name for name in client.passed_variables if name not in present]
    literals = [document.literal(name) for name in missing]
    if not missing:
        return [], []
    if member is not None:
        return [document.prepend_items(member.node, literals)], missing
    beside = entry.args or entry.command
    assert beside is not None
    return [document.insert_after(beside, "env_vars", document.array(literals))], missing


def variable_names(array: Node) -> list[str | None]:
    """Items are names, or tables with a name."""
    names: list[str | None] = []
    for item in array.items:
        name = item.get("name") if item.kind == "table" else item
        names.append(name.value if name is not None and name.kind == "string" else None)
    return names


def update(entry: Entry, wrapping: Wrapping, client: Client, document: Document, sub: str) -> list[Edit]:
    """Bring an entry that is routed already up to date: the place of `sub`, the server's name, passed variables.

    A stale name would let a server be judged by the rules of another.
    """
    edits, _ = _pass_variables(entry, client, document)
    words = words_of(entry)
    if wrapping.sub != sub:
        edits.append(Edit(words[0].start, words[0].end, document.literal(sub)))
    if wrapping.server_name != entry.name and wrapping.name_item > 0:
        node = words[wrapping.name_item]
        whole = entry.name.startswith("-") or node.value.startswith("--server-name=")
        start = node.start
        if whole and not node.value.startswith("--server-name="):
            start = words[wrapping.name_item - 1].start
        text = document.literal(f"--server-name={entry.name}") if whole else document.key_literal(entry.member)
        edits.append(Edit(start, node.end, text))
    elif wrapping.name_item < 0:
        at = words[2].start
        edits.append(Edit(at, at, "".join(word + ", " for word in name_words(entry, document))))
    return edits


def correct(entry: Entry, wrapping: Wrapping, client: Client, document: Document, sub: str) -> list[Edit]:
    """Give an entry that is routed already the options that an import gives, in place of its own."""
    assert wrapping.cut is not None
    words = words_of(entry)
    literal = document.literal
    head = [*name_words(entry, document), literal("--client"), literal(client.word)]
    edits, _ = _pass_variables(entry, client, document)
    edits.append(Edit(words[0].start, words[0].end, literal(sub)))
    edits.append(Edit(words[2].start, words[wrapping.cut - 1].start, "".join(word + ", " for word in head)))
    return edits


def unwrap(
    entry: Entry, wrapping: Wrapping, client: Client, document: Document, record: WrappedEntry | None
) -> list[Edit]:
    """Take away what `wrap` added. Without a record, lists that it may have found empty stay behind empty."""
    command = entry.command
    assert command is not None and wrapping.cut is not None
    if command.node.kind == "array":
        edits = document.remove_items(command.node, set(range(wrapping.cut)))
    else:
        assert entry.args is not None
        words = words_of(entry)
        edits = [Edit(command.node.start, command.node.end, document.raw(words[wrapping.cut]))]
        if record and "args" in record.added_keys and wrapping.cut + 1 == len(words):
            edits.append(document.remove_member(entry.holder, entry.args))
        else:
            edits += document.remove_items(entry.args.node, set(range(wrapping.cut)))
    return edits + withdraw_variables(entry, client, document, record)


def withdraw_variables(
    entry: Entry, client: Client, document: Document, record: WrappedEntry | None, named: Collection[str] = ()
) -> list[Edit]:
    """`named` are variables that an import without a record may have listed too."""
    member = entry.holder.member("env_vars")
    if not client.passed_variables or member is None or member.node.kind != "array":
        return []
    ours = record.added_env_vars if record else (*client.passed_variables, *named)
    unwanted = {i for i, name in enumerate(variable_names(member.node)) if name in ours}
    if not unwanted:
        return []
    if len(unwanted) == len(member.node.items) and (record is None or "env_vars" in record.added_keys):
        return [document.remove_member(entry.holder, member)]
    return document.remove_items(member.node, unwanted)


def check(client: Client, scope: str, before: Document, after: Document, touched: set[Any]) -> None:
    """Prove on the new text that only the touched entries changed, and that each still launches the same."""
    old = {entry.key: entry for entry in client.entries(before, scope)}
    new = {entry.key: entry for entry in client.entries(after, scope)}
    same = old.keys() == new.keys() and all(
        meaning(old[k], client, before) == meaning(new[k], client, after) for k in touched
    )
    if same:
        old_rest = plain(before.root, before.text, _managed(old, touched, client))
        same = old_rest == plain(after.root, after.text, _managed(new, touched, client))
    if not same:
        raise ClientConfigError("this file could not be changed without side effects; it was left alone")


def _managed(entries: dict[Any, Entry], touched: set[Any], client: Client) -> frozenset[Member]:
    """What a change of these entries may touch. Of a server behind a URL, `meaning` has been compared instead."""
    found = []
    for key in touched:
        entry = entries[key]
        found += [entry.command, entry.args, entry.holder.member("env_vars")]
        routed = recognise(entry)
        if routed.is_remote if routed is not None else is_http(entry):
            own = ("type", client.env_key, *((*client.http.all_keys, *client.http.logins) if client.http else ()))
            found += [m for m in entry.node.members if m.key in own]
    return frozenset(member for member in found if member is not None)
