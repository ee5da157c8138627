"""Which calls and events `sub tail` shows. A condition on the decision holds a call back until it is decided."""

from __future__ import annotations

from typing import Any

from subluminal.cli.options import Values


class Wanted:
    def __init__(self, runs: list[str], values: Values) -> None:
        self._runs = frozenset(runs)
        self._servers = values["server"]
        self._tools = values["tool"]
        self._decisions = values["decision"]

    def run(self, run_id: str) -> bool:
        return not self._runs or run_id in self._runs

    def call(self, row: dict[str, Any]) -> bool:
        return (
            (not self._decisions or row["decision"] in self._decisions)
            and _matches(self._servers, row["server_name"])
            and _matches(self._tools, row["tool_name"])
        )

    def event(self, event: dict[str, Any]) -> bool:
        """With conditions on calls, only events that speak of such a call by themselves."""
        if not (self._servers or self._tools or self._decisions):
            return True
        call = event.get("call") or {}
        action = (event.get("decision") or {}).get("action")
        return (
            (not self._decisions or action in self._decisions)
            and _matches(self._servers, call.get("server_name"))
            and _matches(self._tools, call.get("tool_name"))
        )


def _matches(patterns: tuple[str, ...], name: str | None) -> bool:
    if not patterns:
        return True
    from fnmatch import fnmatchcase

    return name is not None and any(fnmatchcase(name, pattern) for pattern in patterns)
