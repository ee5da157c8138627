"""How an entry is routed through the shim already, if it is, and which server it means in the end.

A routed entry holds its original command after `--`, or names a server behind a URL with the shim's own options.
"""

from __future__ import annotations

import os
from typing import Any

from msgspec import Struct

from subluminal.adapters.stdio.options import REMOTE_OPTIONS, read_words
from subluminal.clients.base import Client, Entry
from subluminal.clients.document import Document
from subluminal.clients.remote.reading import Remote, read_entry
from subluminal.clients.spans import Node, plain

_HTTP_TYPES = ("http", "sse", "streamable-http", "streamable_http", "streamableHttp", "remote", "ws", "websocket")
_URL_KEYS = ("url", "httpUrl", "serverUrl")
# What an import writes into the environment of an entry for a server behind a URL.
HEADER_VARIABLE = "SUB_HEADER_"
URL_VARIABLE = "SUB_SERVER_URL"


class Wrapping(Struct):
    """How an entry is routed already. `cut` is the index, in the list after the program, of the original command.

    `remote` are options that name a server behind a URL, each with its value and the word that this stands in.
    """

    sub: str
    server_name: str | None = None
    client: str | None = None
    name_item: int = -1
    options: list[str] = []
    cut: int | None = None
    remote: list[tuple[str, str | None, int]] = []

    @property
    def is_remote(self) -> bool:
        return self.cut is None and any(name in ("--url", "--url-env") for name, _, _ in self.remote)

    @property
    def is_whole(self) -> bool:
        """Whether it says what stands behind the shim: a command, or a URL."""
        return self.cut is not None or self.is_remote

    def value(self, option: str) -> str | None:
        return next((value for name, value, _ in reversed(self.remote) if name == option), None)

    def place(self, option: str) -> int:
        return next(at for name, _, at in reversed(self.remote) if name == option)

    @property
    def header_envs(self) -> list[tuple[str, str]]:
        """Headers with their variables."""
        pairs = ((value or "").partition("=") for name, value, _ in self.remote if name == "--header-env")
        return [(header, variable) for header, _, variable in pairs]

    @property
    def variables(self) -> list[str]:
        """Variables that its words name."""
        named = [self.value("--url-env"), self.value("--bearer-env"), *(variable for _, variable in self.header_envs)]
        return [name for name in named if name]


def is_http(entry: Entry) -> bool:
    """An entry with a command is none, whatever else it says: clients differ in which of the two they believe."""
    if entry.command is not None:
        return False
    kind = entry.node.get("type")
    return (kind is not None and kind.value in _HTTP_TYPES) or any(entry.node.get(key) for key in _URL_KEYS)


def words_of(entry: Entry) -> list[Node]:
    """Program and arguments, as the nodes they are."""
    assert entry.command is not None
    if entry.command.node.kind == "array":
        return entry.command.node.items
    return [entry.command.node, *(entry.args.node.items if entry.args else ())]


def recognise(entry: Entry) -> Wrapping | None:
    """The routing an entry has, whoever wrote it and wherever its `sub` lies."""
    if entry.node.kind != "table" or entry.command is None or entry.command.node.kind not in ("string", "array"):
        return None
    words = words_of(entry)
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
        elif name in REMOTE_OPTIONS:
            found.remote = [*found.remote, (name, value, at + 2)]
        else:
            found.options.append(name)
    if start + 2 < len(words):
        found.cut = start + 2
    return found


def launch(entry: Entry, document: Document) -> Any:
    """What is run in the end, with or without us in between."""
    words = [plain(word, document.text) for word in words_of(entry)]
    wrapping = recognise(entry)
    return words[wrapping.cut :] if wrapping and wrapping.cut is not None else words


def meaning(entry: Entry, client: Client, document: Document) -> Any:
    """The server of an entry, routed or not: what is launched, or what is reached."""
    found = recognise(entry)
    if found is not None and found.is_remote:
        return reached(entry, found).in_order()
    if found is None and entry.node.kind == "table" and is_http(entry):
        remote = read_entry(entry, client, document)
        return remote.in_order() if isinstance(remote, Remote) else remote
    return launch(entry, document)


def reached(entry: Entry, found: Wrapping) -> Remote:
    """The server behind a URL that a routed entry names."""
    values = {m.key: m.node.value for m in entry.env.members if m.node.kind == "string"} if entry.env else {}
    hidden = found.value("--url-env")
    return Remote(
        url=(found.value("--url") or "") if hidden is None else values.get(hidden, ""),
        transport=found.value("--transport") or "auto",
        headers=tuple((name, values[variable]) for name, variable in found.header_envs if variable in values),
        from_environment=tuple(pair for pair in found.header_envs if pair[1] not in values),
        bearer=found.value("--bearer-env"),
    )
