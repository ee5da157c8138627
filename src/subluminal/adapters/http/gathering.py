"""Requests of one run that come in one turn of the loop, while many are served: judged one after the other under one
lock of the run's state, stored at once, and only then does any of them go on.

A process that is killed before that leaves nothing of them, and nobody has heard of any. Where another process holds
the state, or it is lost in between, those that are not judged yet wait for it together, without holding up the loop.
"""

from __future__ import annotations

import asyncio
from time import time_ns
from typing import TYPE_CHECKING, Any

from subluminal.host.run.state import SharedState
from subluminal.http.end_of_turn import JUDGE, end_of_turn
from subluminal.mcp.calls import Forward

if TYPE_CHECKING:
    from subluminal.adapters.http.desk import Desk
    from subluminal.adapters.http.posting import Posting

# So many are judged under one lock; other processes wait for a fifth of a millisecond at the most.
REQUESTS_PER_LOCK = 8


class Gathering:
    """Of one desk. `is_empty`: nothing that has come waits for the end of the turn."""

    __slots__ = ("_desk", "_end_of_turn", "_postings", "_soon")

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._end_of_turn = end_of_turn()
        self._postings: list[Posting] = []
        self._soon = False  # `_turn_over` will be called

    @property
    def is_empty(self) -> bool:
        return not self._postings

    def add(self, posting: Posting) -> None:
        self._postings.append(posting)
        if len(self._postings) >= REQUESTS_PER_LOCK:
            self.judge()
        elif not self._soon:
            self._soon = True
            self._end_of_turn.leave(JUDGE, self._turn_over)

    def _turn_over(self) -> None:
        self._soon = False
        self.judge()

    def judge(self) -> None:
        """Those that have gathered, now: something follows that must not come before them."""
        postings = self._postings
        if postings:
            self._postings = []
            self._desk.do(self._judge, postings, needs_state=True)

    def _judge(self, postings: list[Posting]) -> None:
        """With the run's state, or after waiting for it in vain."""
        desk, calls, producer = self._desk, self._desk.calls, self._desk.producer
        wall_ms = time_ns() // 1_000_000
        turns: list[tuple[list[Posting], list[Any]]] = []  # what is carried out as one
        several: list[Posting] = []
        onward: list[Any] = []
        state, wide = producer.state, producer.gate.stack.wide
        producer.keep_state(len(postings))
        for number, posting in enumerate(postings):
            is_kept = not wide and isinstance(state, SharedState) and state.kept
            if number and not is_kept and not producer.try_state():
                desk.go_on_with(self._judge, postings[number:])
                break
            outputs: list[Any] = []
            calls.outputs = outputs
            try:
                posting.judge(wall_ms)
            except Exception as error:
                _failed([posting], error)
                continue
            if len(outputs) == 1 and type(outputs[0]) is Forward:
                several.append(posting)
                onward += outputs
            elif outputs:
                turns += (several, onward), ([posting], outputs)
                several, onward = [], []
        turns.append((several, onward))
        producer.let_state_go()
        for several, outputs in turns:
            calls.outputs = outputs
            if outputs:
                self._carry_out(several)

    def _carry_out(self, postings: list[Posting]) -> None:
        try:
            self._desk.carry_out(postings[0] if len(postings) == 1 else _Several(postings), postings[0].read_ns)
            for posting in postings:
                posting.carried_out()
        except Exception as error:
            _failed(postings, error)


class _Several:
    """The party for requests that all go on: one message of each, in their order."""

    __slots__ = ("_postings",)

    def __init__(self, postings: list[Posting]) -> None:
        self._postings = postings

    def forward(self, messages: list[Any]) -> None:
        for posting, message in zip(self._postings, messages, strict=True):
            try:
                posting.send_on(message)
            except Exception as error:
                _failed([posting], error)

    def answer(self, messages: list[bytes]) -> None:
        """None of them has an answer yet."""


def _failed(postings: list[Posting], error: Exception) -> None:
    """A fault of ours: those who would wait for ever see their connection end; the others are as they were."""
    for posting in postings:
        posting.visit.break_off()
    asyncio.get_running_loop().call_exception_handler({"message": "a request failed", "exception": error})
