"""Which policies are in force here, how each was found, and why one is not."""

from __future__ import annotations

import os
import stat
from typing import Any

from subluminal.contracts.errors import PolicyError
from subluminal.doctor.findings import ERROR, Area, quoted
from subluminal.policy.sources import PolicySource, find_policies


def check_policy(cwd: str) -> Area:
    area = Area("policy", facts={"sources": []})
    told = [_check(area, source) for source in find_policies(os.environ, cwd)]
    area.summary = "; ".join(text for text in told if text)
    return area


def _check(area: Area, source: PolicySource) -> str:
    where = source.path or source.origin
    facts: dict[str, Any] = {"origin": source.origin, "path": source.path, "error": None}
    area.facts["sources"].append(facts)
    try:
        snapshot = source.load()
    except PolicyError as error:
        facts["error"] = str(error)
        fix = "sub policy lint " + quoted(source.path) if source.path else f"unset {source.origin}"
        if source.origin in ("fleet", "stop"):
            fix = "sub fleet keep --once"
        message = f"{source.origin} policy does not load, so every tool call is refused: {error}"
        area.add(ERROR, "policy-invalid", message, fix)
        return f"not loaded ({source.origin}: {where}), so every call is refused"
    for key in ("policy_id", "version", "mode", "policy_hash"):
        facts[key] = snapshot[key]
    facts["rules"] = len(snapshot["rules"])
    _check_rights(area, source)
    if source.origin == "builtin":
        return "none yet: every call is allowed and recorded (`sub policy init` writes one)"
    name = f"{snapshot['policy_id']} {snapshot['version']}, {snapshot['mode']}"
    return f"{name} ({source.origin}: {where})" if source.path else f"{name} ({where})"


def _check_rights(area: Area, source: PolicySource) -> None:
    """The user's own file is looked at with the home directory."""
    if source.path is None or source.origin in ("user", "repository"):
        return
    try:
        mode = stat.S_IMODE(os.stat(source.path).st_mode)
    except OSError:
        return
    if mode & 0o022:
        message = f"{source.path} can be changed by others ({mode:04o})"
        area.add(ERROR, "policy-writable", message, quoted("chmod", "go-w", source.path))
