"""What the messages of a run's models came to: sums of what was stated, and how many messages did not state it.

    {"messages": 3, "input_tokens": {"sum": 1200, "unstated": 1}, ..., "cached_in_input": false}

What no message stated has no sum: it is not known, and not zero. `cached_in_input` is null where it was not stated, or
not the same of all.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET

from subluminal.contracts.events import MessageStated

SUMMED = (
    "input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "reasoning_tokens",
    "server_tool_requests",
)  # fmt: skip


def add_message(usage_json: str | None, stated: MessageStated) -> str:
    usage: dict[str, Any] = {"messages": 0} if usage_json is None else msgspec.json.decode(usage_json)
    before = usage["messages"]
    usage["messages"] = before + 1
    for name in SUMMED:
        value = getattr(stated, name)
        total = usage.get(name) or {"sum": None, "unstated": before}
        if value is UNSET:
            total["unstated"] += 1
        else:
            total["sum"] = (total["sum"] or 0) + value
        usage[name] = total
    included = None if stated.cached_in_input is UNSET else stated.cached_in_input
    usage["cached_in_input"] = included if not before or usage["cached_in_input"] == included else None
    return msgspec.json.encode(usage).decode()
