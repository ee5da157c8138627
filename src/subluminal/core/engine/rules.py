"""The rules of a snapshot as objects: what each remembers of its `match` and `effect`, prepared once.

`Rule` is the head that every kind shares; the kinds with state are in `accumulators`. Time, arguments and state come
in through `Judgement`; nothing here decides between rules. What is made for every call is a `Struct`, which msgspec
fills without running Python code.
"""

from __future__ import annotations

from msgspec import Struct

from subluminal.contracts.vocabulary import ALLOW, ALLOWLIST_MATCH, BLOCK, DENYLIST_MATCH, UNINSPECTED_ARGS
from subluminal.core.engine.faults import Unavailable
from subluminal.core.engine.matchers import ArgsMatch, args_match
from subluminal.core.engine.names import name_match
from subluminal.core.engine.state import MAX_INTEGER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from subluminal.contracts.toolcall import ToolCall
    from subluminal.core.engine.accumulators import BreakerRule
    from subluminal.core.engine.bundle import Engine
    from subluminal.core.engine.conditions import Applies
    from subluminal.core.engine.places import Places
    from subluminal.core.engine.state import Op, State

    # What `settle` needs of a breaker that watches a call: its bundle, itself, its keys, and whose call it was.
    Watch = list[tuple[Engine, BreakerRule, Any, ToolCall]]

    Trip = dict[str, Any]


def frozen(wanted: list[Any] | None) -> frozenset[Any] | None:
    return None if wanted is None else frozenset(wanted)


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
    held: dict[str, Any] = {}  # the arguments, once they were asked for
    checked: dict[int, Any] | None = None  # what `SchemaRule`s have found, by their place in memory

    def args(self) -> dict[str, Any]:
        read = self.read_args
        args = read()
        if isinstance(args, dict):
            self.held = args
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
    promoted: Rule | None = None  # a person has put it in or raised it for this run, and it lets the call through
    if_allowed: list[Op] = []  # applied only if the call goes through
    watch: Watch = []


class Rule:
    """The head of every rule. `detail` is the effect object of its kind."""

    __slots__ = (
        "applies", "args", "detail", "hours", "kind", "match", "message", "number", "reason_code", "risk", "rule_id",
        "server", "severity", "spec", "tool", "unless",
    )  # fmt: skip
    hint_kind: str | None = None

    def __init__(self, number: int, spec: dict[str, Any]) -> None:
        effect = spec.get("effect") or {}
        self.number = number
        self.spec = spec
        self.rule_id: str = spec["rule_id"]
        self.kind: str = spec["kind"]
        self.severity: str = spec.get("severity") or "warn"
        self.match: dict[str, Any] = spec.get("match") or {}
        self.unless: dict[str, Any] | None = spec.get("unless")
        self.detail: dict[str, Any] = {**effect, **(effect.get(self.kind) or {})}
        self.message: str | None = self.detail.get("message")
        self.reason_code: str | None = self.detail.get("reason_code")

    def prepare(self, places: Places | None) -> None:
        """Make ready what the match asks. What stops a call is judged generously, what lets it through strictly."""
        match = self.match
        self.server = name_match(match.get("server_name"))
        self.tool = name_match(match.get("tool_name"))
        self.risk = frozen(match.get("risk_class"))
        self.hours = frozen((match.get("time") or {}).get("utc_hours"))
        args = match.get("args") or {}
        self.args: ArgsMatch | None = None
        self.applies: Applies | None = None
        if self.unless is None and "any_of" not in match and not args.get("bytes"):
            self.args = args_match(args, generous=self.generous, places=places)
        else:
            self.applies = self.judged(places, generous=self.generous)

    def judged(self, places: Places | None, *, generous: bool) -> Applies:
        """All of the match that the plan cannot settle, and the exception from it, which is judged the other way."""
        from subluminal.core.engine.conditions import Applies

        return Applies(self.match, self.unless, generous, places)

    @property
    def generous(self) -> bool:
        return self.kind != "allow"

    def classed(self, outcome: Outcome) -> bool:
        """Whether the call has a class that `risk_class` asks for."""
        seen = outcome.tags if self.kind == "allow" else outcome.tags | outcome.suspected
        return self.risk is None or not self.risk.isdisjoint(seen)

    @property
    def conditional(self) -> bool:
        """Whether this call's arguments, the time of day or anything in `any_of` and `unless` matter."""
        return self.args is not None or self.hours is not None or self.applies is not None

    def holds(self, judgement: Judgement, outcome: Outcome) -> bool:
        """The part of the match that the plan could not settle."""
        if self.hours is not None and judgement.wall_ms // 3_600_000 % 24 not in self.hours:
            return False
        if self.applies is not None:
            return self.applies(judgement, outcome)
        return self.args is None or self.args.ask(judgement.held or judgement.args())

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

    __slots__ = ("_strictly", "adds")

    def __init__(self, number: int, spec: dict[str, Any]) -> None:
        super().__init__(number, spec)
        self.adds = frozenset(self.detail.get("add_risk_class") or ())

    def prepare(self, places: Places | None) -> None:
        super().prepare(places)
        unsure = self.args is not None or self.applies is not None
        self._strictly = self.judged(places, generous=False) if unsure else None

    def apply(self, judgement: Judgement, outcome: Outcome, keys: Any) -> Refusal | None:
        if self._is_certain(judgement, outcome):
            outcome.tags |= self.adds
            outcome.tagged |= self.adds
        else:
            outcome.suspected |= self.adds
        return None

    def _is_certain(self, judgement: Judgement, outcome: Outcome) -> bool:
        if self.risk is not None and not self.risk & outcome.tags:
            return False
        try:
            return self._strictly is None or self._strictly(judgement, outcome)
        except Unavailable:  # it matches generously, and that it lets nothing through is the safe side
            return False
