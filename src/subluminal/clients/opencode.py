"""opencode: `opencode.json` or `.jsonc`; an entry's command is one array that holds the program and its arguments."""

from __future__ import annotations

from subluminal.clients.base import Client, ConfigFile, Place

_NAMES = ("opencode.json", "opencode.jsonc")


def _files(place: Place) -> list[ConfigFile]:
    named = place.environ.get("OPENCODE_CONFIG")
    return [
        *(ConfigFile(place.in_config("opencode", name), "user") for name in _NAMES),
        *([ConfigFile(named, "user")] if named else []),
        *(ConfigFile(path, "project") for name in _NAMES for path in place.in_project(name)),
    ]


OPENCODE = Client("opencode", "opencode", _files, (("mcp",),), env_key="environment", array_command=True)
