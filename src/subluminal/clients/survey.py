"""What clients are configured to start, and whether it goes through us. Reads only; `sub doctor` builds on it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping

import msgspec

from subluminal.clients import routed, wrapping
from subluminal.clients.base import Client, ConfigFile, Entry, Place
from subluminal.clients.configured import (
    PROJECT,
    Configured,
    address_of,
    as_configured,
    command_of,
    settings,
    withheld_from,
)
from subluminal.clients.document import Document
from subluminal.clients.importing import literals_of, load
from subluminal.clients.registry import CLIENTS
from subluminal.clients.remote.asking import has_login, login_fault
from subluminal.clients.remote.reading import NotRouted, own_login
from subluminal.clients.report import Literal
from subluminal.clients.spans import SyntaxProblem
from subluminal.contracts.errors import ClientConfigError
from subluminal.host.config import Config
from subluminal.host.secrets.addresses import public_form
from subluminal.logins.wording import login_words


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
    address: str | None = None  # of a server behind a URL: where, without what may be secret
    stays: str | None = None  # why a server behind a URL is not routed
    login: str | None = None  # the command that logs in at such a server, where that is missing
    unset: list[str] = []  # variables that its words name and that are not there


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
                if entry.name != name:
                    continue
                started = as_configured(entry, client, loaded[1], config, place)
                if started is not None:
                    command = command_of(entry, client, loaded[1]) or started.command
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


def _program(sub: str, scope: str) -> str:
    """Where it is. A repository's entry names no place; one of our own does, for clients have a PATH of their own."""
    if os.path.isabs(sub):
        return sub
    return (shutil.which(sub) or "") if scope == PROJECT and os.sep not in sub else ""


def _survey_entry(client: Client, entry: Entry, document: Document, config: Config | None) -> SurveyedEntry:
    project = entry.location[1] if entry.location[:1] == ("projects",) else None
    found = routed.recognise(entry)
    if found is not None:
        exists = os.access(_program(found.sub, entry.scope), os.X_OK)
        surveyed = SurveyedEntry(entry.name, entry.scope, project, "stdio", True, found.sub, exists, found.server_name)
        surveyed.options = found.options
        if found.is_remote:
            _survey_remote(surveyed, entry, client, document)
            surveyed.unset = _unset(entry, found, client)
    elif entry.node.kind == "table" and routed.is_http(entry):
        surveyed = SurveyedEntry(entry.name, entry.scope, project, "http", False)
        _survey_remote(surveyed, entry, client, document)
    else:
        odd = wrapping.oddity(entry, client, document)
        surveyed = SurveyedEntry(entry.name, entry.scope, project, "unknown" if odd else "stdio", False, problem=odd)
    surveyed.literals = literals_of(entry)
    surveyed.steering = wrapping.reaches_us(entry)
    surveyed.withheld = withheld_from(entry, client, document, config)
    return surveyed


def _survey_remote(surveyed: SurveyedEntry, entry: Entry, client: Client, document: Document) -> None:
    surveyed.transport = "http"
    remote = routed.meaning(entry, client, document)
    address = address_of(entry, client, document, Place())
    surveyed.address = None if address is None else public_form(address)
    if isinstance(remote, NotRouted):
        surveyed.stays = remote.why
        return
    setting = own_login(entry, client, document)
    if not surveyed.wrapped:
        surveyed.stays = login_fault(entry.name, setting, address)
    needs_one = setting is not None or not remote.has_credentials
    if needs_one and address is not None and not has_login(entry.name, address):
        surveyed.login = login_words(entry.name, address)


def _unset(entry: Entry, found: routed.Wrapping, client: Client) -> list[str]:
    """Its own variables are in the entry; the client's own may be in this shell, and a client may have to pass them."""
    own = {member.key for member in entry.env.members} if entry.env is not None else set()
    listed = entry.holder.get("env_vars")
    passed = set(wrapping.variable_names(listed)) if listed is not None else set()
    return [
        name
        for name in found.variables
        if name not in own and (name not in os.environ or (client.passed_variables and name not in passed))
    ]
