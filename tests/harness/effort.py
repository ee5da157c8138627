"""What work costs, in terms that do not depend on the machine: calls made, or times a baseline measured beside it."""

from __future__ import annotations

import cProfile
import time
from collections.abc import Callable

ROUNDS = 3


def calls_made(work: Callable[[], object]) -> int:
    """How many functions, Python's and C's, were called: the same number on every machine."""
    profile = cProfile.Profile()
    profile.runcall(work)
    return sum(entry.callcount for entry in profile.getstats())


def cpu_seconds(work: Callable[[], object], rounds: int = ROUNDS) -> float:
    """The best of several rounds: what other processes add is never part of the best."""
    best = float("inf")
    for _ in range(rounds):
        began = time.process_time()
        work()
        best = min(best, time.process_time() - began)
    return best


def growth(work: Callable[[int], object], small: int, large: int, cost: Callable[..., float] = cpu_seconds) -> float:
    """How many times dearer the large work is, over how many times larger it is: 1 for linear work."""
    return cost(lambda: work(large)) / cost(lambda: work(small)) / (large / small)
