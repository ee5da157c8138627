"""Times as people write and read them: RFC 3339, `15m`, `2h`, `today` in; local clock time and durations out."""

from __future__ import annotations

from datetime import UTC, datetime

from subluminal.contracts.errors import UsageError
from subluminal.contracts.moments import epoch_ms, is_moment

_DAYS = {"today": 0, "yesterday": 1}
_UNITS_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}


def moment_ms(text: str, now_ms: int) -> int:
    """Milliseconds since the epoch. A moment without an offset is local time."""
    if text in _DAYS:
        from datetime import timedelta

        day = datetime.fromtimestamp(now_ms / 1000).date() - timedelta(days=_DAYS[text])
        return max(0, int(datetime(day.year, day.month, day.day).timestamp() * 1000))
    number, unit = text[:-1], text[-1:]
    if unit in _UNITS_MS and number.isascii() and number.isdigit() and len(number) < 10:
        return max(0, now_ms - int(number) * _UNITS_MS[unit])
    try:
        return max(0, int(datetime.fromisoformat(text).timestamp() * 1000))
    except (ValueError, OverflowError):
        hint = "Write today, yesterday, 2026-01-31, 2026-01-31T09:30:00Z, or 30s, 15m, 2h, 3d, 1w ago."
        raise UsageError(f"{text!r} is no time.", hint=hint) from None


def parsed(ts: str | None) -> datetime | None:
    """A contract timestamp as local time; None if there is none or it makes no sense."""
    if not ts:
        return None
    try:
        moment = datetime.fromisoformat(ts)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone()
    except (ValueError, OverflowError, OSError):
        return None


def clock(ts: str | None) -> str:
    moment = parsed(ts)
    return moment.strftime("%H:%M:%S") if moment else "--:--:--"


def date_and_clock(ts: str | None) -> str:
    moment = parsed(ts)
    return moment.strftime("%Y-%m-%d %H:%M:%S") if moment else "-"


def short_time(ts: str | None) -> str:
    """For a narrow column: the time of today, else the day and the minute."""
    moment = parsed(ts)
    if moment is None:
        return "-"
    today = moment.date() == datetime.now().date()
    return moment.strftime("%H:%M:%S" if today else "%m-%d %H:%M")


_STEPS = {"day": "%Y-%m-%d", "hour": "%m-%d %H:%M", "minute": "%H:%M"}


def time_of_step(ts: str, step: str) -> str:
    """Where a day, an hour or a minute begins."""
    moment = parsed(ts)
    return moment.strftime(_STEPS[step]) if moment else "-"


def between_ms(start: str | None, end: str | None) -> int | None:
    if not (start and end and is_moment(start) and is_moment(end)):
        return None
    return max(0, epoch_ms(end) - epoch_ms(start))


def duration(ms: int | None) -> str:
    """Short, with two or three figures that mean something; a duration that is not known is a dash.

    Whole milliseconds are what is recorded: less than one is not nothing."""
    if ms is None:
        return "-"
    if ms == 0:
        return "<1 ms"
    if ms < 1000:
        return f"{ms} ms"
    if ms < 10_000:
        return f"{ms / 1000:.2f} s"
    seconds = ms // 1000
    if seconds < 60:
        return f"{ms / 1000:.1f} s"
    minutes, seconds = divmod(seconds, 60)
    if minutes < 60:
        return f"{minutes}m {seconds:02d}s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h {minutes:02d}m" if hours < 48 else f"{hours // 24}d {hours % 24:02d}h"


def short_duration(us: int) -> str:
    """From microseconds."""
    if us < 1000:
        return f"{us} µs"
    return f"{us / 1000:.1f} ms" if us < 100_000 else duration(us // 1000)
