"""What is known here of the tool that `sub policy explain` is asked about: its classes, and its input schema."""

from __future__ import annotations

from typing import Any

from subluminal.cli.tools.survey import Row, survey
from subluminal.contracts.errors import ToolsError
from subluminal.contracts.vocabulary import CHANGED, TOOL_NOT_LISTED, UNJUDGED_ARGS
from subluminal.core.engine.faults import Unavailable
from subluminal.producer.schemas import InputSchemas
from subluminal.surface.items import TOOL


class KnownTool:
    """As it was seen last, by whatever command its server was started; `told` says it in words."""

    def __init__(self, server_name: str, tool_name: str) -> None:
        self._row: Row | None = None
        self._fault = ""
        self.classes: frozenset[str] = frozenset()
        self.told = ""
        try:
            rows = [row for row in survey() if (row.server.server_name, row.known.name) == (server_name, tool_name)]
        except ToolsError as fault:
            self._fault = str(fault)
            self.classes = frozenset((CHANGED,))
            self.told = f"{fault}; every tool counts as changed until it is mended"
            return
        tools = [row for row in rows if row.known.kind == TOOL]
        if tools:
            self._row = row = max(tools, key=lambda each: each.now.last_seen)
            self.classes = frozenset(row.classes)
            words = ", ".join(sorted(row.classes))
            self.told = f"{row.state} here, with the classes {words} (sub tools show {row.name})"

    def breaks_schema(self, tool_name: str, args: dict[str, Any], which: str) -> str | None:
        if self._fault:
            raise Unavailable(UNJUDGED_ARGS, "a lock of tools cannot be read, and it may pin this one")
        row = self._row
        pins = [] if row is None else [pin for pin in (row.user, *row.repository) if pin is not None]
        if not pins and which != "listed":
            return None
        if row is None:
            raise Unavailable(TOOL_NOT_LISTED)
        schemas = InputSchemas()
        schemas.learn((tool_name, which), pins, row.now)
        return schemas.first_error((tool_name, which), args)
