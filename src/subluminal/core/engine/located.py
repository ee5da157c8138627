"""Values of arguments that effects look at: what a call costs, and which arguments make it the same call."""

from __future__ import annotations

from subluminal.contracts.canonical import canonical_bytes
from subluminal.core.engine.where import Where, too_many

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


def located_key(keys: list[str]) -> Callable[[Any, Judgement], bytes]:
    """Of a dedupe rule: equal if these arguments are, in canonical form. One that is not there equals only itself."""
    locators = [locator(key) for key in keys]

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
