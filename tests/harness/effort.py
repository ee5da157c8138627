"""What work costs, in terms that do not depend on the machine: calls made, or times a baseline measured beside it."""

from __future__ import annotations

import cProfile
import gc
import time
from collections.abc import Callable

MOST_ROUNDS = 8
# Far below the limit, one round says enough; well below it, a few do.
FAR_BELOW, WELL_BELOW, A_FEW_ROUNDS = 0.5, 0.75, 3


def calls_made(work: Callable[[], object], of: str = "") -> int:
    """How many functions (`of`: with this in their name), Python's and C's, were called: the same on every machine."""
    profile = cProfile.Profile()
    profile.runcall(work)
    return sum(entry.callcount for entry in profile.getstats() if of in str(entry.code))


def cpu_seconds(work: Callable[[], object]) -> float:
    """Without the collector: its passes are paid for by whatever else this process holds."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        began = time.process_time()
        work()
        return time.process_time() - began
    finally:
        if collecting:
            gc.enable()


def cpu_ratio(work: Callable[[], object], baseline: Callable[[], object], limit: float) -> float:
    """
    How many times dearer the work is than the baseline, the best of each beside the other.

    What a busy machine adds is noise of any size, and noise only adds: more rounds bring the true ratio out,
    while work that is truly too dear stays above the limit in every one of them.
    """
    dear = cheap = float("inf")
    for rounds in range(1, MOST_ROUNDS + 1):
        cheap = min(cheap, cpu_seconds(baseline))
        dear = min(dear, cpu_seconds(work))
        if dear < limit * cheap * (FAR_BELOW if rounds < A_FEW_ROUNDS else WELL_BELOW):
            break
    return dear / cheap


def growth(work: Callable[[int], object], small: int, large: int, limit: float) -> float:
    """How many times dearer the large work is, over how many times larger it is: 1 for linear work."""
    times = large / small
    return cpu_ratio(lambda: work(large), lambda: work(small), limit * times) / times


def growth_of_calls(work: Callable[[int], object], small: int, large: int) -> float:
    return calls_made(lambda: work(large)) / calls_made(lambda: work(small)) / (large / small)
