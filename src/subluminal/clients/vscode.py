"""VS Code: `mcp.json` (comments allowed) in the workspace and beside the user's settings."""

from __future__ import annotations

from subluminal.clients.base import Client, ConfigFile, Place


def _files(place: Place) -> list[ConfigFile]:
    return [
        ConfigFile(place.in_app_data("Code", "User", "mcp.json"), "user"),
        *(ConfigFile(path, "project") for path in place.in_project(".vscode", "mcp.json")),
    ]


VSCODE = Client("vscode", "VS Code", _files, (("servers",),))
