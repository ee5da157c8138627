"""Timestamps of the contract as numbers, and in one form."""

from __future__ import annotations

import re
from datetime import UTC, datetime

_minutes: dict[str, int] = {}


def epoch_ms(ts: str) -> int:
    """Milliseconds since the epoch of a contract timestamp; ValueError if there is no such moment."""
    minute = ts[:16]
    base = _minutes.get(minute)
    if base is None:
        if len(_minutes) > 4096:
            _minutes.clear()
        base = int(datetime.fromisoformat(minute).replace(tzinfo=UTC).timestamp()) * 1000
        _minutes[minute] = base
    return base + int(ts[17:19]) * 1000 + (int((ts[20:-1] + "00")[:3]) if len(ts) > 20 else 0)


_SECONDS = frozenset(f":{second:02d}." for second in range(60))
_MILLIS = frozenset(f"{millis:03d}Z" for millis in range(1000))
_is_timestamp = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?Z").fullmatch


def is_moment(ts: str) -> bool:
    """Whether this is a timestamp of the contract and there is such a moment."""
    if ts[:16] in _minutes and ts[16:20] in _SECONDS and ts[20:] in _MILLIS:
        return True  # what shims write; a regular expression takes ten times as long
    try:
        return _is_timestamp(ts) is not None and epoch_ms(ts) is not None
    except (ValueError, OverflowError):
        return False


def normal_ts(ts: str) -> str:
    """Exactly three decimals, so that text order is time order."""
    if len(ts) == 24:
        return ts
    return ts[:19] + "." + (ts[20:-1] + "000")[:3] + "Z"
