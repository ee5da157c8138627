"""Do the clients on this machine start their servers through us, and does nothing in their files undo it?"""

from __future__ import annotations

import os
import re
import shutil
import time
from typing import TYPE_CHECKING

from subluminal.clients import backups
from subluminal.clients.base import Client, Place
from subluminal.clients.configured import PROJECT, confirm_entry, settings
from subluminal.clients.registry import CLIENTS
from subluminal.clients.restoring import files_to_restore
from subluminal.clients.survey import SurveyedEntry, SurveyedFile, survey_file
from subluminal.doctor.findings import ERROR, NOTE, WARNING, Area, edit_command, quoted
from subluminal.reports.printable import count

if TYPE_CHECKING:
    import subprocess

# Client -> the program that tells its version.
_PROGRAMS = {"claude": "claude", "codex": "codex", "gemini": "gemini", "opencode": "opencode"}
_VERSION_TIMEOUT_S = 5.0
_VERSION = re.compile(r"\d+(?:\.\d+)+[^\s,)]*")


def check_clients(cwd: str, sub: str | None) -> list[Area]:
    place = Place(cwd)
    asked = {name: path for name, program in _PROGRAMS.items() if (path := shutil.which(program)) is not None}
    versions = _versions(asked)
    areas = [_check(client, place, sub, versions.get(client.name)) for client in CLIENTS.values()]
    found = [area for area in areas if area is not None]
    if not found:
        found = [Area("clients", "none found: no client is installed or configured here")]
    return found


def _versions(programs: dict[str, str]) -> dict[str, str]:
    """Of the programs that are installed, all asked at once. Empty: it does not say."""
    if not programs:
        return {}
    import subprocess

    asked: dict[str, subprocess.Popen[bytes] | None] = {}
    for name, path in programs.items():
        null, pipe = subprocess.DEVNULL, subprocess.PIPE
        try:
            asked[name] = subprocess.Popen([path, "--version"], stdin=null, stdout=pipe, stderr=null)
        except OSError:
            asked[name] = None
    deadline = time.monotonic() + _VERSION_TIMEOUT_S
    return {name: _answer(process, deadline) for name, process in asked.items()}


def _answer(process: subprocess.Popen[bytes] | None, deadline: float) -> str:
    import subprocess

    if process is None:
        return ""
    with process:
        try:
            said = process.communicate(timeout=max(0.0, deadline - time.monotonic()))[0]
        except subprocess.TimeoutExpired:
            process.kill()
            return ""
    found = _VERSION.search(said.decode("utf-8", "replace"))
    return found.group() if found else ""


def _check(client: Client, place: Place, sub: str | None, version: str | None) -> Area | None:
    config = settings()
    read = [survey_file(client, file, config) for file in files_to_restore(client, place)]
    files = [file for file in read if file is not None]
    if not files and version is None:
        return None
    area = Area(client.name, facts={"title": client.title, "version": version, "files": files})
    for file in files:
        _check_file(area, client, file, sub)
    entries = [entry for file in files for entry in file.entries]
    routed = sum(entry.wrapped for entry in entries)
    servers = sum(entry.wrapped or entry.transport in ("stdio", "http") for entry in entries)
    name = f"{client.title} {version}" if version else client.title
    area.summary = f"{name}: {routed} of {count(servers, 'server')} routed" if servers else f"{name}: no servers"
    return area


def _check_file(area: Area, client: Client, file: SurveyedFile, sub: str | None) -> None:
    if file.error is not None:
        area.add(ERROR, "unreadable", file.error, edit_command(file.path, file.line))
        return
    imported = [r for r in backups.records() if r.client == client.name and r.path == file.path and not r.restored_at]
    waiting = [entry for entry in file.entries if not entry.wrapped and _can_be_routed(entry)]
    if waiting:
        since = f" since the import of {imported[-1].created_at[:10]}" if imported else ""
        names = ", ".join(entry.name for entry in waiting)
        message = f"{file.path}: not routed{since}: {names}"
        area.add(WARNING, "unwrapped", message, _import_command(client, file))
    for entry in file.entries:
        if entry.transport == "http":
            _check_remote(area, file, entry)
    for entry in file.entries:
        _check_entry(area, client, file, entry, sub)


def _place_of(entry: SurveyedEntry) -> str:
    named = entry.sub or ""
    return named if os.sep in named else shutil.which(named) or named


def _can_be_routed(entry: SurveyedEntry) -> bool:
    return entry.transport == "stdio" or (entry.transport == "http" and entry.stays is None)


def _check_remote(area: Area, file: SurveyedFile, entry: SurveyedEntry) -> None:
    here = f"{file.path}: {entry.name}" + (f" ({entry.address})" if entry.address else "")
    if entry.stays is not None:
        area.add(NOTE, "http", f"{here} is not governed: it {entry.stays}", entry.login)
    elif entry.wrapped and entry.login is not None:
        message = f"{here} has neither credentials nor a login; its server may want one"
        area.add(NOTE, "no-login", message, entry.login)
    for name in entry.unset:
        own = name.startswith("SUB_")
        where = "in its entry" if own else "in this shell, or the client does not pass it on"
        area.add(ERROR if own else WARNING, "variable-missing", f"{here}: {name} is not set {where}")


def _check_entry(area: Area, client: Client, file: SurveyedFile, entry: SurveyedEntry, sub: str | None) -> None:
    here = f"{file.path}: {entry.name}"
    if entry.wrapped and not entry.sub_exists:
        message = f"{here} is started by {entry.sub}, which is not there: the client has lost this server"
        area.add(ERROR, "sub-missing", message, _import_command(client, file))
    elif entry.wrapped and sub is not None and os.path.realpath(_place_of(entry)) != os.path.realpath(sub):
        message = f"{here} is started by another installation, {entry.sub}"
        area.add(WARNING, "other-sub", message, _import_command(client, file))
    if entry.wrapped and entry.server_name != entry.name:
        message = f"{here} is judged and recorded under another name, {entry.server_name!r}"
        area.add(ERROR, "other-name", message, _import_command(client, file))
    if entry.problem is not None:
        area.add(WARNING, "odd-entry", f"{here} {entry.problem}", edit_command(file.path))
    if entry.steering:
        # Whoever wrote the repository must not choose our policy; in the user's own file it is likely meant.
        ours = entry.wrapped or any(name.startswith("SUB_") for name in entry.steering)
        level = ERROR if entry.scope == PROJECT and ours else WARNING
        message = f"{here} sets {', '.join(entry.steering)}, which steers Subluminal itself"
        area.add(level, "steering", message, edit_command(file.path))
    if entry.options and entry.scope == PROJECT:
        message = f"{here} gives the shim {', '.join(entry.options)}, which is not for a repository to decide"
        area.add(ERROR, "steering", message, _import_command(client, file))
    if entry.withheld is not None:
        # A repository that borrows the name of a server is looked at first: to confirm it is no repair.
        theirs = entry.scope == PROJECT
        message = f"{here} gets none of the secrets bound to its name: {entry.withheld}"
        mend = confirm_entry(entry.name, entry.scope) + (" --dry-run" if theirs else "")
        area.add(WARNING if theirs else ERROR, "unconfirmed", message, mend)
    for literal in entry.literals:
        message = f"{here}: {literal.variable} looks like a secret written out"
        area.add(WARNING, "literal-secret", message, quoted("sub", "secrets", "adopt", entry.name, literal.variable))


def _import_command(client: Client, file: SurveyedFile) -> str:
    """A file that is not found from here is named; what others have too is changed only when asked for."""
    found = {known.path for known in client.find(Place())}
    command = ["sub", "import", client.name]
    if file.path not in found:
        command += ["--file", file.path]
    elif file.scope in ("managed", PROJECT):
        command += ["--scope", file.scope]
    return quoted(*command)
