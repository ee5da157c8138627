"""Files of a repository: others have them too, so they are routed when asked for, by a command that all can run."""

from __future__ import annotations

from subluminal.clients.base import Client, ConfigFile
from subluminal.clients.configured import PROJECT
from subluminal.clients.importing import Choice
from subluminal.clients.report import FileReport, ServerReport
from subluminal.clients.survey import survey_file

# Found on everybody's own PATH.
PORTABLE_SUB = "sub"
LEFT = "left"


def command_in(file: ConfigFile, sub: str) -> str:
    """The program that entries of this file shall start."""
    return PORTABLE_SUB if file.scope == PROJECT else sub


def asked_for(client: str) -> str:
    return f"sub import {client} --scope {PROJECT}"


def left_out(client: Client, file: ConfigFile, choice: Choice) -> FileReport | None:
    """The servers of a repository's file that an import would change and passes over; None if there are none."""
    found = survey_file(client, file, None)
    waiting = [
        ServerReport(entry.name, entry.scope, LEFT, None, entry.project)
        for entry in (found.entries if found is not None else ())
        if (not entry.wrapped or entry.options) and (not choice.servers or entry.name in choice.servers)
    ]
    return FileReport(client.name, file.path, file.scope, "unchanged", servers=waiting) if waiting else None
