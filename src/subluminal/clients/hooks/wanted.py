"""Which events of which client are asked for, and how one entry is written.

Ends of calls are needed as well as their beginnings; the session's own events tell the judge when to begin and end.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from subluminal.adapters.hook.command import TIMEOUT_S, hook_command

# An empty matcher and `*` both mean every tool; clients show the star.
MATCHER = "*"
# Codex cuts the timeout of this event to three seconds, and complains of a longer one.
CODEX_SESSION_END_S = 3


class Wanted(NamedTuple):
    """A hook on one event."""

    event: str
    timeout: int = TIMEOUT_S

    def handler(self, command: str) -> dict[str, Any]:
        return {"type": "command", "command": command, "timeout": self.timeout}

    def group(self, command: str) -> dict[str, Any]:
        return {"matcher": MATCHER, "hooks": [self.handler(command)]}


EVENTS: dict[str, tuple[Wanted, ...]] = {
    "claude": (
        Wanted("PreToolUse"),
        Wanted("PostToolUse"),
        Wanted("PostToolUseFailure"),
        Wanted("PostToolBatch"),
        Wanted("SessionStart"),
        Wanted("SessionEnd"),
        Wanted("Stop"),
        Wanted("SubagentStop"),
        Wanted("ConfigChange"),
    ),
    "codex": (
        Wanted("PreToolUse"),
        Wanted("PostToolUse"),
        Wanted("SessionStart"),
        Wanted("SessionEnd", CODEX_SESSION_END_S),
        Wanted("Stop"),
        Wanted("SubagentStop"),
    ),
}


def commands_of(client: str) -> dict[str, str]:
    """Event -> the command of its hook."""
    return {wanted.event: hook_command(client, event=wanted.event) for wanted in EVENTS[client]}


def hooks_of(client: str) -> dict[str, list[dict[str, Any]]]:
    """The whole `hooks` table of a file that has no others."""
    commands = commands_of(client)
    return {wanted.event: [wanted.group(commands[wanted.event])] for wanted in EVENTS[client]}
