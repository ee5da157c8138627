"""Where a page of calls or runs goes on: the key of the last row, as a text that stands in an address."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import msgspec

from subluminal.contracts.errors import UsageError

_LONGEST = 4096


def cursor_text(key: Sequence[Any]) -> str:
    """Of a call the milliseconds, run_id, shim_id and call_id; of a run the first two."""
    return base64.urlsafe_b64encode(msgspec.json.encode(key[:4])).decode().rstrip("=")


def cursor_key(cursor: str, parts: int) -> list[Any]:
    try:
        if len(cursor) > _LONGEST:
            raise ValueError
        key = msgspec.json.decode(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)), type=list[int | str])
        if not isinstance(key[0], int) or not all(isinstance(part, str) for part in key[1:]) or len(key) != parts:
            raise ValueError
    except (ValueError, IndexError, msgspec.MsgspecError):
        raise UsageError(f"{cursor[:40]!r} is no cursor.", hint="Use the next_cursor of the page before.") from None
    return key
