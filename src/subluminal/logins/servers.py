"""Where a server is, by its name."""

from __future__ import annotations

import os

from subluminal.contracts.errors import LoginError
from subluminal.host.config import user_settings
from subluminal.logins import kept


def url_of(name: str) -> str | None:
    """`[proxy.servers.NAME] url` of `config.toml`, else the URL of the one login with this name."""
    servers = user_settings(os.environ).get("proxy", {})
    servers = servers.get("servers", {}) if isinstance(servers, dict) else {}
    server = servers.get(name) if isinstance(servers, dict) else None
    url = server.get("url") if isinstance(server, dict) else None
    if isinstance(url, str):
        return url
    known = [note.url for note in kept.notes() if note.name == name]
    if len(known) > 1:
        raise LoginError(
            f"there are logins for {name} at several URLs", hint=f"Choose one with --url: {', '.join(known)}"
        )
    return known[0] if known else None
