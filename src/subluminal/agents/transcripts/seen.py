"""A tool call as a client's own record tells it."""

from __future__ import annotations

from typing import Any

from msgspec import Struct, convert, field, json

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
    message: str = ""  # of the model: what it asked for at once has the same
    cut: bool = False  # a text in it was longer than MAX_TEXT


class SeenRun(Struct, eq=False):
    """Calls in the order of the record. `origin`: `claude`, `codex` or `ledger`."""

    run_id: str
    origin: str
    calls: list[SeenCall] = field(default_factory=list)


class Session:
    """The calls of one file while it is read: those that are open are known by their id."""

    def __init__(self) -> None:
        self.run_id = ""
        self.calls: list[SeenCall] = []
        self.unread = 0  # calls whose arguments are no object, or none that can be read
        self._open: dict[str, SeenCall] = {}

    def began(
        self, use_id: str, tool: tuple[str, str] | None, raw: bytes, at_ms: int, cwd: str, size: int, message: str
    ) -> None:
        """`tool`: None for what is no call. An id that is open already is the same call, told again."""
        if tool is None or use_id in self._open:
            return
        try:
            args = convert(json.decode(raw or b"{}"), dict[str, Any])
        except (ValueError, RecursionError):
            self.unread += 1
            return
        server_name, tool_name = tool
        whole, cut = within_bounds(args)
        call = self._open[use_id] = SeenCall(
            server_name, tool_name, whole, size, at_ms, cwd, use_id=use_id, message=message, cut=cut
        )
        self.calls.append(call)

    def ended(self, use_id: str, ok: bool, *, again: bool = False) -> None:
        """`again`: it knows better than what was told before."""
        call = self._open.get(use_id)
        if call is not None and (again or call.ok is None):
            call.ok = ok


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
