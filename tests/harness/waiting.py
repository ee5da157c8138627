"""The one way to wait: look until what is wanted is there, and say what was seen when it never came.

    wait_for(lambda: path.exists(), what="the journal")
    found = wait_for(sink.events, enough=lambda events: len(events) == 3, what="three events")

The limit only keeps a broken test from hanging: it is generous, and no test passes because of it. To show that
something does *not* happen, look again and again with `while_passing`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

T = TypeVar("T")

GENEROUS_S = 30.0
LOOK_EVERY_S = 0.01
SHOWN_CHARACTERS = 2000


class WaitedInVain(AssertionError):
    pass


def wait_for(
    look: Callable[[], T],
    seconds: float = GENEROUS_S,
    what: str = "the condition",
    *,
    enough: Callable[[T], object] = bool,
    meanwhile: Callable[[float], object] = time.sleep,
) -> T:
    """The first value of `look()` that is `enough`. `meanwhile` moves what is waited for on, for at most so long."""
    end = time.monotonic() + seconds
    while not enough(value := look()):
        left = end - time.monotonic()
        if left <= 0:
            raise WaitedInVain(_in_vain(seconds, what, value))
        meanwhile(min(left, LOOK_EVERY_S))
    return value


async def wait_for_async(
    look: Callable[[], T],
    seconds: float = GENEROUS_S,
    what: str = "the condition",
    *,
    enough: Callable[[T], object] = bool,
) -> T:
    """The same inside a running loop, whose other tasks go on."""
    end = time.monotonic() + seconds
    while not enough(value := look()):
        if time.monotonic() >= end:
            raise WaitedInVain(_in_vain(seconds, what, value))
        await asyncio.sleep(LOOK_EVERY_S)
    return value


def while_passing(seconds: float) -> Iterator[float]:
    """What is left of the time, again and again until it has passed."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        yield left


def pause(seconds: float) -> None:
    """Let a moment pass that was drawn at random, so that what comes next meets the others anywhere in their work."""
    time.sleep(seconds)


def _in_vain(seconds: float, what: str, value: object) -> str:
    seen = repr(value)
    shown = seen if len(seen) <= SHOWN_CHARACTERS else f"{seen[:SHOWN_CHARACTERS]}... ({len(seen)} characters)"
    return f"waited {seconds:g} s in vain for {what}; last seen: {shown}"
