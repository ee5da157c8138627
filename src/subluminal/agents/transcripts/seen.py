"""A tool call as a client's own record tells it."""

from __future__ import annotations

from typing import Any

from msgspec import Struct, field

# Longer texts are file contents and the like: nobody lists them, and their beginning says what they are.
MAX_TEXT = 8_192
# Deeper arguments are passed over: no rule asks for them.
MAX_DEPTH = 16


class SeenCall(Struct, eq=False):
    """`size`: bytes of the arguments as JSON. `ok` is None where the record does not tell how it ended."""

    server_name: str
    tool_name: str
    args: dict[str, Any]
    size: int
    at_ms: int
    cwd: str = ""
    ok: bool | None = None
    use_id: str = ""
    cut: bool = False  # a text in it was longer than MAX_TEXT


class SeenRun(Struct, eq=False):
    """Calls in the order of the record. `origin`: `claude`, `codex` or `ledger`."""

    run_id: str
    origin: str
    calls: list[SeenCall] = field(default_factory=list)


class Unread(Struct, eq=False):
    """What was there and could not be used."""

    files: dict[str, str] = field(default_factory=dict)  # path -> why, in words
    lines: int = 0  # not JSON, torn, too long, or of another shape
    calls: int = 0  # whose arguments cannot be read whole


def within_bounds(args: dict[str, Any]) -> tuple[dict[str, Any], bool]:
    """The arguments with long texts cut, and whether one was."""
    cut = False

    def bounded(value: Any, depth: int) -> Any:
        nonlocal cut
        if isinstance(value, str):
            if len(value) > MAX_TEXT:
                cut = True
                return value[:MAX_TEXT]
            return value
        if depth > MAX_DEPTH:
            cut = True
            return None
        if isinstance(value, dict):
            return {key: bounded(item, depth + 1) for key, item in value.items()}
        if isinstance(value, list):
            return [bounded(item, depth + 1) for item in value]
        return value

    whole = {key: bounded(value, 0) for key, value in args.items()}
    return whole, cut
