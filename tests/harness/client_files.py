"""A user's home with agent clients' configuration files in it, for tests of import and restore."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from subluminal.clients.base import Client, ConfigFile, Entry, Place
from subluminal.clients.document import Document, decode
from subluminal.clients.importing import Choice, import_file
from subluminal.clients.registry import CLIENTS
from subluminal.clients.report import FileReport
from subluminal.clients.restoring import restore_file

CORPUS = Path(__file__).parent.parent / "fixtures" / "client_configs"
SUB = "/opt/subluminal/bin/sub"
_VARIABLES = ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "XDG_CONFIG_HOME", "OPENCODE_CONFIG")


class ClientHome:
    """HOME, SUB_HOME and a repository to stand in, all below one temporary directory."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.home = root / "home"
        self.sub_home = root / "home" / ".subluminal"
        self.project = root / "home" / "code" / "project"
        (self.project / ".git").mkdir(parents=True)
        self.choice = Choice()
        for name in _VARIABLES:
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("HOME", str(self.home))
        monkeypatch.setenv("SUB_HOME", str(self.sub_home))
        monkeypatch.chdir(self.project)

    def file_of(self, client: str, scope: str = "user") -> ConfigFile:
        """The first place in which the client looks."""
        return next(file for file in CLIENTS[client].find(Place()) if file.scope == scope)

    def write(self, client: str, data: bytes | str, scope: str = "user") -> Path:
        path = Path(self.file_of(client, scope).path)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data.encode() if isinstance(data, str) else data)
        return path

    def imported(self, client: str, scope: str = "user", sub: str = SUB, **options: Any) -> FileReport:
        report = import_file(CLIENTS[client], self.file_of(client, scope), sub, self.choice, **options)
        assert report is not None, "there is no file to import"
        return report

    def restored(self, client: str, scope: str = "user", **options: bool) -> FileReport:
        report = restore_file(CLIENTS[client], self.file_of(client, scope), self.choice, **options)
        assert report is not None, "there is no file to restore"
        return report

    def leftovers(self) -> list[str]:
        """Temporary files that should not be there."""
        return [name for _, _, names in os.walk(self.home) for name in names if name.endswith(".new")]


def entries(client: Client, data: bytes, scope: str = "user") -> tuple[Document, list[Entry]]:
    document = Document(decode(data), client.dialect)
    return document, client.entries(document, scope)
