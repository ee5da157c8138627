"""Whose question is next: of a tenant one at a time, so that one who asks much keeps its own people waiting and nobody
else. Whoever would wait too long, or behind too many, is told to come again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from subluminal.contracts.errors import SubluminalError

# An open page asks about ten questions at once.
MOST_WAITING = 64
WAIT_S = 15.0


class TooMany(SubluminalError):
    """Too many questions of one tenant at once."""


class _Tenant:
    def __init__(self) -> None:
        self.turn = asyncio.Lock()
        self.there = 0  # asking or waiting


class Turns:
    def __init__(self, wait_s: float = WAIT_S) -> None:
        self._wait_s = wait_s
        self._tenants: dict[str, _Tenant] = {}

    @asynccontextmanager
    async def of(self, tenant: str) -> AsyncIterator[None]:
        found = self._tenants.setdefault(tenant, _Tenant())
        if found.there > MOST_WAITING:
            raise TooMany(f"{tenant} asks too many questions at once.")
        found.there += 1
        try:
            await _acquire(found.turn, self._wait_s, tenant)
            try:
                yield
            finally:
                found.turn.release()
        finally:
            found.there -= 1
            if not found.there:
                self._tenants.pop(tenant, None)


async def _acquire(turn: asyncio.Lock, wait_s: float, tenant: str) -> None:
    try:
        async with asyncio.timeout(wait_s):
            await turn.acquire()
    except TimeoutError:
        raise TooMany(f"Other questions of {tenant} take long; this one waited for {wait_s:g} s.") from None
