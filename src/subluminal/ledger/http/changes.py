"""The live list of calls: what every page that looks is told, and how it goes on after a pause.

One thread reads for all pages, with one connection. A page is a place in the order of arrival and its filters: nothing
is held for it, a slow one falls behind in the database, and what it then hears is each call as it is now. Pages at the
same place with the same filters, which is most of them most of the time, share one reading: one that is a little old
does no harm, because what came after it comes next.

The daemon says when it has committed (`committed`); what comes within `GATHER_S` is told together. While it takes in
more than anybody could read, pages look less often: they must not slow it down, and who falls far behind begins anew at
the newest.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple, TypeVar

from subluminal.contracts.filters import Filters
from subluminal.ledger.http.answers import json_text
from subluminal.ledger.read.changed import Sieve, Touched, touched
from subluminal.ledger.read.ledger import Ledger, open_ledger

GATHER_S = 0.025
# A page that was away for longer than this many places (at most as many events) asks for its pages again.
MOST_BEHIND = 50_000
# Between two looks while events come in faster than one look takes them: so they take a fiftieth of the daemon's time.
FLOOD_S = 1.0
MOST_BEHIND_LIVE = 10_000
_SHARED = 16

_Found = TypeVar("_Found")


class _Message(NamedTuple):
    after: int
    text: str
    more: bool = False


class Changes:
    def __init__(self, path: str) -> None:
        self._path = path
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="live")
        self._ledger: Ledger | None = None
        self._touched: dict[int, Touched] = {}
        self._messages: dict[tuple[int, str], _Message] = {}
        self._next_commit = asyncio.Event()
        self.pages = 0

    def committed(self) -> None:
        """On the server's loop."""
        self._next_commit.set()
        self._next_commit = asyncio.Event()

    async def follow(self, filters: Filters, after: int | None) -> AsyncIterator[str]:
        """Messages for one page, without end. The first says where it stands, or that it must begin anew."""
        newest = await self._read(lambda ledger: ledger.newest_arrival())
        reset = after is not None and not newest - MOST_BEHIND <= after <= newest
        place = newest if after is None or reset else after
        yield _text(Touched(place, [], []), ([], []), reset=reset)
        sieve, asked = Sieve(filters), repr(sorted(filters.asked.items()))
        while True:
            commit = self._next_commit
            message = await self._read(partial(self._message, place, asked, sieve))
            if message.after == place:
                await commit.wait()
                await asyncio.sleep(GATHER_S)
                continue
            place = message.after
            yield message.text
            if message.more and commit.is_set():
                await asyncio.sleep(FLOOD_S)
                newest = await self._read(lambda ledger: ledger.newest_arrival())
                if newest - place > MOST_BEHIND_LIVE:
                    place = newest
                    yield _text(Touched(place, [], []), ([], []), reset=True)

    async def _read(self, work: Callable[[Ledger], _Found]) -> _Found:
        return await asyncio.get_running_loop().run_in_executor(self._thread, lambda: work(self._open()))

    # -- in the thread ------------------------------------------------------------------------------------------

    def _open(self) -> Ledger:
        if self._ledger is None:
            self._ledger = open_ledger(self._path)
        return self._ledger

    def _message(self, after: int, asked: str, sieve: Sieve, ledger: Ledger) -> _Message:
        shared = self._messages.get((after, asked))
        if shared is not None:
            return shared
        told = self._touched.get(after) or touched(ledger, after)
        if told.after == after:
            return _Message(after, "")
        message = _Message(told.after, _text(told, sieve.rows(ledger, told.numbers)), told.more)
        _keep(self._touched, after, told)
        _keep(self._messages, (after, asked), message)
        return message


_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


def _keep(kept: dict[_Key, _Value], key: _Key, value: _Value) -> None:
    kept[key] = value
    if len(kept) > _SHARED:
        del kept[next(iter(kept))]


def _text(told: Touched, found: tuple[list[dict[str, object]], list[str]], *, reset: bool = False) -> str:
    rows, gone = found
    return json_text({"after": told.after, "rows": rows, "gone": gone, "runs": told.runs, "reset": reset})
