"""Clients that keep one table of servers in one file of the user and, most of them, in one of each project.

All of them allow comments. Older files of Zed nest the program as `command.path`.
"""

from __future__ import annotations

from collections.abc import Callable

from subluminal.clients.base import Client, ConfigFile, HttpFields, Place


def _files(user: Callable[[Place], str], *project: str) -> Callable[[Place], list[ConfigFile]]:
    def files(place: Place) -> list[ConfigFile]:
        projects = place.in_project(*project) if project else []
        return [ConfigFile(user(place), "user"), *(ConfigFile(path, "project") for path in projects)]

    return files


_cursor = _files(lambda place: place.at_home(".cursor", "mcp.json"), ".cursor", "mcp.json")
_gemini = _files(lambda place: place.at_home(".gemini", "settings.json"), ".gemini", "settings.json")
_vscode = _files(lambda place: place.in_app_data("Code", "User", "mcp.json"), ".vscode", "mcp.json")
_windsurf = _files(lambda place: place.at_home(".codeium", "windsurf", "mcp_config.json"))
_zed = _files(lambda place: place.in_config("zed", "settings.json"), ".zed", "settings.json")

CURSOR = Client("cursor", "Cursor", _cursor, (("mcpServers",),))
GEMINI = Client(
    "gemini",
    "Gemini CLI",
    _gemini,
    (("mcpServers",),),
    http=HttpFields(
        urls=(("httpUrl", "auto"), ("url", "sse")),
        logins=("oauth", "authProviderType", "targetAudience", "targetServiceAccount"),
    ),
)
VSCODE = Client("vscode", "VS Code", _vscode, (("servers",),))
WINDSURF = Client(
    "windsurf",
    "Windsurf",
    _windsurf,
    (("mcpServers",),),
    http=HttpFields(urls=(("serverUrl", "auto"), ("url", "auto"))),
)
ZED = Client("zed", "Zed", _zed, (("context_servers",),))
