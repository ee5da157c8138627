"""The contract's timestamps, `2025-12-15T12:34:56.789Z`, and epoch milliseconds: one to the other, in integers.

No clock (`host.clock` has one) and no calendar of the standard library: the shim loads this at start-up.
"""

from __future__ import annotations

DAY_MS = 86_400_000
_DAYS_TO_1970 = 719468
# Events come in bursts: minutes that were found to exist, and when they began.
_MINUTES_KEPT = 4096
_minutes: dict[str, int] = {}
# What `is_moment` looks up, made when it is first asked: the shim, which only writes, does without 100 KB of it.
_SECONDS: set[str] = set()
_MILLIS: set[str] = set()


def rfc3339(wall_ms: int) -> str:
    seconds, millis = divmod(wall_ms, 1000)
    days, second_of_day = divmod(seconds, 86400)
    hour, rest = divmod(second_of_day, 3600)
    minute, second = divmod(rest, 60)
    # Days to civil date over 400-year eras of 146097 days that begin in March, so that a leap day comes last.
    era, day_of_era = divmod(days + _DAYS_TO_1970, 146097)
    year_of_era = (day_of_era - day_of_era // 1460 + day_of_era // 36524 - day_of_era // 146096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    month_index = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * month_index + 2) // 5 + 1
    month = month_index + 3 if month_index < 10 else month_index - 9
    year = year_of_era + era * 400 + (1 if month <= 2 else 0)
    return f"{year:04d}-{month:02d}-{day:02d}T{hour:02d}:{minute:02d}:{second:02d}.{millis:03d}Z"


def epoch_ms(ts: str) -> int:
    """Milliseconds since the epoch of a contract timestamp; ValueError if there is no such moment."""
    minute = ts[:16]
    base = _minutes.get(minute)
    if base is None:
        if len(_minutes) > _MINUTES_KEPT:
            _minutes.clear()
        base = _minutes[minute] = _minute_ms(minute)
    return base + int(ts[17:19]) * 1000 + (int((ts[20:-1] + "00")[:3]) if len(ts) > 20 else 0)


def _minute_ms(minute: str) -> int:
    """`2025-12-15T12:34`: the way back of `rfc3339`."""
    year, month, day = int(minute[:4]), int(minute[5:7]), int(minute[8:10])
    era, year_of_era = divmod(year - (month <= 2), 400)
    day_of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    days = era * 146097 + year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year - _DAYS_TO_1970
    wall_ms = ((days * 24 + int(minute[11:13])) * 60 + int(minute[14:])) * 60_000
    if year < 1 or rfc3339(wall_ms)[:16] != minute:
        raise ValueError(f"{minute!r} is not in the calendar")
    return wall_ms


def is_moment(ts: str) -> bool:
    """Whether this is a timestamp of the contract and there is such a moment."""
    if not _MILLIS:
        _SECONDS.update(f":{second:02d}." for second in range(60))
        _MILLIS.update(f"{millis:03d}Z" for millis in range(1000))
    if ts[:16] in _minutes and ts[16:20] in _SECONDS and ts[20:] in _MILLIS:
        return True  # what shims write
    digits = ts[17:19] + ts[20:-1]
    if ts[16:17] != ":" or ts[-1:] != "Z" or not (digits.isascii() and digits.isdigit()):
        return False
    try:
        return (len(ts) == 20 or (len(ts) > 21 and ts[19] == ".")) and epoch_ms(ts) is not None
    except ValueError:
        return False


def normal_ts(ts: str) -> str:
    """Exactly three decimals, so that text order is time order."""
    if len(ts) == 24:
        return ts
    return ts[:19] + "." + (ts[20:-1] + "000")[:3] + "Z"
