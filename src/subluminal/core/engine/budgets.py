"""Budgets (§2.5): so many calls or cost units, of a scope as a whole or within any stretch of time.

A budget with a window has an entry for each of its limits, in the pool of the other budgets: no flood of windows of
other kinds pushes it out. Its values begin with their grain (zero for timestamps) and their window in milliseconds, so
that a policy whose limit or window has changed goes on from what was charged before. Times stand from the third on,
where entries of these pools have theirs.
"""

from __future__ import annotations

from subluminal.contracts.digest import blake2b
from subluminal.contracts.vocabulary import BLOCK, BUDGET_EXCEEDED
from subluminal.core.engine.accumulators import Accumulator
from subluminal.core.engine.state import KEY_BYTES, KEYED, MAX_INTEGER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from subluminal.core.engine.prices import Price
    from subluminal.core.engine.rules import Judgement, Outcome, Refusal
    from subluminal.core.engine.sliding import Sliding
    from subluminal.core.engine.state import Op

_NOTHING = (0, 0, 0)
CALLS, UNITS = "calls", "cost units"


class BudgetRule(Accumulator):
    """Charges every attempt that still fits; one that does not fit is refused and charges nothing.

    `keys`: the entry, that of the units of a budget with a window, and what a call of this tool costs at least.
    """

    __slots__ = ("_cost", "_limit_calls", "_limit_cost", "_on_exceed", "_price", "_sliding", "_window_ms")
    hint_kind = "BUDGET"

    def __init__(self, number: int, spec: dict[str, Any]) -> None:
        super().__init__(number, spec)
        calls, cost = self.detail.get("limit_calls"), self.detail.get("limit_cost_units")
        self._limit_calls = MAX_INTEGER if calls is None else min(int(calls), MAX_INTEGER)
        self._limit_cost = MAX_INTEGER if cost is None else min(int(cost), MAX_INTEGER)
        per_call = self.detail.get("cost_units_per_call")
        self._cost = 1 if per_call is None else min(int(per_call), MAX_INTEGER)
        self._on_exceed: str = self.detail.get("on_exceed") or BLOCK
        self._price: Price | None = None
        if cost is not None and (self.detail.get("cost_units_from") or self.detail.get("cost_units_by_tool")):
            from subluminal.core.engine.prices import Price

            self._price = Price(self.detail, self._cost)
        self._window_ms = self.number_of("window_ms")
        self._sliding: tuple[Sliding | None, Sliding | None] | None = None
        if self._window_ms:
            from subluminal.core.engine.sliding import Sliding

            self._sliding = (
                None if calls is None else Sliding(self._limit_calls, self._window_ms, weighted=False),
                None if cost is None else Sliding(self._limit_cost, self._window_ms, weighted=True),
            )

    def keys(self, policy: str, server_name: str, tool_name: str) -> Any:
        key = self.digest(policy, server_name, tool_name, *(("window",) if self._window_ms else ())).digest()
        units = blake2b(key + b"units", digest_size=KEY_BYTES).digest() if self._window_ms else key
        return key, units, self._cost if self._price is None else self._price.at_least(tool_name)

    def apply(self, judgement: Judgement, outcome: Outcome, keys: Any) -> Refusal | None:
        if judgement.counted:
            return None
        key, _, price = keys
        if self._price is not None:
            price = self._price(judgement, price)
        if self._sliding is not None:
            return self._apply_within(self._sliding, judgement, outcome, keys, price)
        values = judgement.state.get(self.pool, key)
        calls, cost, _ = values or _NOTHING
        if calls < self._limit_calls and cost + price <= self._limit_cost:
            judgement.always.append((self.pool, key, (calls + 1, cost + price, 0)))
            if values is None:
                judgement.always.append(self._label(key, outcome, judgement, "limit_calls", "limit_cost_units"))
            if self.wide:
                judgement.always += self._used_by(judgement, key, outcome.engine.state_name)
            return None
        # Written again unchanged, so that a counter in use is not the least recently written one.
        judgement.always.append((self.pool, key, (calls, cost, 0)))
        if calls >= self._limit_calls:
            return self._refuse(self._limit_calls, calls, CALLS)
        return self._refuse(self._limit_cost, cost, UNITS)

    def _apply_within(
        self,
        sliding: tuple[Sliding | None, Sliding | None],
        judgement: Judgement,
        outcome: Outcome,
        keys: Any,
        price: int,
    ) -> Refusal | None:
        now, get = self.now(judgement), judgement.state.get
        charges: list[Op] = []
        unchanged: list[Op] = []
        refusal = None
        wait_ms, waits = 0, True
        for limit, key, units, unit in zip(sliding, keys, (1, price), (CALLS, UNITS), strict=False):
            if limit is None:
                continue
            found = get(self.pool, key)
            values = limit.adopted(found, now)
            used = limit.used(values, now)
            charges.append((self.pool, key, limit.charged(values, now, units)))
            if found is None or found[:2] != values[:2]:
                charges.append(self._label(key, outcome, judgement, _FIELDS[unit], "window_ms"))
            if found is not None:
                unchanged.append((self.pool, key, found))
            if used + units > limit.threshold:
                refusal = refusal or self._refuse(limit.threshold, used, unit)
                wait = limit.wait_ms(values, now, units)
                wait_ms, waits = max(wait_ms, wait), waits and wait > 0
        if refusal is None:
            judgement.always += charges
            if self.wide:
                judgement.always += self._used_by(judgement, keys[0], outcome.engine.state_name)
            return None
        judgement.always += unchanged
        refusal.facts["window_ms"] = self._window_ms
        if waits:
            refusal.facts["backoff_ms"] = wait_ms
        return refusal

    def _refuse(self, limit: int, used: int, unit: str) -> Refusal:
        return self.refuse(self._on_exceed, BUDGET_EXCEEDED, {"limit": limit, "used": used, "unit": unit})

    def _used_by(self, judgement: Judgement, key: bytes, policy_id: str) -> list[Op]:
        """Who used a wide entry: the calls of each run, and when the last was."""
        mine = blake2b(key + self._user.encode("utf-8", "surrogatepass"), digest_size=KEY_BYTES).digest()
        values = judgement.state.get(self.wide + KEYED, mine)
        calls, _, at_ms = values or _NOTHING
        if self._window_ms and judgement.wide_ms - at_ms >= self._window_ms:
            calls = 0
        ops: list[Op] = [(self.wide + KEYED, mine, (calls + 1, 0, judgement.wide_ms))]
        if values is None:
            window = {"window_ms": self._window_ms} if self._window_ms else {}
            ops.append(self.label(mine, policy_id, judgement.call, used_by=self._user[:48], **window))
        return ops

    def _label(self, key: bytes, outcome: Outcome, judgement: Judgement, *fields: str) -> Op:
        limits = {name: self.detail[name] for name in fields if self.detail.get(name) is not None}
        return self.label(key, outcome.engine.state_name, judgement.call, **limits)

    def peek(self, judgement: Judgement, keys: Any) -> Any:
        get = judgement.state.get
        if self._sliding is None:
            calls, cost, _ = get(self.pool, keys[0]) or _NOTHING
            return {"calls": calls, "cost_units": cost}
        now = self.now(judgement)
        return {
            name: limit.used(limit.adopted(get(self.pool, key), now), now)
            for name, limit, key in zip(("calls", "cost_units"), self._sliding, keys, strict=False)
            if limit is not None
        }


_FIELDS = {CALLS: "limit_calls", UNITS: "limit_cost_units"}
