"""One difference between two policies, and how much it matters to whoever reviews it.

A change that lets through what was stopped is `critical`, one whose effect cannot be told is `warn`, and one that
stops more or only changes words is `info`. In doubt a change loosens: a reviewer who is called once too often loses a
minute, one who is not called loses the rule.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

LOOSENS = "loosens"
UNCLEAR = "unclear"
TIGHTENS = "tightens"
NEUTRAL = "neutral"

SEVERITY = {LOOSENS: "critical", UNCLEAR: "warn", TIGHTENS: "info", NEUTRAL: "info"}
SEVERITIES = ("info", "warn", "critical")


class Change(NamedTuple):
    """`change` is added, removed, changed or moved; `path` says what, within the rule if `rule_id` is given."""

    direction: str
    change: str
    rule_id: str | None
    path: str
    old: Any
    new: Any
    summary: str

    @property
    def severity(self) -> str:
        return SEVERITY[self.direction]

    def as_dict(self) -> dict[str, Any]:
        return {"severity": self.severity, **self._asdict()}


def worst(directions: Iterable[str]) -> str:
    """What stands for several effects of one change."""
    found = set(directions)
    return next((d for d in (LOOSENS, UNCLEAR, TIGHTENS) if d in found), NEUTRAL)


def opposite(direction: str) -> str:
    return {LOOSENS: TIGHTENS, TIGHTENS: LOOSENS}.get(direction, direction)
