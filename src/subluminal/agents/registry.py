"""The agents that can be run, by the name a user gives them."""

from __future__ import annotations

from subluminal.agents.base import Backend
from subluminal.agents.claude_code import ClaudeCode
from subluminal.agents.codex import Codex
from subluminal.agents.generic import Generic

BACKENDS: dict[str, type[Backend]] = {"claude": ClaudeCode, "codex": Codex, "generic": Generic}
