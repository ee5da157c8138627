"""A user's home in which hooks are installed and taken out again."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

from harness.client_files import SUB, ClientHome
from subluminal.clients.base import Place
from subluminal.clients.hooks.installing import import_hooks
from subluminal.clients.hooks.places import WITH_HOOKS
from subluminal.clients.hooks.restoring import restore_hooks
from subluminal.clients.importing import Choice
from subluminal.clients.registry import CLIENTS
from subluminal.clients.report import FileReport
from subluminal.clients.restoring import files_to_restore, restore_file


class HookHome(ClientHome):
    @property
    def settings(self) -> Path:
        return self.home / ".claude" / "settings.json"

    @property
    def hooks_json(self) -> Path:
        return self.home / ".codex" / "hooks.json"

    @property
    def config_toml(self) -> Path:
        return self.home / ".codex" / "config.toml"

    def put(self, path: Path, text: str) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())
        return path

    def install(self, client: str, *scopes: str, dry_run: bool = False) -> list[FileReport]:
        return import_hooks(client, Place(), Choice(scopes=scopes), sub=SUB, dry_run=dry_run)

    def take_out(self, client: str, *, dry_run: bool = False) -> list[FileReport]:
        """All that `sub restore CLIENT` does."""
        place, choice = Place(), Choice()
        found = [
            restore_file(CLIENTS[client], file, choice, dry_run=dry_run)
            for file in files_to_restore(CLIENTS[client], place)
        ]
        servers = [report for report in found if report is not None and report.status != "unchanged"]
        return [*servers, *restore_hooks(WITH_HOOKS[client], place, choice, dry_run=dry_run)]


def hooks_in(path: Path) -> dict[str, Any]:
    """The `hooks` table of a file, as a client would read it."""
    text = path.read_text(encoding="utf-8-sig")
    values = tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
    found: dict[str, Any] = values.get("hooks", {})
    return found
