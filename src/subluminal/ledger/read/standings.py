"""How tools stood when they were called, as far as the record tells: by what `tools_seen` has told of them.

What was told in the run itself tells all but `shadowed`. What an earlier run was told is still so of its text; and that
nothing was told since means that the tool was neither new nor changed. Whether somebody pinned it meanwhile is not on
record.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import TYPE_CHECKING

from subluminal.contracts.moments import epoch_ms
from subluminal.contracts.vocabulary import (
    CHANGED,
    CHANGED_FOR_USER,
    HIDDEN_TEXT,
    INJECTION_LIKE,
    NEW,
    SHADOWED,
    SURFACE_CLASSES,
)
from subluminal.surface.items import INSTRUCTIONS, TOOL

if TYPE_CHECKING:
    import sqlite3

    from subluminal.contracts.events import ToolsSeen
    from subluminal.contracts.history import RecordedCall

    # When, in which run, and which classes.
    _Told = tuple[int, str, frozenset[str]]

_OF_TEXT = frozenset((HIDDEN_TEXT, INJECTION_LIKE))
_IN_ITS_RUN = SURFACE_CLASSES - {SHADOWED}
_LATER = _OF_TEXT | {NEW, CHANGED, CHANGED_FOR_USER}


class Standings:
    def __init__(self) -> None:
        self._told: dict[tuple[str, str, str], list[_Told]] = {}

    @classmethod
    def of_ledger(cls, connection: sqlite3.Connection) -> Standings:
        made = cls()
        sql = "SELECT server_name, kind, name, at, run_id, classes FROM tool_versions WHERE kind IN (?, ?)"
        for server_name, kind, name, at, run_id, classes in connection.execute(sql, (TOOL, INSTRUCTIONS)):
            made._add(server_name, kind, name, epoch_ms(at), run_id, classes.split())
        return made

    def take(self, event: ToolsSeen) -> None:
        for item in event.tools.items:
            if item.kind in (TOOL, INSTRUCTIONS):
                self._add(event.tools.server_name, item.kind, item.name, epoch_ms(event.ts), event.run_id, item.classes)

    def _add(self, server: str, kind: str, name: str, at_ms: int, run_id: str, classes: Iterable[str]) -> None:
        self._told.setdefault((server, kind, name), []).append((at_ms, run_id, frozenset(classes)))

    def tell(self, run_id: str, calls: Iterable[RecordedCall]) -> None:
        """Write down with each call how its tool stood, and of which classes that can be said."""
        for told in self._told.values():
            told.sort(key=lambda each: each[0])
        for call in calls:
            last = self._last((call.server_name, TOOL, call.tool_name), call.at_ms)
            if last is None:
                continue
            said = self._last((call.server_name, INSTRUCTIONS, ""), call.at_ms)
            of_server = _OF_TEXT & said[2] if said is not None else frozenset()
            call.stood_told = _IN_ITS_RUN if last[1] == run_id else _LATER
            call.stood = (last[2] if last[1] == run_id else last[2] & _OF_TEXT) | of_server

    def _last(self, key: tuple[str, str, str], at_ms: int) -> _Told | None:
        told = self._told.get(key, [])
        at = bisect_right(told, at_ms, key=lambda each: each[0])
        return told[at - 1] if at else None
