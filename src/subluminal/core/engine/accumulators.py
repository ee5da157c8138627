"""The rules that keep state: what they share, rate_limit and breaker (§2.5); `budgets` and `dedupe` have the others.

Each reads its entries and gathers operations; none changes state itself. Keys are digests of the policy, the rule and
the scope: `run` is one entry per rule, `server` one per server name, `tool` one per tool name, `server_tool` one per
server and tool. `agent`, `principal` and `machine` outlive the run: one per agent id, per principal, and one for this
SUB_HOME. A leg that continues a call, and another door that sees the same one (`claims`), is neither charged nor
counted again.
"""

from __future__ import annotations

from subluminal.contracts.digest import blake2b
from subluminal.contracts.jsontext import to_json
from subluminal.contracts.vocabulary import (
    BLOCK,
    BREAKER_ERRORS,
    BREAKER_LATENCY,
    BREAKER_REPEAT,
    RATE_LIMITED,
)
from subluminal.core.engine.rules import AccessRule, Refusal, Rule, TagRule
from subluminal.core.engine.state import (
    CLOCK_SLACK_MS,
    KEY_BYTES,
    KEYED,
    LABEL,
    MAX_INTEGER,
    MAX_LABEL_BYTES,
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


WIDE_SCOPES = ("agent", "principal", "machine")
_OF_A_SERVER = ("server", "server_tool")
_OF_A_TOOL = ("tool", "server_tool")


class Accumulator(Rule):
    """A rule with state. `keys` are made once per (server, tool). `wide`: its scope outlives the run."""

    __slots__ = ("_owner", "_user", "pool", "scope", "wide")

    def __init__(self, number: int, spec: dict[str, Any]) -> None:
        super().__init__(number, spec)
        self.scope: str = self.detail.get("scope") or "run"
        self.wide = WIDE if self.scope in WIDE_SCOPES else 0
        self.pool = self.wide + (RUN if self.wide or self.scope == "run" else KEYED)
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
        if self.scope in _OF_A_TOOL:
            parts.append(tool_name)
        if self.scope in _OF_A_SERVER:
            parts.append(server_name)
        state = blake2b(digest_size=KEY_BYTES)
        for part in parts:
            raw = part.encode("utf-8", "surrogatepass")
            state.update(b"%d:" % len(raw) + raw)
        return state

    def now(self, judgement: Judgement) -> int:
        return judgement.wide_ms if self.wide else judgement.mono_ms

    def label(self, key: bytes, policy_id: str, call: ToolCall, **more: object) -> Op:
        """What the entry is, for people; said when it is made. Names are cut until it fits: half of it says nothing."""
        raw = b""
        for most in (64, 32, 16, 8, 0):
            facts: dict[str, object] = {"policy_id": policy_id[:most], "rule_id": self.rule_id[:most]}
            facts |= {"kind": self.kind, "scope": self.scope}
            if self.wide:
                facts["of"] = self._owner[:most]
            if self.scope in _OF_A_TOOL:
                facts["tool"] = call.tool_name[:most]
            if self.scope in _OF_A_SERVER:
                facts["server"] = call.server_name[:most]
            raw = to_json({**facts, **more}).encode("utf-8", "replace")
            if len(raw) <= MAX_LABEL_BYTES:
                break
        return (self.wide + LABEL, key, raw)

    def refuse(self, action: str, because: str, facts: dict[str, Any]) -> Refusal:
        """`because` is the engine's own code: it finds the words where the rule gives a code of its own."""
        facts["because"] = because
        return Refusal(self, action, self.reason_code or because, {"scope": self.scope, **facts})

    def peek(self, judgement: Judgement, keys: Any) -> Any:
        """The state as a trace shows it."""
        raise TypeError("an accumulator is one of its kinds")


class RateRule(Accumulator):
    """A token bucket in integers: what does not make a whole token yet is carried as a remainder, so nothing drifts."""

    __slots__ = ("_backoff_ms", "_capacity", "_on_limit", "_period_ms", "_refill", "cost")
    hint_kind = "RATE"

    def __init__(self, number: int, spec: dict[str, Any]) -> None:
        super().__init__(number, spec)
        self._capacity = self.number_of("capacity")
        self._refill = self.number_of("refill_tokens")
        self._period_ms = max(1, self.number_of("refill_period_ms", 1))
        cost = self.detail.get("cost_tokens_per_call")
        self.cost = 1 if cost is None else min(int(cost), MAX_INTEGER)
        self._on_limit: str = self.detail.get("on_limit") or "THROTTLE"
        self._backoff_ms = self.number_of("backoff_ms")

    def larger_than(self, other: RateRule) -> int:
        return self._capacity - other._capacity

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
        now = judgement.wide_ms if self.wide else judgement.mono_ms
        tokens, remainder, at_ms = self.bucket(values, now)
        if tokens >= self.cost:
            outcome.if_allowed.append((self.pool, keys, (tokens - self.cost, remainder, at_ms)))
            if values is None:
                outcome.if_allowed.append(
                    self.label(keys, outcome.engine.state_name, judgement.call, capacity=self._capacity)
                )
            return None
        facts = {"limit": self._capacity, "used": self._capacity - tokens}
        facts["backoff_ms"] = self._backoff_ms or self._wait_ms(tokens, remainder)
        return self.refuse(self._on_limit, RATE_LIMITED, facts)

    def peek(self, judgement: Judgement, keys: Any) -> Any:
        values = judgement.state.get(self.pool, keys)
        return {"tokens": self.bucket(values, self.now(judgement))[0]}

    def _wait_ms(self, tokens: int, remainder: int) -> int:
        """How long until the bucket holds enough; zero if it never will."""
        if not self._refill or self.cost > self._capacity:
            return 0
        return -(-((self.cost - tokens) * self._period_ms - remainder) // self._refill)


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
        get, pool = judgement.state.get, self.windows
        now = judgement.wide_ms if self.wide else judgement.mono_ms
        if self.errors is not None and (found := get(pool, errors)) is not None:
            refusal = self._open(found, now, self.errors, BREAKER_ERRORS)
        if self.slow is not None and refusal is None and (found := get(pool, slow)) is not None:
            refusal = self._open(found, now, self.slow, BREAKER_LATENCY)
        if self.repeats is None or judgement.counted:
            return refusal
        key = with_args(repeats, judgement)
        count, values = self.repeats.pushed(get(pool, key) or (), now)
        judgement.always.append((pool, key, values))
        if count >= self.repeats.threshold:
            if count == self.repeats.threshold:
                judgement.trips.append(trip(self, BREAKER_REPEAT, self.repeats))
            return refusal or self._refuse(BREAKER_REPEAT, self.repeats)
        return refusal

    def _open(self, values: tuple[int, ...], now: int, window: Window, reason_code: str) -> Refusal | None:
        return None if window.count(values, now) < window.threshold else self._refuse(reason_code, window)

    def _refuse(self, reason_code: str, window: Window) -> Refusal:
        numbers = dict.fromkeys(("threshold", "limit", "count", "used"), window.threshold)
        return self.refuse(self.on_trip, reason_code, {**numbers, "window_ms": window.window_ms})

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
            seen["repeats"] = self._count(judgement, self.repeats, with_args(keys[2], judgement))
        return seen

    def _count(self, judgement: Judgement, window: Window, key: bytes) -> int:
        return window.count(judgement.state.get(self.windows, key) or (), self.now(judgement))


def _window(threshold: int, window_ms: int) -> Window | None:
    return Window(threshold, window_ms) if threshold > 0 else None


def with_args(prefix: Any, judgement: Judgement) -> bytes:
    state = prefix.copy()
    read = judgement.read_args_hash
    args_hash = read()
    state.update(args_hash.encode() if args_hash else judgement.args_key())
    key: bytes = state.digest()
    return key


def trip(rule: Accumulator, reason_code: str, window: Window) -> Trip:
    """A breaker that has just tripped, with the members of the breaker_trip event."""
    return {
        "rule_id": rule.rule_id,
        "reason_code": rule.reason_code or reason_code,
        "scope": rule.scope,
        "threshold": window.threshold,
        "window_ms": window.window_ms,
    }


_KINDS: dict[str, type[Rule]] = {
    "allow": AccessRule,
    "deny": AccessRule,
    "tag": TagRule,
    "rate_limit": RateRule,
    "breaker": BreakerRule,
}


def _kind(name: str) -> type[Rule]:
    if name == "budget":
        from subluminal.core.engine.budgets import BudgetRule

        return BudgetRule
    if name == "dedupe":
        from subluminal.core.engine.dedupe import DedupeRule

        return DedupeRule
    if name == "schema":
        from subluminal.core.engine.schemas import SchemaRule

        return SchemaRule
    if name == "overdue":
        from subluminal.core.engine.overdue import OverdueRule

        return OverdueRule
    return _KINDS[name]


def _made_of(spec: dict[str, Any]) -> type[Rule]:
    kind = _kind(spec["kind"])
    if "promoted" not in spec:
        return kind
    from subluminal.core.engine.promoted import promoted_kind  # few runs have one

    return promoted_kind(kind, spec)


def build_rules(specs: list[dict[str, Any]], identity: Identity, places: Places | None = None) -> list[Rule]:
    """The enabled rules, in order."""
    rules = [_made_of(spec)(number, spec) for number, spec in enumerate(specs) if spec.get("enabled", True)]
    for rule in rules:
        rule.prepare(places)
        if isinstance(rule, Accumulator):
            rule.belongs_to(identity)
    return rules
