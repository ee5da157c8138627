"""Routing one entry through the shim, recognising that it is, and taking it back out.

The original command and arguments stay in the entry, after `--`, spelled as the user spelled them: the client still
expands its variables in them, and an entry can be unwrapped with nothing but itself. What a wrapped entry launches in
the end (`launch`) must be what it launched before; `check` proves that, and that nothing else moved.
"""

from __future__ import annotations

import os
from typing import Any

from msgspec import Struct

from subluminal.adapters.stdio.options import read_words
from subluminal.clients.backups import WrappedEntry
from subluminal.clients.base import Client, Entry
from subluminal.clients.document import Document
from subluminal.clients.spans import Edit, Member, Node, line_of, plain
from subluminal.contracts.errors import ClientConfigError
from subluminal.host.secrets.bindings import CONTROL_VARIABLES, SECRET_PREFIX

_HTTP_TYPES = ("http", "sse", "streamable-http", "streamable_http", "streamableHttp", "remote", "ws", "websocket")
_STEERING_VARIABLES = ("PYTHONPATH", "PYTHONHOME", "PYTHONUSERBASE", "PYTHONINSPECT", "LD_PRELOAD", "LD_LIBRARY_PATH")
_URL_KEYS = ("url", "httpUrl", "serverUrl")


class Wrapping(Struct):
    """How an entry is routed already. `cut` is the index, in the list after the program, of the original command."""

    sub: str
    server_name: str | None = None
    client: str | None = None
    name_item: int = -1
    options: list[str] = []
    cut: int | None = None


def is_http(entry: Entry) -> bool:
    """An entry with a command is none, whatever else it says: clients differ in which of the two they believe."""
    if entry.command is not None:
        return False
    kind = entry.node.get("type")
    return (kind is not None and kind.value in _HTTP_TYPES) or any(entry.node.get(key) for key in _URL_KEYS)


def reaches_us(entry: Entry) -> list[str]:
    """Variables of an entry that would steer the shim as well as the server: its policy, its home, its interpreter."""
    if entry.env is None:
        return []
    names = dict.fromkeys(member.key for member in entry.env.members)
    return [name for name in names if name.startswith("SUB_") or name in _STEERING_VARIABLES]


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
    if not entry.name:
        return "has an empty name, which the shim cannot be given"
    if not _passable(entry.name):
        return "has a name that no process can be given"
    return None


def _passable(name: str) -> bool:
    try:
        return b"\0" not in name.encode()
    except UnicodeEncodeError:
        return False


def _words(entry: Entry) -> list[Node]:
    """Program and arguments, as the nodes they are."""
    assert entry.command is not None
    if entry.command.node.kind == "array":
        return entry.command.node.items
    return [entry.command.node, *(entry.args.node.items if entry.args else ())]


def recognise(entry: Entry) -> Wrapping | None:
    """The routing an entry has, whoever wrote it and wherever its `sub` lies."""
    if entry.node.kind != "table" or entry.command is None or entry.command.node.kind not in ("string", "array"):
        return None
    words = _words(entry)
    if len(words) < 2 or any(word.kind != "string" for word in words[:2]) or words[1].value != "shim":
        return None
    if os.path.basename(words[0].value.replace("\\", "/")).lower() not in ("sub", "sub.exe"):
        return None
    found = Wrapping(words[0].value)
    options, start = read_words([word.value for word in words[2:]])
    for name, value, at in options:
        if name == "--server-name":
            found.server_name, found.name_item = value, at + 2
        elif name == "--client":
            found.client = value
        else:
            found.options.append(name)
    if start + 2 < len(words):
        found.cut = start + 2
    return found


def launch(entry: Entry, document: Document) -> Any:
    """What is run in the end, with or without us in between."""
    words = [plain(word, document.text) for word in _words(entry)]
    wrapping = recognise(entry)
    return words[wrapping.cut :] if wrapping and wrapping.cut is not None else words


def wrap(entry: Entry, client: Client, document: Document, sub: str) -> tuple[list[Edit], WrappedEntry]:
    command = entry.command
    assert command is not None
    added: list[str] = []
    literal = document.literal
    shim = [literal("shim"), *_name_words(entry, document), literal("--client"), literal(client.word), literal("--")]
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


def _name_words(entry: Entry, document: Document) -> list[str]:
    if entry.name.startswith("-"):
        return [document.literal(f"--server-name={entry.name}")]
    return [document.literal("--server-name"), document.key_literal(entry.member)]


def _pass_variables(entry: Entry, client: Client, document: Document) -> tuple[list[Edit], list[str]]:
    if not client.passed_variables:
        return [], []
    member = entry.holder.member("env_vars")
    present = set(_variable_names(member.node)) if member else set()
    missing = [name for name in client.passed_variables if name not in present]
    literals = [document.literal(name) for name in missing]
    if not missing:
        return [], []
    if member is not None:
        return [document.prepend_items(member.node, literals)], missing
    beside = entry.args or entry.command
    assert beside is not None
    return [document.insert_after(beside, "env_vars", document.array(literals))], missing


def _variable_names(array: Node) -> list[str | None]:
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
    words = _words(entry)
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
        edits.append(Edit(at, at, "".join(word + ", " for word in _name_words(entry, document))))
    return edits


def correct(entry: Entry, wrapping: Wrapping, client: Client, document: Document, sub: str) -> list[Edit]:
    """Give an entry that is routed already the options that an import gives, in place of its own."""
    assert wrapping.cut is not None
    words = _words(entry)
    literal = document.literal
    head = [*_name_words(entry, document), literal("--client"), literal(client.word)]
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
        words = _words(entry)
        edits = [Edit(command.node.start, command.node.end, document.raw(words[wrapping.cut]))]
        if record and "args" in record.added_keys and wrapping.cut + 1 == len(words):
            edits.append(document.remove_member(entry.holder, entry.args))
        else:
            edits += document.remove_items(entry.args.node, set(range(wrapping.cut)))
    return edits + _withdraw_variables(entry, client, document, record)


def _withdraw_variables(entry: Entry, client: Client, document: Document, record: WrappedEntry | None) -> list[Edit]:
    member = entry.holder.member("env_vars")
    if not client.passed_variables or member is None or member.node.kind != "array":
        return []
    ours = record.added_env_vars if record else client.passed_variables
    unwanted = {i for i, name in enumerate(_variable_names(member.node)) if name in ours}
    if not unwanted:
        return []
    if len(unwanted) == len(member.node.items) and (record is None or "env_vars" in record.added_keys):
        return [document.remove_member(entry.holder, member)]
    return document.remove_items(member.node, unwanted)


def check(client: Client, scope: str, before: Document, after: Document, touched: set[Any]) -> None:
    """Prove on the new text that only the touched entries changed, and that each still launches the same."""
    old = {entry.key: entry for entry in client.entries(before, scope)}
    new = {entry.key: entry for entry in client.entries(after, scope)}
    same = old.keys() == new.keys() and all(launch(old[k], before) == launch(new[k], after) for k in touched)
    if same:
        old_rest = plain(before.root, before.text, _managed(old, touched))
        same = old_rest == plain(after.root, after.text, _managed(new, touched))
    if not same:
        raise ClientConfigError("this file could not be changed without side effects; it was left alone")


def _managed(entries: dict[Any, Entry], touched: set[Any]) -> frozenset[Member]:
    found = []
    for key in touched:
        entry = entries[key]
        found += [entry.command, entry.args, entry.holder.member("env_vars")]
    return frozenset(member for member in found if member is not None)
