"""A listening socket and the connections that came of it: bounded, swept, drained at the end."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from time import monotonic
from typing import Any

from subluminal.http.end_of_turn import ANSWER
from subluminal.http.inbound import Inbound, Visit
from subluminal.http.limits import MAX_CONNECTIONS, SWEEP_SECONDS
from subluminal.http.together import Together


class Serving:
    """`arrived(visit)` is called with each request when its head is there: it answers, or listens.

    With `met(inbound, socket)` a new connection is not read before its owner has called `inbound.welcome`.
    """

    def __init__(
        self,
        arrived: Callable[[Visit], None],
        limit: int = MAX_CONNECTIONS,
        clock: Callable[[], float] = monotonic,
        met: Callable[[Inbound, Any], None] | None = None,
    ) -> None:
        self.arrived = arrived
        self.met = met
        self.clock = clock
        self.ending = False
        self.loop = asyncio.get_running_loop()
        self.together = Together(ANSWER)
        self.under_way = 0  # requests
        self._limit = limit
        self._connections: set[Inbound] = set()
        self._server: asyncio.Server | None = None
        self._sweep_handle: asyncio.TimerHandle | None = None
        self._last_closed: asyncio.Future[None] | None = None

    async def listen(self, host: str, port: int) -> tuple[str, int]:
        """The address that it listens on."""
        self._server = await self.loop.create_server(
            lambda: Inbound(self), host, port, backlog=1024, reuse_address=True
        )
        self._sweep()
        sockets: list[socket.socket] = list(self._server.sockets)
        bound = sockets[0].getsockname()
        return str(bound[0]), int(bound[1])

    def __len__(self) -> int:
        return len(self._connections)

    def opened(self, inbound: Inbound) -> bool:
        self._connections.add(inbound)
        return len(self._connections) <= self._limit and not self.ending

    def closed(self, inbound: Inbound) -> None:
        self._connections.discard(inbound)
        if not self._connections and self._last_closed is not None and not self._last_closed.done():
            self._last_closed.set_result(None)

    def let_go_overdue(self) -> None:
        """Whoever makes us wait too long."""
        now = self.clock()
        for inbound in list(self._connections):
            inbound.overdue(now)

    def _sweep(self) -> None:
        self._sweep_handle = self.loop.call_later(SWEEP_SECONDS, self._sweep)
        self.let_go_overdue()

    async def stop(self, seconds: float) -> None:
        """No more requests. Those under way may end within `seconds`; what is left then is cut."""
        self.ending = True
        if self._sweep_handle is not None:
            self._sweep_handle.cancel()
        if self._server is not None:
            self._server.close()
        for inbound in list(self._connections):
            inbound.close_if_idle()
        await self._all_closed(seconds)
        for inbound in list(self._connections):
            inbound.abort()
        await self._all_closed(1)

    async def _all_closed(self, seconds: float) -> None:
        if self._connections:
            self._last_closed = self.loop.create_future()
            await asyncio.wait([self._last_closed], timeout=seconds)
