"""What is drafted: rules, and what has none."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from subluminal.control.suggest.limits.limit import Limit
from subluminal.control.suggest.rule_parts import About, Drafted


class Draft(Struct, eq=False):
    rules: list[Drafted]
    left_out: list[str]  # tools, in words, with the reason
    unlimited: list[str]  # arguments that may be anything
    limits: dict[About, Limit]
    writes: list[tuple[str, str]]
    tools: list[tuple[str, str]]

    def bundle(self, description: str) -> dict[str, Any]:
        return {
            "policy_id": "suggested",
            "version": "1",
            "description": description,
            "mode": "guardrails",
            "defaults": {"decision_on_error": "BLOCK"},
            "selectors": {},
            "rules": [drafted.rule for drafted in self.rules],
        }
