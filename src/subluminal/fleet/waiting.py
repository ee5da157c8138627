"""How long whoever was turned away waits: what a collector says, and what a shipper makes of it. No clock.

Nobody comes back at the same time as the others. docs/scale.md simulates these very functions.
"""

from __future__ import annotations

from random import Random

# A machine that is told to come again does so within this and three times as much.
RETRY_S, RETRY_SPREAD = 2.0, 3.0
# After failures: twice as long each time, up to this.
FIRST_WAIT_S, LONGEST_WAIT_S = 1.0, 300.0
_DICE = Random()


def retry_after_s(seconds: float = RETRY_S, dice: Random = _DICE) -> int:
    """Whole seconds, by the standard."""
    return max(1, round(seconds * dice.uniform(1, RETRY_SPREAD)))


def wait_s(failures: int, told_s: float, dice: Random = _DICE) -> float:
    """After so many failures in a row; `told_s`: what the collector has said, 0 where it said nothing."""
    grown = min(LONGEST_WAIT_S, FIRST_WAIT_S * 2.0 ** min(failures, 16))
    return max(told_s, grown * dice.uniform(0.5, 1.0)) * dice.uniform(1.0, 1.25)
