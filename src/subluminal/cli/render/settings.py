"""A change of a client's settings, in words."""

from __future__ import annotations

from typing import Any


def settings_told(settings: dict[str, Any]) -> str:
    where = settings.get("path") or settings["source"]
    kept = "refused, the session keeps those it had" if settings["refused"] else "taken over by the client"
    return f"settings changed while the client ran ({where}): {kept}"
