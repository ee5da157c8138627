"""What clients are configured to start, and whether it goes through us. Reads only; `sub doctor` builds on it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping

import msgspec

from subluminal.clients import wrapping
from subluminal.clients.base import Client, ConfigFile, Entry, Place
from subluminal.clients.configured import Configured, as_configured, command_of, settings, withheld_from
from subluminal.clients.document import Document
from subluminal.clients.importing import literals_of, load
from subluminal.clients.registry import CLIENTS
from subluminal.clients.report import Literal
from subluminal.clients.spans import SyntaxProblem
from subluminal.contracts.errors import ClientConfigError
from subluminal.host.config import Config


class SurveyedEntry(msgspec.Struct):
    """`sub` is the program an entry is routed through (None: not routed); `sub_exists` whether it is still there."""

    name: str
    scope: str
    project: str | None
    transport: str  # stdio | http | unknown
    wrapped: bool
    sub: str | None = None
    sub_exists: bool | None = None
    server_name: str | None = None
    problem: str | None = None
    literals: list[Literal] = []
    steering: list[str] = []  # variables of the entry that steer the shim as well
    options: list[str] = []  # options of the shim that an import does not give
    withheld: str | None = None  # why it does not get the secrets that are bound to its name


class SurveyedFile(msgspec.Struct):
    client: str
    path: str
    scope: str
    entries: list[SurveyedEntry]
    error: str | None = None
    line: int | None = None


def survey(cwd: str | None = None, environ: Mapping[str, str] | None = None) -> list[SurveyedFile]:
    """Every existing file of every known client, with its entries or the reason why it cannot be read."""
    place = Place(cwd, environ)
    config = settings()
    found = (survey_file(client, file, config) for client in CLIENTS.values() for file in client.find(place))
    return [surveyed for surveyed in found if surveyed is not None]


def configured_servers(name: str, config: Config, place: Place) -> Iterator[Configured]:
    """Every entry of this name in every file of every client that is found from here."""
    for client in CLIENTS.values():
        for file in client.find(place):
            try:
                loaded = load(client, file.path)
            except ClientConfigError:
                continue  # `import` and `doctor` tell of it
            if loaded is None:
                continue
            for entry in client.entries(loaded[1], file.scope):
                if entry.name == name and (command := command_of(entry, client, loaded[1])) is not None:
                    started = as_configured(entry, command, config, place)
                    yield Configured(client.name, file.path, entry.scope, command, started)


def survey_file(client: Client, file: ConfigFile, config: Config | None) -> SurveyedFile | None:
    try:
        loaded = load(client, file.path)
    except ClientConfigError as error:
        line = error.line if isinstance(error, SyntaxProblem) else None
        return SurveyedFile(client.name, file.path, file.scope, [], str(error), line)
    if loaded is None:
        return None
    document = loaded[1]
    entries = [_survey_entry(client, entry, document, config) for entry in client.entries(document, file.scope)]
    return SurveyedFile(client.name, file.path, file.scope, entries)


def _survey_entry(client: Client, entry: Entry, document: Document, config: Config | None) -> SurveyedEntry:
    project = entry.location[1] if entry.location[:1] == ("projects",) else None
    found = wrapping.recognise(entry)
    if found is not None:
        exists = os.path.isabs(found.sub) and os.access(found.sub, os.X_OK)
        surveyed = SurveyedEntry(entry.name, entry.scope, project, "stdio", True, found.sub, exists, found.server_name)
        surveyed.options = found.options
    elif entry.node.kind == "table" and wrapping.is_http(entry):
        surveyed = SurveyedEntry(entry.name, entry.scope, project, "http", False)
    else:
        odd = wrapping.oddity(entry, client, document)
        surveyed = SurveyedEntry(entry.name, entry.scope, project, "unknown" if odd else "stdio", False, problem=odd)
    surveyed.literals = literals_of(entry)
    surveyed.steering = wrapping.reaches_us(entry)
    surveyed.withheld = withheld_from(entry, client, document, config)
    return surveyed
