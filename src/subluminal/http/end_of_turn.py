"""The end of a turn of the loop: what its callbacks have left for it is done then, before it reads again, in order.

JUDGE      requests that have come
FORWARD    what goes to servers
RECORD     what was decided, to the sink
ANSWER     what goes to clients
"""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

JUDGE, FORWARD, RECORD, ANSWER = range(4)


class EndOfTurn:
    """One for each loop: `end_of_turn`."""

    __slots__ = ("_left", "_soon", "loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._left: list[list[Callable[[], None]]] = [[], [], [], []]
        self._soon = False

    def leave(self, stage: int, work: Callable[[], None]) -> None:
        """To be done once at the end of this turn; by work of an earlier stage, at this same end."""
        self._left[stage].append(work)
        if not self._soon:
            self._soon = True
            self.loop.call_soon(self._come)

    def _come(self) -> None:
        left = self._left
        for stage, works in enumerate(left):
            if works:
                left[stage] = []
                for work in works:
                    try:
                        work()
                    except Exception as error:  # the others are as they were
                        self.loop.call_exception_handler({"message": "the end of a turn failed", "exception": error})
        self._soon = any(left)
        if self._soon:  # work of a later stage has left it for an earlier one
            self.loop.call_soon(self._come)


class _OfThread(threading.local):
    """A thread runs one loop at a time."""

    newest: EndOfTurn | None = None


_of_thread = _OfThread()


def end_of_turn() -> EndOfTurn:
    """Of the loop that runs."""
    loop = asyncio.get_running_loop()
    found = _of_thread.newest
    if found is None or found.loop is not loop:
        found = _of_thread.newest = EndOfTurn(loop)
    return found
