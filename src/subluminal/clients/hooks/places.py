"""The files in which hooks of a client stand, as clients' files of a kind of their own: they have no servers.

Codex reads `hooks.json` and `[hooks]` of `config.toml` both, and complains of hooks in both: ours go where the user's
are, else into `hooks.json`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from subluminal.clients.base import Client, ConfigFile, Place, Servers
from subluminal.clients.codex import CODEX
from subluminal.clients.document import Document

USER, PROJECT, LOCAL = "user", "project", "local"
SETTINGS = os.path.join(".claude", "settings.json")
LOCAL_SETTINGS = os.path.join(".claude", "settings.local.json")


def _no_servers(document: Document, scope: str) -> Iterator[Servers]:
    return iter(())


def claude_home(place: Place) -> str:
    return place.environ.get("CLAUDE_CONFIG_DIR") or place.at_home(".claude")


def _settings(place: Place) -> list[ConfigFile]:
    root = place.project_directories()[-1]
    return [
        ConfigFile(os.path.join(claude_home(place), "settings.json"), USER),
        ConfigFile(os.path.join(root, SETTINGS), PROJECT, default=False),
        ConfigFile(os.path.join(root, LOCAL_SETTINGS), LOCAL, default=False),
    ]


def _hooks_json(place: Place) -> list[ConfigFile]:
    return [ConfigFile(os.path.join(os.path.dirname(config_toml(place).path), "hooks.json"), USER)]


def config_toml(place: Place) -> ConfigFile:
    return next(file for file in CODEX.find(place) if file.scope == USER)


CLAUDE_SETTINGS = Client(
    "claude", "Claude Code", _settings, (("hooks",),), _no_servers, word="claude", dialect="json", holds="hooks"
)
CODEX_HOOKS = Client(
    "codex", "Codex", _hooks_json, (("hooks",),), _no_servers, word="codex", dialect="json", holds="hooks"
)
# By the name of the client.
WITH_HOOKS: dict[str, Client] = {client.name: client for client in (CLAUDE_SETTINGS, CODEX_HOOKS)}


def is_used(client: str, place: Place) -> bool:
    """Whether the client has anything here at all."""
    return any(os.path.lexists(path) for path in _traces(client, place))


def _traces(client: str, place: Place) -> list[str]:
    if client == "codex":
        return [os.path.dirname(config_toml(place).path)]
    base = place.environ.get("CLAUDE_CONFIG_DIR") or place.home
    return [claude_home(place), os.path.join(base, ".claude.json")]
