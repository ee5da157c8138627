"""Handing over where a loop runs: one write to the sink for all that one turn of the loop has decided.

    decided         at the end of this turn of the loop, before it reads again
    before_answer   now, if any decision waits; the turn says it for its answers, doors for whatever else is heard
    ended           with the next decisions, or ENDS_WAIT_MS later

A process that is killed within that turn loses the decisions of calls that nobody has heard of yet, as one does that
reads many calls at once (`adapters/stdio`). Where this is too much, `audit = "before"` records before it forwards.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from subluminal.http.end_of_turn import RECORD, end_of_turn
from subluminal.producer.turn import ENDS_WAIT_MS

if TYPE_CHECKING:
    from subluminal.producer.producer import Producer


class Later:
    """For one producer. What waits when it closes is handed over by that."""

    __slots__ = ("_due", "_end_of_turn", "_loop", "_producer", "_soon", "_timed")

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self._loop = asyncio.get_running_loop()
        self._end_of_turn = end_of_turn()
        self._due = False  # decisions wait
        self._soon = False  # `_turn_over` will be called
        self._timed = False  # `_moment_over` will be

    def decided(self) -> None:
        self._due = True
        if not self._soon:
            self._soon = True
            self._end_of_turn.leave(RECORD, self._turn_over)

    def before_answer(self) -> None:
        if self._due:
            self._due = False
            self._producer.hand_over()

    def ended(self) -> None:
        if not self._timed and not self._due:
            self._timed = True
            self._loop.call_later(ENDS_WAIT_MS / 1000, self._moment_over)

    def _turn_over(self) -> None:
        self._soon = False
        self.before_answer()

    def _moment_over(self) -> None:
        self._timed = False
        self._due = False
        self._producer.hand_over()
