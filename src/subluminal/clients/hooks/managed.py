"""Hooks that users cannot take out: what an administrator puts where the clients look first. Printed, never written."""

from __future__ import annotations

import json
from typing import NamedTuple

from subluminal.clients.base import Place
from subluminal.clients.hooks.editing import inline
from subluminal.clients.hooks.wanted import EVENTS, commands_of, hooks_of

CLAUDE_MANAGED = {"darwin": "/Library/Application Support/ClaudeCode/managed-settings.json"}
CODEX_REQUIREMENTS = "/etc/codex/requirements.toml"


class Managed(NamedTuple):
    """A file with all that is to stand in it, and what to know about it."""

    client: str
    path: str
    content: str
    advice: list[str]


def managed_settings(place: Place) -> str:
    return CLAUDE_MANAGED.get(place.platform, "/etc/claude-code/managed-settings.json")


def managed_hooks(client: str, place: Place) -> Managed:
    commands = commands_of(client)
    advice = [
        "Nothing was written. Put this into the file as root, and join it with what is there already.",
        f"Every user of this machine runs its commands, so that what they name must be there for all of them:"
        f" {commands['PreToolUse']}",
    ]
    if client == "codex":
        advice.append("The line hooks = true keeps a user from switching hooks off (features.hooks).")
        return Managed(client, CODEX_REQUIREMENTS, _requirements(commands), advice)
    content = json.dumps({"hooks": hooks_of(client)}, indent=2, ensure_ascii=False) + "\n"
    advice.append("claude --bare runs without hooks all the same, managed ones too.")
    return Managed(client, managed_settings(place), content, advice)


def _requirements(commands: dict[str, str]) -> str:
    lines = ["[features]", "hooks = true"]
    for wanted in EVENTS["codex"]:
        group = wanted.group(commands[wanted.event])
        lines += ["", f"[[hooks.{wanted.event}]]", *(f"{key} = {inline(value)}" for key, value in group.items())]
    return "\n".join(lines) + "\n"
