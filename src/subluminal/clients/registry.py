"""Every client we know, by the name a user types."""

from __future__ import annotations

from subluminal.clients.base import Client
from subluminal.clients.claude import CLAUDE, CLAUDE_DESKTOP
from subluminal.clients.codex import CODEX
from subluminal.clients.opencode import OPENCODE
from subluminal.clients.plain import CURSOR, GEMINI, VSCODE, WINDSURF, ZED
from subluminal.contracts.errors import UsageError

CLIENTS: dict[str, Client] = {
    client.name: client for client in (CLAUDE, CODEX, CLAUDE_DESKTOP, GEMINI, CURSOR, VSCODE, WINDSURF, OPENCODE, ZED)
}


def client_named(name: str) -> Client:
    try:
        return CLIENTS[name]
    except KeyError:
        raise UsageError(f"no client is called {name!r}", hint="Known clients: " + ", ".join(CLIENTS) + ".") from None
