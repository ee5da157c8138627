"""The rules that keep state: budget, rate_limit, dedupe, breaker (§2.5).

Each reads its entries and gathers operations; none changes state itself. Keys are digests of the policy, the rule and
the scope: `run` is one entry per rule, `tool` one per tool name, `server_tool` one per server and tool. `agent`,
`principal` and `machine` outlive the run: one per agent id, per principal, and one for this SUB_HOME. A leg that
continues a call, and another door that sees the same one (`claims`), is neither charged nor counted again.
"""

from __future__ import annotations

from subluminal.contracts.digest import blake2b
from subluminal.contracts.jsontext import to_json
from subluminal.contracts.vocabulary import (
    BLOCK,
    BREAKER_ERRORS,
    BREAKER_LATENCY,
    BREAKER_REPEAT,
    BUDGET_EXCEEDED,
    DUPLICATE_CALL,
    RATE_LIMITED,
)
from subluminal.core.engine.rules import AccessRule, Refusal, Rule, TagRule
from subluminal.core.engine.state import (
    CLOCK_SLACK_MS,
    KEY_BYTES,
    KEYED,
    LABEL,
    MARK,
    MAX_INTEGER,
    RUN,
    WIDE,
    WINDOW,
)
from subluminal.core.engine.windows import Window

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from subluminal.contracts.identity import Identity
    from subluminal.contracts.toolcall import ToolCall
    from subluminal.core.engine.places import Places
    from subluminal.core.engine.rules import Judgement, Outcome, Trip
    from subluminal.core.engine.state import Op, State


_NOTHING = (0, 0, 0)
WIDE_SCOPES = ("agent", "principal", "machine")


class Accumulator(Rule):
    """A rule with state. `keys` are made once per (server, tool). `wide`: its scope outlives the run."""

    __slots__ = ("_owner", "_user", "pool", "scope", "wide")

    def __init__(self, number: int, spec: dict[str, Any]) -> None:
        super().__init__(number, spec)
        self.scope: str = self.detail.get("scope") or "run"
        self.wide = WIDE if self.scope in WIDE_SCOPES else 0
        self.pool = self.wide + (KEYED if self.scope in ("tool", "server_tool") else RUN)
        self._owner = self._user = ""

    def belongs_to(self, identity: Identity) -> None:
        """Whose entries a wide scope has: who is not known shares one with all who are not."""
        owners = {"agent": identity.agent_id, "principal": identity.principal or "unknown"}
        self._owner = owners.get(self.scope, "")
        self._user = identity.run_id

    def keys(self, policy: str, server_name: str, tool_name: str) -> Any:
        return self.digest(policy, server_name, tool_name).digest()

    def digest(self, policy: str, server_name: str, tool_name: str, *more: str) -> Any:
        """Unambiguous: every part is preceded by its length."""
        parts = [policy, self.rule_id, self.kind, self.scope, *more]
        if self.wide:
            parts.append(self._owner)
        elif self.scope != "run":
            parts.append(tool_name)
        if self.scope == "server_tool":
            parts.append(server_name)
        state = blake2b(digest_size=KEY_BYTES)
        for part in parts:
            raw = part.encode("utf-8", "surrogatepass")
            state.update(b"%d:" % len(raw) + raw)
        return state

    def now(self, judgement: Judgement) -> int:
        return judgement.wide_ms if self.wide else judgement.mono_ms

    def label(self, key: bytes, policy_id: str, call: ToolCall, **more: object) -> Op:
        """What the entry is, for people; said when it is made."""
        facts: dict[str, object] = {"policy_id": policy_id, "rule_id": self.rule_id, "kind": self.kind}
        facts["scope"] = self.scope
        if self.wide:
            facts["of"] = self._owner
        elif self.scope != "run":
            facts["tool"] = call.tool_name[:64]
        if self.scope == "server_tool":
            facts["server"] = call.server_name[:32]
        return (self.wide + LABEL, key, to_json({**facts, **more}).encode("utf-8", "replace"))

    def used_by(self, judgement: Judgement, keys: bytes, policy_id: str) -> list[Op]:
        """Who used a wide entry: the calls of each run."""
        key = blake2b(keys + self._user.encode("utf-8", "surrogatepass"), digest_size=KEY_BYTES).digest()
        values = judgement.state.get(self.wide + KEYED, key)
        calls = 0 if values is None else values[0]
        ops: list[Op] = [(self.wide + KEYED, key, (calls + 1, 0, judgement.wide_ms))]
        if values is None:
            ops.append(self.label(key, policy_id, judgement.call, used_by=self._user[:48]))
        return ops

    def peek(self, judgement: Judgement, keys: Any) -> Any:
        """The state as a trace shows it."""
        raise TypeError("an accumulator is one of its kinds")


class BudgetRule(Accumulator):
    """Charges every attempt that still fits; one that does not fit is refused and charges nothing."""

    __slots__ = ("_cost", "_limit_calls", "_limit_cost", "_on_exceed")
    hint_kind = "BUDGET"

    def __init__(self, number: int, spec: dict[str, Any]) -> None:
        super().__init__(number, spec)
        calls, cost = self.detail.get("limit_calls"), self.detail.get("limit_cost_units")
        self._limit_calls = MAX_INTEGER if calls is None else min(int(calls), MAX_INTEGER)
        self._limit_cost = MAX_INTEGER if cost is None else min(int(cost), MAX_INTEGER)
        per_call = self.detail.get("cost_units_per_call")
        self._cost = 1 if per_call is None else min(int(per_call), MAX_INTEGER)
        self._on_exceed: str = self.detail.get("on_exceed") or BLOCK

    def apply(self, judgement: Judgement, outcome: Outcome, keys: Any) -> Refusal | None:
        if judgement.counted:
            return None
        values = judgement.state.get(self.pool, keys)
        calls, cost, _ = values or _NOTHING
        if calls < self._limit_calls and cost + self._cost <= self._limit_cost:
            judgement.always.append((self.pool, keys, (calls + 1, cost + self._cost, 0)))
            if values is None:
                judgement.always.append(self._label(keys, outcome, judgement))
            if self.wide:
                judgement.always += self.used_by(judgement, keys, outcome.engine.state_name)
            return None
        # Written again unchanged, so that a counter in use is not the least recently written one.
        judgement.always.append((self.pool, keys, (calls, cost, 0)))
        facts: dict[str, Any] = {"scope": self.scope}
        if calls >= self._limit_calls:
            facts.update(limit=self._limit_calls, used=calls, unit="calls")
        else:
            facts.update(limit=self._limit_cost, used=cost, unit="cost units")
        return Refusal(self, self._on_exceed, self.reason_code or BUDGET_EXCEEDED, facts)

    def _label(self, keys: bytes, outcome: Outcome, judgement: Judgement) -> Op:
        limits = {name: self.detail[name] for name in ("limit_calls", "limit_cost_units") if self.detail.get(name)}
        return self.label(keys, outcome.engine.state_name, judgement.call, **limits)

    def peek(self, judgement: Judgement, keys: Any) -> Any:
        calls, cost, _ = judgement.state.get(self.pool, keys) or _NOTHING
        return {"calls": calls, "cost_units": cost}


class RateRule(Accumulator):
    """A token bucket in integers: what does not make a whole token yet is carried as a remainder, so nothing drifts."""

    __slots__ = ("_backoff_ms", "_capacity", "_cost", "_on_limit", "_period_ms", "_refill")
    hint_kind = "RATE"

    def __init__(self, number: int, spec: dict[str, Any]) -> None:
        super().__init__(number, spec)
        self._capacity = self.number_of("capacity")
        self._refill = self.number_of("refill_tokens")
        self._period_ms = max(1, self.number_of("refill_period_ms", 1))
        cost = self.detail.get("cost_tokens_per_call")
        self._cost = 1 if cost is None else min(int(cost), MAX_INTEGER)
        self._on_limit: str = self.detail.get("on_limit") or "THROTTLE"
        self._backoff_ms = self.number_of("backoff_ms")

    def bucket(self, values: tuple[int, ...] | None, now: int) -> tuple[int, int, int]:
        """Tokens, remainder and time of the bucket as it stands now."""
        if values is None:
            return self._capacity, 0, now
        tokens, remainder, at_ms = values
        if at_ms > now + CLOCK_SLACK_MS:
            return min(tokens, self._capacity), 0, now
        if now > at_ms:
            gained, remainder = divmod((now - at_ms) * self._refill + remainder, self._period_ms)
            tokens += gained
            at_ms = now
        if tokens >= self._capacity:
            return self._capacity, 0, at_ms
        return tokens, remainder, at_ms

    def apply(self, judgement: Judgement, outcome: Outcome, keys: Any) -> Refusal | None:
        if judgement.counted:
            return None
        values = judgement.state.get(self.pool, keys)
        tokens, remainder, at_ms = self.bucket(values, self.now(judgement))
        if tokens >= self._cost:
            outcome.if_allowed.append((self.pool, keys, (tokens - self._cost, remainder, at_ms)))
            if values is None:
                outcome.if_allowed.append(
                    self.label(keys, outcome.engine.state_name, judgement.call, capacity=self._capacity)
                )
            return None
        facts = {"scope": self.scope, "limit": self._capacity, "used": self._capacity - tokens}
        facts["backoff_ms"] = self._backoff_ms or self._wait_ms(tokens, remainder)
        return Refusal(self, self._on_limit, self.reason_code or RATE_LIMITED, facts)

    def peek(self, judgement: Judgement, keys: Any) -> Any:
        values = judgement.state.get(self.pool, keys)
        return {"tokens": self.bucket(values, self.now(judgement))[0]}

    def _wait_ms(self, tokens: int, remainder: int) -> int:
        """How long until the bucket holds enough; zero if it never will."""
        if not self._refill or self._cost > self._capacity:
            return 0
        return -(-((self._cost - tokens) * self._period_ms - remainder) // self._refill)


class DedupeRule(Accumulator):
    """Remembers when a call went through; the same arguments within the window are a duplicate."""

    __slots__ = ("_on_duplicate", "_window_ms")

    def __init__(self, number: int, spec: dict[str, Any]) -> None:
        super().__init__(number, spec)
        self._window_ms = self.number_of("window_ms")
        self._on_duplicate: str = self.detail.get("on_duplicate") or BLOCK

    def keys(self, policy: str, server_name: str, tool_name: str) -> Any:
        return self.digest(policy, server_name, tool_name)

    def apply(self, judgement: Judgement, outcome: Outcome, keys: Any) -> Refusal | None:
        if judgement.counted:
            return None
        key = _with_args(keys, judgement)
        now = self.now(judgement)
        mark = judgement.state.get(self.wide + MARK, key)
        if mark is not None and -CLOCK_SLACK_MS <= now - mark[0] < self._window_ms:
            facts = {"scope": self.scope, "window_ms": self._window_ms, "count": 2}
            return Refusal(self, self._on_duplicate, self.reason_code or DUPLICATE_CALL, facts)
        outcome.if_allowed.append((self.wide + MARK, key, (now, 0)))
        return None

    def peek(self, judgement: Judgement, keys: Any) -> Any:
        mark = judgement.state.get(self.wide + MARK, _with_args(keys, judgement))
        return {"last_ms_ago": None if mark is None else self.now(judgement) - mark[0]}


class BreakerRule(Accumulator):
    """Trips on errors, on slow calls, or on the same call made again and again."""

    __slots__ = ("errors", "on_trip", "repeats", "slow", "slow_ms", "watches", "windows")

    def __init__(self, number: int, spec: dict[str, Any]) -> None:
        super().__init__(number, spec)
        window_ms = self.number_of("window_ms")
        self.errors = _window(self.number_of("error_threshold"), window_ms)
        self.repeats = _window(self.number_of("repeat_threshold"), self.number_of("repeat_window_ms"))
        self.slow_ms = self.number_of("latency_threshold_ms")
        self.slow = _window(self.number_of("latency_count", 1), window_ms) if self.slow_ms else None
        self.on_trip: str = self.detail.get("on_trip") or BLOCK
        self.windows = self.wide + WINDOW
        # Whether it must be told how calls end.
        self.watches = self.errors is not None or self.slow is not None

    def keys(self, policy: str, server_name: str, tool_name: str) -> Any:
        # A repeat is always of the same tool, whatever the scope.
        repeats = self.digest(policy, server_name, tool_name, "repeat", tool_name) if self.repeats else None
        errors = self.digest(policy, server_name, tool_name, "errors").digest()
        slow = self.digest(policy, server_name, tool_name, "slow").digest()
        return errors, slow, repeats

    def apply(self, judgement: Judgement, outcome: Outcome, keys: Any) -> Refusal | None:
        errors, slow, repeats = keys
        if self.watches:
            outcome.watch.append((outcome.engine, self, keys, judgement.call))
        refusal = None
        if self.errors is not None:
            refusal = self._open(judgement, errors, self.errors, BREAKER_ERRORS)
        if self.slow is not None and refusal is None:
            refusal = self._open(judgement, slow, self.slow, BREAKER_LATENCY)
        if self.repeats is None or judgement.counted:
            return refusal
        key = _with_args(repeats, judgement)
        now = judgement.wide_ms if self.wide else judgement.mono_ms
        count, values = self.repeats.pushed(judgement.state.get(self.windows, key) or (), now)
        judgement.always.append((self.windows, key, values))
        if count == self.repeats.threshold:
            judgement.trips.append(trip(self, BREAKER_REPEAT, self.repeats))
        if count >= self.repeats.threshold and refusal is None:
            return self._refuse(BREAKER_REPEAT, self.repeats)
        return refusal

    def _open(self, judgement: Judgement, key: bytes, window: Window, reason_code: str) -> Refusal | None:
        values = judgement.state.get(self.windows, key)
        if values is None or window.count(values, self.now(judgement)) < window.threshold:
            return None
        return self._refuse(reason_code, window)

    def _refuse(self, reason_code: str, window: Window) -> Refusal:
        numbers = dict.fromkeys(("threshold", "limit", "count", "used"), window.threshold)
        facts = {"scope": self.scope, **numbers, "window_ms": window.window_ms}
        return Refusal(self, self.on_trip, self.reason_code or reason_code, facts)

    def feed(self, state: State, keys: Any, ok: bool, latency_ms: int, mono_ms: int) -> tuple[list[Op], list[Trip]]:
        """How a call ended: operations, and the trips they cause."""
        ops: list[Op] = []
        trips: list[Trip] = []
        errors, slow, _ = keys
        now = (state.wide_ms or mono_ms) if self.wide else mono_ms
        for hit, window, key, reason_code in (
            (not ok, self.errors, errors, BREAKER_ERRORS),
            (self.slow is not None and latency_ms > self.slow_ms, self.slow, slow, BREAKER_LATENCY),
        ):
            if not hit or window is None:
                continue
            values = state.get(self.windows, key) or ()
            ops.append((self.windows, key, window.push(values, now)))
            if window.count(values, now) + 1 == window.threshold:
                trips.append(trip(self, reason_code, window))
        return ops, trips

    def peek(self, judgement: Judgement, keys: Any) -> Any:
        seen: dict[str, int] = {}
        for name, window, key in (("errors", self.errors, keys[0]), ("slow", self.slow, keys[1])):
            if window is not None:
                seen[name] = self._count(judgement, window, key)
        if self.repeats is not None:
            seen["repeats"] = self._count(judgement, self.repeats, _with_args(keys[2], judgement))
        return seen

    def _count(self, judgement: Judgement, window: Window, key: bytes) -> int:
        return window.count(judgement.state.get(self.windows, key) or (), self.now(judgement))


def _window(threshold: int, window_ms: int) -> Window | None:
    return Window(threshold, window_ms) if threshold > 0 else None


def _with_args(prefix: Any, judgement: Judgement) -> bytes:
    state = prefix.copy()
    state.update(judgement.args_hash().encode())
    key: bytes = state.digest()
    return key


def trip(rule: Accumulator, reason_code: str, window: Window) -> Trip:
    """A breaker that has just tripped, with the members of the breaker_trip event."""
    return {
        "rule_id": rule.rule_id,
        "reason_code": reason_code,
        "scope": rule.scope,
        "threshold": window.threshold,
        "window_ms": window.window_ms,
    }


_KINDS: dict[str, type[Rule]] = {
    "allow": AccessRule,
    "deny": AccessRule,
    "tag": TagRule,
    "budget": BudgetRule,
    "rate_limit": RateRule,
    "breaker": BreakerRule,
    "dedupe": DedupeRule,
}


def build_rules(specs: list[dict[str, Any]], identity: Identity, places: Places | None = None) -> list[Rule]:
    """The enabled rules, in order."""
    rules = [_KINDS[spec["kind"]](number, spec) for number, spec in enumerate(specs) if spec.get("enabled", True)]
    for rule in rules:
        rule.prepare(places)
        if isinstance(rule, Accumulator):
            rule.belongs_to(identity)
    return rules
