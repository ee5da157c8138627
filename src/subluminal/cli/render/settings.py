"""A change of a client's settings, in words."""

from __future__ import annotations

from typing import Any


def settings_told(settings: dict[str, Any]) -> str:
    where = settings.get("path") or settings["source"]
    kept = "refused, the session keeps those it had" if settings["refused"] else "taken over by the client"
    return f"settings changed while the client ran ({where}): {kept}"


def promote_told(promote: dict[str, Any]) -> str:
    where = f" In {promote['file']}." if promote.get("file") else ""
    return f"{promote['by']} promoted call {promote['call_id']}. {promote['summary']}{where}"


def changes_told(tools: dict[str, Any]) -> str:
    """Of `tools_seen`: what has changed; nothing where everything was merely new."""
    changed = [item for item in tools["items"] if item["state"] in ("changed", "quarantined")]
    if not changed:
        return ""
    names = ", ".join(f"{tools['server_name']}/{item['name'] or item['kind']}" for item in changed[:3])
    more = f" and {len(changed) - 3} more" if len(changed) > 3 else ""
    held = " (quarantined)" if any(item["state"] == "quarantined" for item in changed) else ""
    return f"what a server says has changed: {names}{more}{held}"
