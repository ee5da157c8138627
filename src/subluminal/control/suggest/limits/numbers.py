"""Numbers: a range up to what `SUPPORT` runs reached; twice that where there are more values than a set has."""

from __future__ import annotations

import math
from typing import Any

from subluminal.control.suggest import SUPPORT
from subluminal.control.suggest.evidence import Values, kth_largest
from subluminal.control.suggest.limits.limit import Limit

MAX_SET = 12
_SAFE = 2**53 - 1


def fit(values: Values, level: int) -> Limit | None:
    highest: dict[int, float] = {}
    lowest: dict[int, float] = {}
    for number, (_, runs) in values.numbers.items():
        if not math.isfinite(number) or abs(number) > _SAFE:
            continue
        for run in runs:
            highest[run] = max(highest.get(run, number), number)
            lowest[run] = min(lowest.get(run, number), number)
    top = kth_largest(highest.values(), SUPPORT)
    bottom = kth_largest([-low for low in lowest.values()], SUPPORT)
    if top is None or bottom is None:
        return None
    low = -bottom
    spread = 1 if len(values.numbers) <= MAX_SET and not level else 2 * max(1, level)
    high = _rounded(top * spread if top > 0 else top)
    low = _whole(low) if 0 <= low <= 1 else (0 if low > 0 else -_rounded(-low * spread))
    if high < low:
        high = low
    words = f"numbers from {low} to {high}"
    limits: dict[str, Any] = {"min": low, "max": high}
    return Limit("number", [("numeric_range", limits)], words, [str(_whole(top))], widest=level >= 2)


def _whole(number: float) -> int | float:
    return int(number) if float(number).is_integer() else number


def _rounded(number: float) -> int | float:
    """Upwards to two digits, so that a limit looks like one and does not tell the exact value."""
    if number <= 100:
        return math.ceil(number) if not float(number).is_integer() else int(number)
    step = 10 ** (math.floor(math.log10(number)) - 1)
    return int(math.ceil(number / step) * step)
