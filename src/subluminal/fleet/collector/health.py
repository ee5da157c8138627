"""Whether the store takes anything. While it is down it is asked itself: nobody sends to a collector that is not ready.

At most once a second and one question at a time, whoever asks how often: `/health` needs no credential.
"""

from __future__ import annotations

import asyncio
import time

from subluminal.fleet.collector.commits import Commits
from subluminal.fleet.stores.base import Store, StoreError, TooLong

_LOOK_EVERY_S = 1.0
# Less than whoever asks waits (3 s in `deploy/kubernetes`): a store that hangs is told as one that is down.
_PATIENCE_S = 2.0


class Health:
    def __init__(self, store: Store, commits: Commits) -> None:
        self._store, self._commits = store, commits
        self._looking: asyncio.Future[None] | None = None
        self._looked_at = float("-inf")

    async def is_well(self) -> bool:
        if self._commits.is_down:
            await self._look()
        return not self._commits.is_down

    async def _look(self) -> None:
        if self._looking is None or self._looking.done():
            if time.monotonic() - self._looked_at < _LOOK_EVERY_S:
                return
            self._looked_at = time.monotonic()
            self._looking = asyncio.ensure_future(self._ask())
        await asyncio.wait([self._looking], timeout=_PATIENCE_S)

    async def _ask(self) -> None:
        failures = self._commits.failures
        try:
            await asyncio.to_thread(self._store.select, "SELECT 1", {}, _PATIENCE_S, quick=True)
        except (StoreError, TooLong):
            return
        if self._commits.failures == failures:  # else a commit has told meanwhile
            self._commits.is_down = False
