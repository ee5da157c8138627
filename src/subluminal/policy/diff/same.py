"""Whether two values of snapshots are the same."""

from __future__ import annotations

from typing import Any

import msgspec


def same(old: Any, new: Any) -> bool:
    """Equal as JSON: to Python `true` equals `1`."""
    return msgspec.json.encode(old, order="sorted") == msgspec.json.encode(new, order="sorted")
