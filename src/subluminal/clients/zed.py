"""Zed: `settings.json` (comments allowed); older files nest the program as `command.path`."""

from __future__ import annotations

from subluminal.clients.base import Client, ConfigFile, Place


def _files(place: Place) -> list[ConfigFile]:
    return [
        ConfigFile(place.in_config("zed", "settings.json"), "user"),
        *(ConfigFile(path, "project") for path in place.in_project(".zed", "settings.json")),
    ]


ZED = Client("zed", "Zed", _files, (("context_servers",),))
