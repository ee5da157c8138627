"""Questions in threads of their own, so many at a time. A process that ends does not wait for them: a collector that
does not answer would hold it up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from threading import Thread
from typing import Any, TypeVar

T = TypeVar("T")


class Threads:
    def __init__(self, most: int) -> None:
        self._free = asyncio.Semaphore(most)

    async def run(self, work: Callable[[], T]) -> T:
        """A thread is counted until it has ended, though nobody may wait for its answer any more."""
        await self._free.acquire()
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()

        def tell(give: Callable[[Any], None], what: object) -> None:
            self._free.release()
            if not answer.done():
                give(what)

        def body() -> None:
            give: Callable[[Any], None] = answer.set_result
            try:
                what: object = work()
            except BaseException as error:
                give, what = answer.set_exception, error
            try:
                loop.call_soon_threadsafe(tell, give, what)
            except RuntimeError:
                pass  # the server has ended meanwhile

        Thread(target=body, name="question", daemon=True).start()
        return await answer
