"""The rules of a snapshot as objects: what each remembers of its `match` and `effect`, prepared once.

`Rule` is the head that every kind shares; the kinds with state are in `accumulators`. Time, arguments and state come
in through `Judgement`; nothing here decides between rules. What is made for every call is a `Struct`, which msgspec
fills without running Python code.
"""

from __future__ import annotations

from msgspec import Struct

from subluminal.contracts.vocabulary import ALLOW, ALLOWLIST_MATCH, BLOCK, DENYLIST_MATCH, UNINSPECTED_ARGS
from subluminal.core.engine.faults import Unavailable
from subluminal.core.engine.matchers import args_match
from subluminal.core.engine.names import name_match
from subluminal.core.engine.state import MAX_INTEGER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from subluminal.contracts.toolcall import ToolCall
    from subluminal.core.engine.accumulators import BreakerRule
    from subluminal.core.engine.bundle import Engine
    from subluminal.core.engine.state import Op, State

    # What `settle` needs of a breaker that watches a call: its bundle, itself, its keys, and whose call it was.
    Watch = list[tuple[Engine, BreakerRule, Any, ToolCall]]

    Trip = dict[str, Any]


class Judgement(Struct, eq=False, gc=False):
    """One call while it is judged: what the rules may look at, and what they gather."""

    call: ToolCall
    read_args: Callable[[], Any]
    read_args_hash: Callable[[], str]
    wall_ms: int
    mono_ms: int
    state: State
    wide_ms: int = 0  # the time of scopes that outlive the run
    counted: bool = False  # an earlier leg, or another door, has been charged for this call
    always: list[Op] = []  # applied whatever is decided: an attempt counts
    trips: list[Trip] = []

    def args(self) -> dict[str, Any]:
        read = self.read_args
        args = read()
        if isinstance(args, dict):
            return args
        raise Unavailable(UNINSPECTED_ARGS) if args is None else TypeError("arguments are not an object")

    def args_key(self) -> bytes:
        """What says that two calls have the same arguments: `args_hash`, else the hash of their bytes as sent.

        Nobody makes the one look like the other.
        """
        read = self.read_args_hash
        args_hash = read()
        if args_hash:
            return args_hash.encode()
        if self.call.args_raw_hash is None:
            raise Unavailable(UNINSPECTED_ARGS)
        return b"raw:" + self.call.args_raw_hash.encode()


class Refusal(Struct, eq=False, gc=False):
    """A rule that wants this call refused: the action it asks for, why, and the numbers behind it."""

    rule: Rule | None
    action: str
    reason_code: str
    facts: dict[str, Any] = {}


class Outcome(Struct, eq=False, gc=False):
    """What one bundle makes of a call, before the bundles are compared."""

    engine: Engine
    tags: frozenset[str]
    tagged: frozenset[str]  # those that the policy itself gave
    suspected: frozenset[str] = frozenset()  # given by a reading alone: never lets a call through
    refusal: Refusal | None = None
    access: AccessRule | None = None
    failed: Refusal | None = None  # a rule that could not be evaluated and was passed over
    if_allowed: list[Op] = []  # applied only if the call goes through
    watch: Watch = []


class Rule:
    """The head of every rule. `detail` is the effect object of its kind."""

    __slots__ = (
        "args", "detail", "hours", "kind", "message", "number", "reason_code", "risk", "rule_id", "server", "severity",
        "tool",
    )  # fmt: skip
    hint_kind: str | None = None

    def __init__(self, number: int, spec: dict[str, Any]) -> None:
        match = spec.get("match") or {}
        effect = spec.get("effect") or {}
        self.number = number
        self.rule_id: str = spec["rule_id"]
        self.kind: str = spec["kind"]
        self.severity: str = spec.get("severity") or "warn"
        self.server = name_match(match.get("server_name"))
        self.tool = name_match(match.get("tool_name"))
        risk = match.get("risk_class")
        self.risk = None if risk is None else frozenset(risk)
        # What stops a call is judged generously, what lets it through strictly.
        self.args = args_match(match.get("args"), generous=self.kind != "allow")
        hours = (match.get("time") or {}).get("utc_hours")
        self.hours = None if hours is None else frozenset(hours)
        self.detail: dict[str, Any] = {**effect, **(effect.get(self.kind) or {})}
        self.message: str | None = self.detail.get("message")
        self.reason_code: str | None = self.detail.get("reason_code")

    def classed(self, outcome: Outcome) -> bool:
        """Whether the call has a class that `risk_class` asks for."""
        seen = outcome.tags if self.kind == "allow" else outcome.tags | outcome.suspected
        return self.risk is None or not self.risk.isdisjoint(seen)

    @property
    def conditional(self) -> bool:
        """Whether this call's arguments or the time of day matter."""
        return self.args is not None or self.hours is not None

    def holds(self, judgement: Judgement) -> bool:
        """The part of the match that the plan could not settle."""
        if self.hours is not None and judgement.wall_ms // 3_600_000 % 24 not in self.hours:
            return False
        # As a method, because the call of an object goes a longer way through the interpreter.
        return self.args is None or self.args.__call__(judgement.args())

    def apply(self, judgement: Judgement, outcome: Outcome, keys: Any) -> Refusal | None:
        """What follows from a match: changes of the outcome, operations gathered, or the wish to refuse."""
        raise TypeError("a rule is one of its kinds")

    def number_of(self, name: str, default: int = 0) -> int:
        return min(int(self.detail.get(name) or default), MAX_INTEGER)


class AccessRule(Rule):
    """allow and deny."""

    __slots__ = ("action", "overrides")

    def __init__(self, number: int, spec: dict[str, Any]) -> None:
        super().__init__(number, spec)
        wanted = self.detail.get("action")
        # The kinds of this bundle whose refusals do not count where this rule decides access.
        self.overrides = frozenset(self.detail.get("override") or ()) if self.kind == "allow" else frozenset()
        if self.kind == "allow":
            self.action = ALLOW
            self.reason_code = self.reason_code or ALLOWLIST_MATCH
        else:
            self.action = wanted if wanted and wanted != ALLOW else BLOCK
            self.reason_code = self.reason_code or DENYLIST_MATCH

    def apply(self, judgement: Judgement, outcome: Outcome, keys: Any) -> Refusal | None:
        outcome.access = self
        return None if self.action == ALLOW else Refusal(self, self.action, self.reason_code or "")


class TagRule(Rule):
    """Its match is generous; only what matches strictly as well becomes a class that can let a call through."""

    __slots__ = ("_strict", "adds")

    def __init__(self, number: int, spec: dict[str, Any]) -> None:
        super().__init__(number, spec)
        self._strict = args_match((spec.get("match") or {}).get("args"), generous=False)
        self.adds = frozenset(self.detail.get("add_risk_class") or ())

    def apply(self, judgement: Judgement, outcome: Outcome, keys: Any) -> Refusal | None:
        if (self.risk is None or self.risk & outcome.tags) and (self._strict is None or self._strict(judgement.args())):
            outcome.tags |= self.adds
            outcome.tagged |= self.adds
        else:
            outcome.suspected |= self.adds
        return None
