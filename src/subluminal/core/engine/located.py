"""Values of arguments that effects look at: what a call costs, and which arguments make it the same call."""

from __future__ import annotations

from subluminal.contracts.canonical import canonical_bytes
from subluminal.core.engine.where import Where, held_in, parse_path, too_many

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from subluminal.core.engine.rules import Judgement


def locator(key: str) -> Callable[[dict[str, Any]], list[Any]]:
    """The values that a key leads to."""
    where = Where(key)

    def locate(args: dict[str, Any]) -> list[Any]:
        found = where.locate(args, generous=True, listed=False)
        if not found.complete:
            raise too_many(key)
        return found.values

    return locate


def _told_apart(key: str) -> Callable[[dict[str, Any]], list[Any]]:
    """As `locator`, each call read in one way only: what a server ignores must not make another call of the same.

    Where the path leads to something, a top-level key that is spelled like the path is not looked at; and a text that
    holds JSON stands for what it holds, with whatever white space.
    """
    locate, steps = locator(key), parse_path(key) or [key]
    if len(steps) == 1:
        return locate
    first = str(steps[0])

    def told_apart(args: dict[str, Any]) -> list[Any]:
        text = args.get(first)
        held = held_in(text) if isinstance(text, str) else None
        path = {first: args[first] if held is None else held} if first in args else {}
        return locate(path) or ([args[key]] if key in args else [])

    return told_apart


def located_key(keys: list[str]) -> Callable[[Any, Judgement], bytes]:
    """Of a dedupe rule: equal if these arguments are, in canonical form. One that is not there equals only itself."""
    locators = [_told_apart(key) for key in keys]

    def marked(prefix: Any, judgement: Judgement) -> bytes:
        args = judgement.args()
        state = prefix.copy()
        state.update(b"located:")
        for locate in locators:
            values = locate(args)
            state.update(b"%d;" % len(values))
            for value in values:
                raw = canonical_bytes(value)
                state.update(b"%d:" % len(raw) + raw)
        key: bytes = state.digest()
        return key

    return marked
