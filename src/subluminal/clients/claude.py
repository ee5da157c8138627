"""Claude Code (`~/.claude.json` with user and local scope, `.mcp.json` with project scope) and Claude Desktop.

Claude Code reads plain JSON only: a comment in `~/.claude.json` makes it replace the whole file. It rewrites that file
on every run, so a byte-exact restore is possible only until its next start; then entries are restored one by one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from subluminal.clients.base import Client, ConfigFile, Place, Servers, below, reach
from subluminal.clients.document import Document


def _files(place: Place) -> list[ConfigFile]:
    base = place.environ.get("CLAUDE_CONFIG_DIR") or place.home
    managed = "/Library/Application Support/ClaudeCode" if place.platform == "darwin" else "/etc/claude-code"
    return [
        ConfigFile(os.path.join(base, ".claude.json"), "user"),
        *(ConfigFile(path, "project") for path in place.in_project(".mcp.json")),
        ConfigFile(os.path.join(managed, "managed-mcp.json"), "managed", default=False),
    ]


def _tables(document: Document, scope: str) -> Iterator[Servers]:
    yield from below("mcpServers")(document, scope)
    if scope != "user":
        return
    for projects in reach(document.root, ("projects",)):
        for project in projects.members:
            for table in reach(project.node, ("mcpServers",)):
                yield Servers("local", ("projects", project.key, "mcpServers"), table)


def _desktop_files(place: Place) -> list[ConfigFile]:
    return [ConfigFile(place.in_app_data("Claude", "claude_desktop_config.json"), "user")]


CLAUDE = Client(
    "claude",
    "Claude Code",
    _files,
    (("mcpServers",), ("projects", "*", "mcpServers")),
    tables=_tables,
    word="claude",
    dialect="json",
)
CLAUDE_DESKTOP = Client(
    "claude-desktop", "Claude Desktop", _desktop_files, (("mcpServers",),), word="claude", dialect="json", http=None
)
