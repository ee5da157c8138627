"""Whether our hooks are in a client's files as an import would write them. Reads only; `sub doctor` builds on it."""

from __future__ import annotations

import os
import shlex

import msgspec

from subluminal.clients import backups
from subluminal.clients.base import Client, ConfigFile, Place
from subluminal.clients.codex import CODEX
from subluminal.clients.document import Document
from subluminal.clients.hooks import editing, trust
from subluminal.clients.hooks.groups import Handler, Known, fault, read_file
from subluminal.clients.hooks.places import CLAUDE_SETTINGS, CODEX_HOOKS, config_toml
from subluminal.clients.hooks.switches import (
    ManagedFiles,
    Switch,
    claude_switches,
    codex_switches,
)
from subluminal.clients.hooks.wanted import EVENTS, MATCHER, Wanted
from subluminal.contracts.errors import ClientConfigError


class SurveyedHooks(msgspec.Struct):
    """Of one client. Lists hold events; `untrusted` only those of Codex, with why."""

    client: str
    paths: list[str] = []
    installed: list[str] = []
    missing: list[str] = []
    outdated: list[str] = []
    untrusted: dict[str, str] = {}
    programs: list[str] = []  # that our hooks run and that are not there
    switches: list[Switch] = []
    is_managed: bool = False
    error: str | None = None


def survey_hooks(client: str, place: Place, managed: ManagedFiles | None = None) -> SurveyedHooks:
    managed = managed or ManagedFiles(place)
    found = SurveyedHooks(client)
    known = Known(client)
    if client == CODEX.name:
        _codex(found, place, known)
        found.switches = list(codex_switches(place, managed))
        found.is_managed = _holds_ours(managed.requirements, "toml", known)
    else:
        for file in CLAUDE_SETTINGS.find(place):
            _look(found, CLAUDE_SETTINGS, file, known)
        found.switches = list(claude_switches(place, managed))
        found.is_managed = any(_holds_ours(path, "json", known) for path in managed.all_settings())
    if found.installed or _taken_out(client, known):
        found.missing = [each.event for each in EVENTS[client] if each.event not in found.installed]
    return found


def is_installed(client: str, place: Place) -> bool:
    found = survey_hooks(client, place)
    return bool(found.installed or found.is_managed)


def _taken_out(client: str, known: Known) -> bool:
    """Whether an import put hooks into a file that has none of them now, though nobody restored it."""
    for record in backups.records():
        if record.client == client and record.hooks is not None and record.restored_at is None:
            dialect = "toml" if record.path.endswith(".toml") else "json"
            if not _holds_ours(record.path, dialect, known):
                return True
    return False


def _holds_ours(path: str, dialect: str, known: Known) -> bool:
    try:
        snapshot, text = read_file(path)
        return snapshot is not None and bool(known.ours(editing.read(text, dialect)))
    except ClientConfigError:
        return False


def _look(
    found: SurveyedHooks, client: Client, file: ConfigFile, known: Known
) -> tuple[Document, list[Handler]] | None:
    """Our handlers in one file; what is wrong with them goes into `found`."""
    try:
        _, text = read_file(file.path)
        if not text.strip("\ufeff \t\r\n"):
            return None
        document = editing.read(text, client.dialect)
        ours = known.ours(document)
    except ClientConfigError as error:
        if client.name == CODEX.name:
            found.error = f"{file.path}: {error}"
        return None
    if ours:
        found.paths = [*found.paths, file.path]
        odd = fault(document, client.name)
        found.error = f"{file.path}: {odd}" if odd is not None else found.error
    wanted = {each.event: each for each in EVENTS[client.name]}
    for handler in ours:
        _look_at(found, document, handler, wanted.get(handler.event.key), known)
    return document, ours


def _look_at(found: SurveyedHooks, document: Document, handler: Handler, wanted: Wanted | None, known: Known) -> None:
    event = handler.event.key
    found.installed = list(dict.fromkeys([*found.installed, event]))
    matcher = handler.group.get("matcher")
    timeout = handler.node.get("timeout")
    is_current = (
        handler.command == known.current.get(event)
        and (matcher is None or matcher.value in ("", MATCHER))
        and wanted is not None
        and timeout is not None
        and document.raw(timeout) == str(wanted.timeout)
    )
    if not is_current:
        found.outdated = list(dict.fromkeys([*found.outdated, event]))
    for path in _programs(handler.command or "", found.client):
        if not os.access(path, os.X_OK) and path not in found.programs:
            found.programs = [*found.programs, path]


def _programs(command: str, client: str) -> list[str]:
    """The files that a command needs to start: all that stand before the name of the client."""
    try:
        words = shlex.split(command)
    except ValueError:
        return []
    head = words[: words.index(client)] if client in words else []
    return [word for word in head if os.path.isabs(word)]


def _codex(found: SurveyedHooks, place: Place, known: Known) -> None:
    config = config_toml(place)
    states = _states(config.path)
    for client, file in [(CODEX, config), *((CODEX_HOOKS, each) for each in CODEX_HOOKS.find(place))]:
        looked = _look(found, client, file, known)
        for handler in looked[1] if looked is not None else ():
            assert looked is not None
            wanted = trust.trust_of(handler, looked[0], trust.called(file.path, place))
            why = _distrust(states.get(wanted.key), wanted.hash)
            if why is not None:
                found.untrusted = {**found.untrusted, handler.event.key: why}


def _states(path: str) -> dict[str, tuple[str | None, bool]]:
    try:
        return trust.stated(editing.read(read_file(path)[1], "toml"))
    except ClientConfigError:
        return {}


def _distrust(state: tuple[str | None, bool] | None, wanted: str) -> str | None:
    if state is None or state[0] is None:
        return "not trusted"
    if state[0] != wanted:
        return "changed since it was trusted"
    return None if state[1] else "switched off"
