"""Waiting for the run's state where a loop runs: the loop goes on, and whoever waits stands in the kernel's queue.

    await state_turn(producer)        then judge (or settle a call with a `watch`), before anything else is awaited

Once it returns, the state is ours for what is judged next; or LOCK_WAIT_SECONDS have passed, and the judgement does
without (`decision_on_error`). What is not used has been let go when the loop comes round again. Await it directly: in a
task of its own it would give the state up before its caller can use it.
"""

from __future__ import annotations

import asyncio
from time import monotonic_ns

from subluminal.host.run.state import SharedState
from subluminal.producer.state_queue import StateQueue, give_up_at, try_turn

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from subluminal.producer.producer import Producer


async def state_turn(producer: Producer, give_up_ns: int | None = None) -> None:
    """`give_up_ns`: until when it is waited for, where that was begun before."""
    state = producer.state
    if not isinstance(state, SharedState):
        return
    loop = asyncio.get_running_loop()
    if not producer.try_state():
        await _wait(producer, state, loop, give_up_at() if give_up_ns is None else give_up_ns)
    loop.call_soon(producer.let_state_go)


async def _wait(producer: Producer, state: SharedState, loop: asyncio.AbstractEventLoop, give_up_ns: int) -> None:
    if producer.waiting is None:
        producer.waiting = StateQueue()
    queue = producer.waiting
    while not try_turn(producer, give_up_ns):
        told = loop.create_future()
        tell = _teller(loop, told)
        timer = loop.call_later(max(0.0, (give_up_ns - monotonic_ns()) / 1e9), _settle, told)
        queue.stand(state, tell)
        try:
            await told
        except BaseException:
            queue.leave(state, tell)
            state.let_go()
            raise
        finally:
            timer.cancel()
        queue.leave(state, tell)


def _teller(loop: asyncio.AbstractEventLoop, told: asyncio.Future[None]) -> Callable[[], None]:
    def tell() -> None:
        try:
            loop.call_soon_threadsafe(_settle, told)
        except RuntimeError:
            pass  # the loop is closed, and nobody waits there

    return tell


def _settle(told: asyncio.Future[None]) -> None:
    if not told.done():
        told.set_result(None)
