"""What a provider states of a message, as it may stand in an event: its words masked and cut, whole numbers only."""

from __future__ import annotations

from subluminal.core.redact.preview import preview
from subluminal.core.redact.redactor import MARGIN

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from subluminal.core.redact.redactor import Redactor

TEXTS, NUMBERS, TRUTHS = "text", "number", "truth"
# In the order of `contracts.events.MessageStated`.
FIELDS = {
    **dict.fromkeys(("message_id", "model", "stop_reason"), TEXTS),
    **dict.fromkeys(("input_tokens", "output_tokens"), NUMBERS),
    **dict.fromkeys(("cache_creation_input_tokens", "cache_read_input_tokens"), NUMBERS),
    **dict.fromkeys(("reasoning_tokens", "server_tool_requests"), NUMBERS),
    "cached_in_input": TRUTHS,
    "api": TEXTS,
}
MAX_BYTES = 256
# Beyond what every JSON reader takes for a whole number nothing is a count of tokens.
MAX_NUMBER = (1 << 53) - 1


def stated(usage: Mapping[str, Any], redactor: Redactor) -> dict[str, Any]:
    """What is of another kind than it should be was not stated."""
    found: dict[str, Any] = {}
    for name, kind in FIELDS.items():
        value = usage.get(name)
        if kind == TEXTS:
            if isinstance(value, str) and value:
                head = value[: MAX_BYTES + MARGIN + 1].encode("utf-8", "surrogatepass")
                found[name] = preview(head, MAX_BYTES, redactor)[0]
        elif kind == TRUTHS:
            if isinstance(value, bool):
                found[name] = value
        elif isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_NUMBER:
            found[name] = value
    return found
