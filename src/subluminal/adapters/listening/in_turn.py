"""Work of one run that needs the run's state, in order, without holding up the loop."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from subluminal.producer.state_queue import give_up_at
from subluminal.producer.turns import state_turn

if TYPE_CHECKING:
    from subluminal.producer.producer import Producer


class InTurn:
    """To be inherited. `producer` may become another when its run has ended and comes back."""

    __slots__ = ("_waiting", "producer")

    producer: Producer

    def __init__(self) -> None:
        self._waiting: deque[tuple[int, Callable[..., None], tuple[Any, ...]]] = deque()

    def do(self, work: Callable[..., None], *args: Any, needs_state: bool) -> None:
        """Do it now; or, where another process holds the run's state, as soon as it is to be had, in order."""
        if self._waiting:
            self._waiting.append((give_up_at(), work, args))
        elif not needs_state:
            work(*args)
        elif (producer := self.producer).try_state():
            try:
                work(*args)
            finally:
                producer.let_state_go()
        else:
            self._waiting.append((give_up_at(), work, args))
            asyncio.get_running_loop().create_task(self._work_off())

    def go_on_with(self, work: Callable[..., None], *args: Any) -> None:
        """Of work that has lost the state, and done nothing else yet: the rest of it, before all that wait."""
        rest = (give_up_at(), work, args)
        if self._waiting:  # it stands there itself, until it is done
            self._waiting.insert(1, (self._waiting[0][0], *rest[1:]))
        else:
            self._waiting.append(rest)
            asyncio.get_running_loop().create_task(self._work_off())

    @property
    def waits(self) -> bool:
        """Whether anything is still to be done."""
        return bool(self._waiting)

    def do_all(self) -> None:
        """At the end: what still waits is done now, with the state or without."""
        while self._waiting:
            self._do_next()

    async def _work_off(self) -> None:
        """Each has waited since it came, so that many do not wait one after the other."""
        while self._waiting:
            await state_turn(self.producer, self._waiting[0][0])
            if self._waiting:
                self._do_next()

    def _do_next(self) -> None:
        _, work, args = self._waiting[0]
        try:
            work(*args)
        except Exception as error:  # those behind it must not wait for ever
            asyncio.get_running_loop().call_exception_handler({"message": "a request failed", "exception": error})
        finally:
            self.producer.let_state_go()
            self._waiting.popleft()
