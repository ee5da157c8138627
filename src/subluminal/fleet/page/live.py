"""The live list of calls over a fleet: the messages of `ledger.http.changes`, found by asking the collector each second
what has arrived. Only while a page looks.

A page's place is a moment of the collectors' clocks. Each look reaches back a few seconds before it, for what was
received and not yet committed; of what comes twice, only what has changed is told.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import msgspec

from subluminal.contracts.filters import Filters
from subluminal.fleet.page.cursors import shown
from subluminal.fleet.page.record import FleetRecord
from subluminal.fleet.page.threads import Threads
from subluminal.ledger.http.answers import json_text
from subluminal.ledger.read.ledger import Row

LOOK_S = 1.0
# Between two looks while more arrives than anybody could read: then the page reads its newest calls anew.
FLOOD_S = 5.0
# A commit takes some tenths of a second, up to a few seconds where collectors are busy; their clocks may differ, too.
BACK_MS = 5_000
# A page that was away for longer begins anew.
MOST_BEHIND_MS = 600_000
# A page follows one list; more than this many are never looked at together.
_AT_ONCE = 8


class Live:
    def __init__(self, record: FleetRecord) -> None:
        self._record = record
        self._threads = Threads(_AT_ONCE)
        self.pages = 0

    async def follow(self, filters: Filters, after: int | None) -> AsyncIterator[str]:
        """Messages for one page, without end. The first says where it stands, or that it must begin anew."""
        newest = (await self._look(filters, None))["now_ms"]
        reset = after is not None and not newest - MOST_BEHIND_MS <= after <= newest + BACK_MS
        place = newest if after is None or reset else after
        yield _text(place, reset=reset)
        told = _Told()
        while True:
            found = await self._look(filters, max(0, place - BACK_MS))
            place = found["now_ms"]
            if found["more"]:
                yield _text(place, reset=True)
                await asyncio.sleep(FLOOD_S)
                continue
            rows, gone, runs = told.news(found)
            if rows or gone or runs:
                yield _text(place, rows, gone, runs)
            await asyncio.sleep(LOOK_S)

    async def _look(self, filters: Filters, since_ms: int | None) -> Row:
        return await self._threads.run(lambda: self._record.ask(lambda fleet: fleet.changes(filters, since_ms)))


class _Told:
    """What the last look has found: only that can come again."""

    def __init__(self) -> None:
        self._rows: dict[str, bytes] = {}
        self._gone: set[str] = set()
        self._runs: dict[str, int] = {}

    def news(self, found: Row) -> tuple[list[Row], list[str], list[str]]:
        rows = {row["cursor"]: (row, msgspec.json.encode(row)) for row in found["rows"]}
        new = [row for cursor, (row, text) in rows.items() if self._rows.get(cursor) != text]
        gone = [cursor for cursor in found["gone"] if cursor not in self._gone]
        runs = [run_id for run_id, ms in found["runs"].items() if self._runs.get(run_id, -1) < ms]
        self._rows = {cursor: text for cursor, (_, text) in rows.items()}
        self._gone, self._runs = set(found["gone"]), found["runs"]
        return [{**row, "cursor": shown(row["cursor"])} for row in new], [*map(shown, gone)], runs


def _text(
    place: int, rows: list[Row] | None = None, gone: list[str] | None = None, runs: list[str] | None = None, *,
    reset: bool = False,
) -> str:  # fmt: skip
    return json_text({"after": place, "rows": rows or [], "gone": gone or [], "runs": runs or [], "reset": reset})
