"""`python -m harness.skewed SECONDS ARGUMENTS…`: `sub ARGUMENTS…` with a clock that is so far ahead, or behind.

Only the calendar: the time since the boot is as ever, as on a machine whose clock somebody has set.
"""

from __future__ import annotations

import datetime
import sys
import time

_AHEAD_S = int(sys.argv[1])
_time, _time_ns, _real = time.time, time.time_ns, datetime.datetime


class _Skewed(_real):
    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> _real:  # type: ignore[override]
        return _real.now(tz) + datetime.timedelta(seconds=_AHEAD_S)


time.time = lambda: _time() + _AHEAD_S
time.time_ns = lambda: _time_ns() + _AHEAD_S * 1_000_000_000
datetime.datetime = _Skewed  # type: ignore[misc]

from subluminal.cli import main  # noqa: E402  (what it imports takes the clock as it finds it)

if __name__ == "__main__":
    sys.exit(main.run(sys.argv[2:]))
