"""Windsurf: one file for the user."""

from __future__ import annotations

from subluminal.clients.base import Client, ConfigFile, Place


def _files(place: Place) -> list[ConfigFile]:
    return [ConfigFile(place.at_home(".codeium", "windsurf", "mcp_config.json"), "user")]


WINDSURF = Client("windsurf", "Windsurf", _files, (("mcpServers",),))
