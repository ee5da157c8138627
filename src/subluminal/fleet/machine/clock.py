"""A machine's clock, which may be wrong and may be set at any time.

What a fleet allows is told in moments of this clock, so that shims need nothing else. Whoever sets it must neither
shorten nor stretch `max_offline`: `SetClock` tells by how much it was set since the last look, against the time since
the boot, which nobody sets. After a boot the time that has passed is not known: a clock that went backwards is then
taken to have stood still, and one that went forward to be right.

What an origin's headers say of the time is for a sentence, and decides nothing: anybody can send them.
"""

from __future__ import annotations

from email.utils import parsedate_to_datetime
from time import time_ns
from typing import TYPE_CHECKING, Any

from subluminal.host.run.files import boot_id, boot_ms

if TYPE_CHECKING:
    from collections.abc import Mapping

# Less is how clocks are, and what a cache before an origin may add.
_TOLD_S = 300
# Less is a clock that is being led to the right time, or the moment between two looks at it.
_SET_MS = 1_000
_FACTS = ("boot", "offset_ms", "wall_ms")


def wall_ms() -> int:
    return time_ns() // 1_000_000


class SetClock:
    """`kept`: what `facts` told when this was looked at last, by this process or by another one."""

    def __init__(self, kept: Mapping[str, Any]) -> None:
        known = [value for name in _FACTS if isinstance(value := kept.get(name), int)]
        self._kept = (known[0], known[1], known[2]) if len(known) == len(_FACTS) else None

    def set_by(self) -> int:
        """Milliseconds since `keep`; negative: backwards."""
        if self._kept is None:
            return 0
        boot, offset, wall = self._kept
        now = wall_ms()
        by = now - boot_ms() - offset if boot and boot == boot_id() else min(0, now - wall)
        return by if abs(by) >= _SET_MS else 0

    def keep(self) -> None:
        now = wall_ms()
        self._kept = (boot_id(), now - boot_ms(), now)

    def facts(self) -> dict[str, int]:
        return {} if self._kept is None else dict(zip(_FACTS, self._kept, strict=True))


def ahead_ms(headers: Mapping[str, str]) -> int | None:
    """By how much this clock is ahead of whoever wrote these headers; None: they do not say."""
    try:
        told = parsedate_to_datetime(headers.get("Date", "")).timestamp()
        age = headers.get("Age", "0")
        # What a cache answers was dated when the cache got it.
        told += min(int(age), 10**9) if age.isascii() and age.isdigit() else 0
        return wall_ms() - int(told * 1000)
    except (ValueError, TypeError, IndexError, OverflowError, OSError):
        return None


def clock_words(ahead_s: int | None) -> str | None:
    """How far this machine's clock is from the origin's; None: not known, or not worth a word."""
    if ahead_s is None or abs(ahead_s) < _TOLD_S:
        return None
    minutes = abs(ahead_s) // 60
    hours = round(minutes / 60)
    far = f"{minutes} minutes" if minutes < 120 else f"{hours} hours" if hours < 72 else f"{round(hours / 24)} days"
    return f"This machine's clock is {far} {'ahead of' if ahead_s > 0 else 'behind'} the origin's"
