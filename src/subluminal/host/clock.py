"""What time it is, as the contract writes it."""

from __future__ import annotations

import time

from subluminal.contracts.moments import rfc3339


def utc_now() -> str:
    return rfc3339(time.time_ns() // 1_000_000)
