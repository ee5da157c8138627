"""What `sub doctor` has to say: findings with one command each that mends them, gathered by area."""

from __future__ import annotations

import os
import shlex
from typing import Any

import msgspec

ERROR, WARNING, NOTE = "error", "warning", "note"


class Finding(msgspec.Struct):
    """`code` is a stable word for programs; `mend` is one command, or None where only a person can decide.

    `safe`: nothing can be lost by running it unseen, so `sub doctor --fix` does."""

    level: str
    area: str
    code: str
    message: str
    mend: str | None = None
    safe: bool = False


class Area(msgspec.Struct):
    """One line of the list. `summary` says what is well; `facts` are for programs."""

    name: str
    summary: str = ""
    findings: list[Finding] = []
    facts: dict[str, Any] = {}

    def add(self, level: str, code: str, message: str, mend: str | None = None, *, safe: bool = False) -> None:
        self.findings = [*self.findings, Finding(level, self.name, code, message, mend, safe)]

    @property
    def level(self) -> str:
        """The worst of its findings; `ok` without any."""
        levels = {finding.level for finding in self.findings}
        return next((level for level in (ERROR, WARNING) if level in levels), "ok")


def edit_command(path: str, line: int | None = None) -> str:
    """Open a file where the fault is, in the user's own editor."""
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    return f"{editor} {f'+{line} ' if line else ''}{shlex.quote(path)}"


def quoted(*words: str) -> str:
    return " ".join(shlex.quote(word) for word in words)
