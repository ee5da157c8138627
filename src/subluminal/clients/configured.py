"""Servers as clients are configured to start them: what the user confirms, and what `import` and `doctor` compare.

References that a client fills in (`${VAR}`, `${VAR:-word}`, `${env:VAR}`, `{env:VAR}`) are filled in from the
environment at hand; others stand as they are, and such a server is confirmed by its words.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from subluminal.clients import wrapping
from subluminal.clients.base import Client, Entry, Place
from subluminal.clients.document import Document
from subluminal.contracts.errors import ConfigError
from subluminal.host.config import Config, load_config
from subluminal.host.secrets.confirmation import Started, confirm_words, reaching

PROJECT = "project"
_REFERENCE = re.compile(r"\$\{(?:env:)?(\w+)(?::-([^}]*))?\}|\{env:(\w+)\}")


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
    words: list[Any] = wrapping.launch(entry, document)
    return words if all(isinstance(word, str) for word in words) else None


def as_configured(entry: Entry, command: list[str], config: Config, place: Place) -> Started:
    members = entry.env.members if entry.env is not None else ()
    own = {m.key: filled_in(m.node.value, place.environ) for m in members if m.node.kind == "string"}
    words = [filled_in(word, place.environ) for word in command]
    environ = {**place.environ, **own}
    return Started(words, reaching(environ, config.server(entry.name), config), _directory(entry, place), own)


def withheld_from(entry: Entry, client: Client, document: Document, config: Config | None) -> str | None:
    """Why an entry does not get the secrets that are bound to its name; None if it does, or if there are none."""
    server = None if config is None else config.server(entry.name)
    if config is None or server is None or not server.secret_bindings:
        return None
    command = command_of(entry, client, document)
    return None if command is None else as_configured(entry, command, config, Place()).fault(server.confirmed)


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


def filled_in(text: str, environ: Mapping[str, str]) -> str:
    def value(match: re.Match[str]) -> str:
        return environ.get(match[1] or match[3]) or (match[2] if match[2] is not None else match[0])

    return _REFERENCE.sub(value, text)


def _directory(entry: Entry, place: Place) -> str:
    """Where the client starts it: as the entry says, in the project it belongs to, or here."""
    named = entry.node.get("cwd")
    base = entry.location[1] if entry.location[:1] == ("projects",) else place.cwd
    if named is None or named.kind != "string":
        return base
    return os.path.normpath(os.path.join(base, filled_in(named.value, place.environ)))
