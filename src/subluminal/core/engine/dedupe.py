"""Dedupe (§2.5): the same call again within a window of one that went through."""

from __future__ import annotations

from subluminal.contracts.vocabulary import BLOCK, DUPLICATE_CALL
from subluminal.core.engine.accumulators import Accumulator, with_args
from subluminal.core.engine.state import CLOCK_SLACK_MS, MARK

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from subluminal.core.engine.rules import Judgement, Outcome, Refusal


class DedupeRule(Accumulator):
    """Remembers when a call went through; the same arguments within the window are a duplicate.

    The same: all of them, or with `key: custom` those that `key_args` names.
    """

    __slots__ = ("_key_args", "_marked", "_on_duplicate", "_window_ms")

    def __init__(self, number: int, spec: dict[str, Any]) -> None:
        super().__init__(number, spec)
        self._window_ms = self.number_of("window_ms")
        self._on_duplicate: str = self.detail.get("on_duplicate") or BLOCK
        self._key_args: list[str] = self.detail.get("key_args") or []
        self._marked: Callable[[Any, Judgement], bytes] = with_args
        if self.detail.get("key") == "custom":
            from subluminal.core.engine.located import located_key

            self._marked = located_key(self._key_args)

    def keys(self, policy: str, server_name: str, tool_name: str) -> Any:
        return self.digest(policy, server_name, tool_name, *self._key_args)

    def apply(self, judgement: Judgement, outcome: Outcome, keys: Any) -> Refusal | None:
        if judgement.counted:
            return None
        key = self._marked(keys, judgement)
        now = self.now(judgement)
        mark = judgement.state.get(self.wide + MARK, key)
        # Also where it is refused: the mark stands if an allow overrides that.
        outcome.if_allowed.append((self.wide + MARK, key, (now, 0)))
        if mark is not None and -CLOCK_SLACK_MS <= now - mark[0] < self._window_ms:
            return self.refuse(self._on_duplicate, DUPLICATE_CALL, {"window_ms": self._window_ms, "count": 2})
        return None

    def peek(self, judgement: Judgement, keys: Any) -> Any:
        mark = judgement.state.get(self.wide + MARK, self._marked(keys, judgement))
        return {"last_ms_ago": None if mark is None else self.now(judgement) - mark[0]}
