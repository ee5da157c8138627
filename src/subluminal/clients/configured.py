"""Servers as clients are configured to start or to reach them: what the user confirms, and what others compare.

References that a client fills in are filled in from the environment at hand (`references`); a server with others is
confirmed by its words.
"""

from __future__ import annotations

import os
from typing import Any, NamedTuple

from subluminal.clients import routed, wrapping
from subluminal.clients.base import Client, Entry, Place
from subluminal.clients.document import Document
from subluminal.clients.references import filled_in
from subluminal.clients.remote.reading import Remote
from subluminal.contracts.errors import ConfigError
from subluminal.host.config import Config, load_config
from subluminal.host.secrets.addresses import address_fault
from subluminal.host.secrets.confirmation import Reached, Started, confirm_words, reaching

PROJECT = "project"


class Configured(NamedTuple):
    """One entry with the name asked for."""

    client: str
    path: str
    scope: str
    command: list[str]
    started: Started


def command_of(entry: Entry, client: Client, document: Document) -> list[str] | None:
    """The words after `--`, or those that would stand there; None for an entry that starts no command."""
    if entry.node.kind != "table" or wrapping.oddity(entry, client, document) is not None:
        return None
    found = routed.recognise(entry)
    if found is not None and found.is_remote:
        return None
    words: list[Any] = routed.launch(entry, document)
    return words if all(isinstance(word, str) for word in words) else None


def address_of(entry: Entry, client: Client, document: Document, place: Place) -> str | None:
    """The address of a server behind a URL, routed or not; None for other entries and for addresses unknown here."""
    if entry.node.kind != "table":
        return None
    found = routed.recognise(entry)
    if found.is_remote if found is not None else routed.is_http(entry):
        remote = routed.meaning(entry, client, document)
        address = filled_in(remote.url, place.environ) if isinstance(remote, Remote) else ""
        return address if address_fault(address) is None else None
    return None


def as_configured(entry: Entry, client: Client, document: Document, config: Config, place: Place) -> Started | None:
    """The server of an entry as it is started or reached; None for an entry that says neither."""
    address = address_of(entry, client, document, place)
    command = command_of(entry, client, document) if address is None else None
    members = entry.env.members if entry.env is not None else ()
    own = {m.key: filled_in(m.node.value, place.environ) for m in members if m.node.kind == "string"}
    seen = reaching({**place.environ, **own}, config.server(entry.name), config)
    if address is not None:
        return Reached(address, seen, own)
    if command is None:
        return None
    return Started([filled_in(word, place.environ) for word in command], seen, _directory(entry, place), own)


def withheld_from(entry: Entry, client: Client, document: Document, config: Config | None) -> str | None:
    """Why an entry does not get the secrets that are bound to its name; None if it does, or if there are none."""
    server = None if config is None else config.server(entry.name)
    if config is None or server is None or not server.secret_bindings:
        return None
    started = as_configured(entry, client, document, config, Place())
    return None if started is None else started.fault(server.confirmed)


def confirm_entry(entry_name: str, scope: str) -> str:
    """The command that lets an entry have its secrets."""
    return confirm_words(entry_name, *(("--scope", scope) if scope == PROJECT else ()))


def settings() -> Config | None:
    """Which secrets are bound; None where that cannot be read, which `doctor` tells."""
    try:
        config = load_config(os.environ)
        config.server("")  # reads SUB_SECRET_BINDINGS
        return config
    except ConfigError:
        return None


def _directory(entry: Entry, place: Place) -> str:
    """Where the client starts it: as the entry says, in the project it belongs to, or here."""
    named = entry.node.get("cwd")
    base = entry.location[1] if entry.location[:1] == ("projects",) else place.cwd
    if named is None or named.kind != "string":
        return base
    return os.path.normpath(os.path.join(base, filled_in(named.value, place.environ)))
