"""The client's own id of a call, by which the record of one door is matched with another's and with the agent's words.

Apart from `toolcall`, whose types take longer to import than `sub show` may take to start.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

# Under `call_context`, by which clients name a single call; the rest of it names threads. The first is the one that
# every door of a client sees.
CALL_IDS = ("claudecode/toolUseId", "callId", "itemId")
MAX_ID_CHARS = 256


def call_ids(call_context: Mapping[str, Any] | None) -> list[str]:
    """Every id that the client gave the call."""
    found = [call_context.get(name) for name in CALL_IDS] if call_context else []
    return [value for value in found if isinstance(value, str) and 0 < len(value) <= MAX_ID_CHARS]


def tool_use_id(call_context: Mapping[str, Any] | None) -> str | None:
    return next(iter(call_ids(call_context)), None)
