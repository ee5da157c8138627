"""What the messages of a run's models came to (`ledger.fold.usage`), in words. What was not stated is unknown."""

from __future__ import annotations

from typing import Any

_CACHED = {True: ", counted in", False: ", not counted in", None: ""}


def usage_told(usage: dict[str, Any]) -> str:
    """One line: `3 messages, tokens: 1,200 in, 400 out (1 message did not say), 300 from the cache, counted in`."""
    read, written = usage["cache_read_input_tokens"], usage["cache_creation_input_tokens"]
    included = _CACHED[usage["cached_in_input"]] if read["sum"] else ""
    parts = [
        _amount(usage["input_tokens"], "in"),
        _amount(usage["output_tokens"], "out"),
        _amount(read, "from the cache") + included,
    ]
    if written["sum"]:
        parts.append(_amount(written, "written to it"))
    return f"{_messages(usage['messages'])}, tokens: {', '.join(parts)}"


def _amount(total: dict[str, Any], word: str) -> str:
    if total["sum"] is None:
        return f"unknown {word}"
    silent = f" ({_messages(total['unstated'])} did not say)" if total["unstated"] else ""
    return f"{total['sum']:,} {word}{silent}"


def _messages(count: int) -> str:
    return "1 message" if count == 1 else f"{count:,} messages"
