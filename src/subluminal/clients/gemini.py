"""Gemini CLI: `settings.json` (comments allowed) of the user and of the project."""

from __future__ import annotations

from subluminal.clients.base import Client, ConfigFile, Place


def _files(place: Place) -> list[ConfigFile]:
    return [
        ConfigFile(place.at_home(".gemini", "settings.json"), "user"),
        *(ConfigFile(path, "project") for path in place.in_project(".gemini", "settings.json")),
    ]


GEMINI = Client("gemini", "Gemini CLI", _files, (("mcpServers",),))
