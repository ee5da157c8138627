"""`sub agent`: agent programs, and their events."""

from __future__ import annotations

from subluminal.cli.options import Group, Table

COMMANDS: Table = {
    "kinds": ("subluminal.cli.agents.kinds", "KINDS", "List the agents that can be run, and what each can report."),
    "run": ("subluminal.cli.agents.agent", "run_command", "Run an agent with one prompt."),
}

AGENT = Group("agent", COMMANDS, "Run an agent and read its events.")
