"""Writes of one turn of the loop, made one after the other at its end.

A process that waits for what is written to it must be woken, which the writer pays for. Where many are served at once,
writes that follow each other closely wake it once; made whenever one is ready, with work in between, each does.
"""

from __future__ import annotations

from typing import Any

from subluminal.http.end_of_turn import end_of_turn

# Up to so many requests under way nothing is gained, and each is written at once.
FEW = 4
# None waits for more than these.
MOST = 32


class Together:
    """Bytes of one connection leave in the order in which they came here; whoever writes to it otherwise, or closes it,
    asks `flush` first. `stage`: FORWARD or ANSWER."""

    __slots__ = ("_end_of_turn", "_stage", "_waiting")

    def __init__(self, stage: int) -> None:
        self._end_of_turn = end_of_turn()
        self._stage = stage
        self._waiting: list[tuple[Any, bytes]] = []

    def write(self, transport: Any, data: bytes) -> None:
        waiting = self._waiting
        waiting.append((transport, data))
        if len(waiting) == 1:
            self._end_of_turn.leave(self._stage, self.flush)
        elif len(waiting) >= MOST:
            self.flush()

    def flush(self) -> None:
        waiting, self._waiting = self._waiting, []
        for transport, data in waiting:
            if not transport.is_closing():
                transport.write(data)
