"""Give up the preview of an event under back-pressure, and say so in the event. Rare, so plain `json` will do."""

from __future__ import annotations

import json

_WITH_PREVIEW = (b'{"type":"tool_call_start"', b'{"type":"tool_call_end"')


def without_preview(line: bytes) -> tuple[bytes, int]:
    """The line without its preview text, and how many previews were shed (0 or 1)."""
    if not line.startswith(_WITH_PREVIEW):
        return line, 0
    try:
        event = json.loads(line)
        holder = event["call"] if event["type"] == "tool_call_start" else event
        preview = holder["preview"]
    except (ValueError, KeyError, TypeError):
        return line, 0
    if not preview.keys() & {"args_preview", "result_preview"}:
        return line, 0
    holder["preview"] = {"truncated": True, "shed": True}
    return json.dumps(event, separators=(",", ":"), ensure_ascii=False).encode() + b"\n", 1
