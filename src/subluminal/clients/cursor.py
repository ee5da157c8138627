"""Cursor: `mcp.json` of the user and of the project."""

from __future__ import annotations

from subluminal.clients.base import Client, ConfigFile, Place


def _files(place: Place) -> list[ConfigFile]:
    return [
        ConfigFile(place.at_home(".cursor", "mcp.json"), "user"),
        *(ConfigFile(path, "project") for path in place.in_project(".cursor", "mcp.json")),
    ]


CURSOR = Client("cursor", "Cursor", _files, (("mcpServers",),))
