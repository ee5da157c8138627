"""Times and sizes as people write them (`30s`, `10MiB`): the number each stands for, and the spelling that was meant.

`contracts.policy` states what is legal, `Duration` and `Size`. What comes near gets the right spelling as its fix.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fractions import Fraction

MILLISECONDS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
BYTES = {
    "B": 1,
    "KB": 1_000,
    "MB": 1_000_000,
    "GB": 1_000_000_000,
    "KiB": 1 << 10,
    "MiB": 1 << 20,
    "GiB": 1 << 30,
}

# Sizes beyond this are not exact in every JSON implementation.
MAX_EXACT = 2**53 - 1

A_DURATION = "a duration such as 30s, 15m or 1h"
A_SIZE = "a size such as 64KB or 10MiB"

_SPELT = re.compile(r"([0-9]+)([A-Za-z]+)")
# Whatever may have been meant as a number with a unit. Bounded: a text of megabytes is not searched for a spelling.
_MAX_GUESSED = 40
_NEAR = re.compile(r"([-+]?)([0-9]{1,12}(?:\.[0-9]{1,9})?|\.[0-9]{1,9}) *([A-Za-z]{1,12})")
_COMPOUND = re.compile(r"(?:[0-9]{1,12} *[A-Za-z]{1,12} *)+")

_TIME_WORDS = {
    **dict.fromkeys(("ms", "msec", "msecs", "millis", "millisecond", "milliseconds"), "ms"),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), "s"),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), "m"),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), "h"),
    **dict.fromkeys(("d", "day", "days"), "d"),
}
_LONGER_TIMES = {**dict.fromkeys(("w", "wk", "week", "weeks"), 7 * MILLISECONDS["d"])}
_SIZE_WORDS = {
    **dict.fromkeys(("b", "byte", "bytes"), ("B",)),
    **dict.fromkeys(("k", "kb"), ("KB", "KiB")),
    **dict.fromkeys(("m", "mb"), ("MB", "MiB")),
    **dict.fromkeys(("g", "gb"), ("GB", "GiB")),
    **{unit.lower(): (unit,) for unit in ("KiB", "MiB", "GiB")},
}
_LARGER_SIZES = {"tb": 1_000 * BYTES["GB"], "t": 1_000 * BYTES["GB"], "tib": 1_024 * BYTES["GiB"]}


def milliseconds(duration: str) -> int:
    """Of a legal duration."""
    return _number(duration, MILLISECONDS)


def size_in_bytes(size: str) -> int:
    """Of a legal size."""
    return _number(size, BYTES)


def _number(text: str, units: dict[str, int]) -> int:
    found = _SPELT.fullmatch(text)
    assert found is not None
    return int(found[1]) * units[found[2]]


def meant_duration(text: str) -> str | None:
    """`1hr`, `1.5 h` or `1h30m` as it is spelt here; None where no time was meant, or none can be told."""
    from fractions import Fraction

    total, smallest = Fraction(0), "d"
    for number, word in _parts(text):
        unit = _TIME_WORDS.get(word.lower())
        factor = MILLISECONDS[unit] if unit else _LONGER_TIMES.get(word.lower())
        if factor is None:
            return None
        total += number * factor
        if unit and MILLISECONDS[unit] < MILLISECONDS[smallest]:
            smallest = unit
    return _spelt(total, MILLISECONDS, smallest) if total else None


def meant_sizes(text: str) -> list[str]:
    """`10mb` as it is spelt here: two spellings where powers of 1000 or of 1024 may be meant."""
    parts = _parts(text)
    if len(parts) != 1:
        return []
    number, word = parts[0]
    if word.lower() in _LARGER_SIZES:
        unit = "GiB" if word.lower() == "tib" else "GB"
        meant = [_spelt(number * _LARGER_SIZES[word.lower()], BYTES, unit)]
    else:
        meant = [_spelt(number * BYTES[unit], BYTES, unit) for unit in _SIZE_WORDS.get(word.lower(), ())]
    return [spelling for spelling in meant if spelling]


def _parts(text: str) -> list[tuple[Fraction, str]]:
    from fractions import Fraction

    text = text.strip()
    if len(text) > _MAX_GUESSED:
        return []
    text = text.replace("_", "").replace(",", "")
    single = _NEAR.fullmatch(text)
    if single:
        return [(Fraction(single[2]), single[3])]
    if _COMPOUND.fullmatch(text):
        return [(Fraction(number), word) for number, word in re.findall(r"([0-9]+) *([A-Za-z]+)", text)]
    return []


def _spelt(total: Fraction, units: dict[str, int], unit: str) -> str | None:
    """In this unit, or in the largest smaller one of its family that makes it a whole number."""
    family = [name for name in units if name.endswith("iB") == unit.endswith("iB") or name == "B"]
    for name in reversed(family[: family.index(unit) + 1]):
        count = total / units[name]
        if count.denominator == 1 and len(str(count)) <= 12:
            return f"{count}{name}"
    return None
