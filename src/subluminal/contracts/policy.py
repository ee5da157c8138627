"""Contract B: the policy bundle (§2) as msgspec types, and the shape of the snapshot compiled from it (§2.6).

A field without a default is required. A field whose default is UNSET has no effect when it is left out; every other
default is the value that a snapshot states in its place. Unknown fields and kinds are errors (§0.2): a typing error
must never become a rule that does nothing. "Additive" marks what is ours; all else is named by the interface pack.

`msgspec.convert(tree, Bundle)` checks a parsed bundle and names the place of the first fault, and
`msgspec.to_builtins(bundle)` is the bundle with its defaults expanded. Numbers in `match.args` mean their shortest
decimal text: compare with `Decimal(repr(number))`, for `Decimal("0.1") == 0.1` is false in Python.
"""

# Annotations are values here and not texts, which msgspec would compile again in every process.
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from subluminal.contracts.terms import Client, Env, Mode, Severity, Timestamp
from subluminal.contracts.vocabulary import ALLOWLIST_MATCH, DENYLIST_MATCH

# A snapshot of another format is not read but compiled anew.
SNAPSHOT_FORMAT = 1

Scope = Literal["run", "server", "tool", "server_tool", "agent", "principal", "machine"]
# Integers up to here are exact in every JSON implementation.
Count = Annotated[int, Meta(ge=0, le=2**53 - 1)]
Positive = Annotated[int, Meta(ge=1, le=2**53 - 1)]
# Ids stand in every event and error message, so they are kept short.
Id = Annotated[str, Meta(min_length=1, max_length=200)]
Word = Annotated[str, Meta(min_length=1)]
Scalar = str | int | float | bool
# An hour of the day, or two of them: "9-17" is from 9:00 to 17:59, as in cron; "22-5" goes past midnight.
Hour = Annotated[int, Meta(ge=0, le=23)]
HourRange = Annotated[str, Meta(pattern=r"^([01]?[0-9]|2[0-3])-([01]?[0-9]|2[0-3])$(?!\n)")]
# Additive: times and sizes as people write them. A snapshot has milliseconds (in the `_ms` field) and numbers instead.
Duration = Annotated[str, Meta(pattern=r"^[0-9]{1,12}(ms|s|m|h|d)$(?!\n)")]
Size = Annotated[str, Meta(pattern=r"^[0-9]{1,12}(B|KB|MB|GB|KiB|MiB|GiB)$(?!\n)")]
# Additive: one text or several, of which any matches. A snapshot has a list.
Texts = Annotated[list[Word], Meta(min_length=1)] | Word


class Part(Struct, forbid_unknown_fields=True):
    """Everything in a bundle: nothing unknown passes. Trap: `kw_only` is not inherited."""


class Defaults(Part, kw_only=True):
    decision_on_error: Literal["ALLOW", "BLOCK"]
    fail_open_read_tools: bool = False
    fail_open_classes: list[Word] | UnsetType = UNSET  # additive: as above, for other classes that tag rules give
    # Additive: legs of one multi-round-trip call. A snapshot states it only where it is not MAX_LEGS, so that policies
    # which leave it out keep their hash.
    max_legs: Positive | UnsetType = UNSET
    # Additive: what becomes of tools whose definition has changed, and whether tools that are denied whatever their
    # arguments are left out of lists.
    changed_tools: Literal["allow", "warn", "quarantine"] | UnsetType = UNSET
    hide_denied_tools: bool | UnsetType = UNSET
    # Additive: whether arguments are held against the input schema of their tool, and against which.
    check_schemas: Literal["none", "pinned", "listed"] | UnsetType = UNSET


class WorkloadSelector(Part, kw_only=True):
    namespace: list[str] | UnsetType = UNSET
    service_account: list[str] | UnsetType = UNSET
    labels: dict[str, str] | UnsetType = UNSET
    repo: list[str] | UnsetType = UNSET
    branch: list[str] | UnsetType = UNSET


class Selectors(Part, kw_only=True):
    """§2.2: OR within a field, AND between fields, everything where a field is left out."""

    env: list[Env] | UnsetType = UNSET
    agent_id: list[str] | UnsetType = UNSET
    client: list[Client] | UnsetType = UNSET
    workload: WorkloadSelector | UnsetType = UNSET


class NameMatch(Part, kw_only=True):
    """A name matches if any of the globs or any of the regexes does."""

    glob: list[str] | UnsetType = UNSET
    regex: list[str] | UnsetType = UNSET


class NumericRange(Part, kw_only=True):
    """Both ends belong to the range."""

    min: int | float | Size | UnsetType = UNSET
    max: int | float | Size | UnsetType = UNSET


class ByteRange(Part, kw_only=True):
    """Both ends belong to the range."""

    min: Count | Size | UnsetType = UNSET
    max: Count | Size | UnsetType = UNSET


class CommandMatch(Part, kw_only=True):
    """A shell line: the programs that its simple commands run."""

    programs: Texts


class ArgsMatch(Part, kw_only=True):
    """Keys are paths (additive): `options.force`, `files[].path`, a literal dot as `\\.`."""

    has_keys: list[str] | UnsetType = UNSET
    missing_keys: list[Word] | UnsetType = UNSET  # additive from here on, but for the three of the pack
    key_equals: dict[str, Scalar] | UnsetType = UNSET
    key_in: dict[str, list[Scalar]] | UnsetType = UNSET
    key_glob: dict[str, Texts] | UnsetType = UNSET
    key_regex: dict[str, Texts] | UnsetType = UNSET
    key_contains: dict[str, Texts] | UnsetType = UNSET
    numeric_range: dict[str, NumericRange] | UnsetType = UNSET
    path_within: dict[str, Texts] | UnsetType = UNSET
    host_in: dict[str, Texts] | UnsetType = UNSET
    command: dict[str, CommandMatch] | UnsetType = UNSET
    bytes: ByteRange | UnsetType = UNSET


class TimeMatch(Part, kw_only=True):
    utc_hours: list[Hour | HourRange] | UnsetType = UNSET


class Alternative(Part, kw_only=True):
    """§2.4: AND between fields."""

    server_name: NameMatch | UnsetType = UNSET
    tool_name: NameMatch | UnsetType = UNSET
    risk_class: list[Word] | UnsetType = UNSET
    args: ArgsMatch | UnsetType = UNSET
    time: TimeMatch | UnsetType = UNSET


class Match(Alternative, kw_only=True):
    """An empty match matches every call."""

    any_of: Annotated[list[Alternative], Meta(min_length=1)] | UnsetType = UNSET  # additive


class Advice(Part, kw_only=True):
    """What a refused agent is told. `hint_text` is the pack's; the others, known from §3.2.4, are additive here."""

    reason_code: Word | UnsetType = UNSET
    message: str | UnsetType = UNSET
    hint_text: str | UnsetType = UNSET
    suggested_args: dict[str, Any] | UnsetType = UNSET
    retry_advice: str | UnsetType = UNSET


class AllowEffect(Part, kw_only=True):
    action: Literal["ALLOW"]
    reason_code: Word = ALLOWLIST_MATCH
    message: str = ""
    override: Annotated[list[Literal["dedupe"]], Meta(min_length=1)] | UnsetType = UNSET  # additive


class DenyEffect(Advice, kw_only=True):
    action: Literal["BLOCK", "REJECT_WITH_HINT"]  # REJECT_WITH_HINT is additive
    reason_code: Word = DENYLIST_MATCH
    message: str = ""


class CostFrom(Part, kw_only=True):
    """Additive: a call costs what one of its arguments says, in units of `per`, rounded up."""

    arg: Word
    per: Positive | Size = 1


class Budget(Advice, kw_only=True):
    scope: Scope
    limit_calls: Count | UnsetType = UNSET
    limit_cost_units: Count | UnsetType = UNSET
    cost_units_per_call: Count = 1
    cost_units_by_tool: Annotated[dict[str, Count], Meta(min_length=1)] | UnsetType = UNSET  # additive: glob to units
    cost_units_from: CostFrom | UnsetType = UNSET
    window_ms: Positive | UnsetType = UNSET  # additive: the limits hold for any such stretch of time
    window: Duration | UnsetType = UNSET
    on_exceed: Literal["BLOCK", "REJECT_WITH_HINT", "TERMINATE_RUN"]

    def __post_init__(self) -> None:
        if self.limit_calls is UNSET and self.limit_cost_units is UNSET:
            raise ValueError("A budget needs `limit_calls` or `limit_cost_units`")


class RateLimit(Advice, kw_only=True):
    """A token bucket that starts full."""

    scope: Scope
    capacity: Positive
    refill_tokens: Count
    refill_period_ms: Positive | UnsetType = UNSET
    refill_period: Duration | UnsetType = UNSET  # additive, as every field that takes a Duration
    cost_tokens_per_call: Positive = 1
    on_limit: Literal["THROTTLE", "BLOCK", "REJECT_WITH_HINT"]
    backoff_ms: Count | UnsetType = UNSET
    backoff: Duration | UnsetType = UNSET

    def __post_init__(self) -> None:
        if self.refill_period_ms is UNSET and self.refill_period is UNSET:
            raise ValueError("A rate limit needs `refill_period` or `refill_period_ms`")
        if self.on_limit == "THROTTLE" and self.backoff_ms is UNSET and self.backoff is UNSET:
            raise ValueError("A rate limit with `on_limit: THROTTLE` needs `backoff` or `backoff_ms`")


class Breaker(Advice, kw_only=True):
    """Trips on errors, on repeats of one call, or (additive) on slow calls; at least one of the three is set."""

    scope: Scope
    error_threshold: Positive | UnsetType = UNSET
    window_ms: Positive | UnsetType = UNSET
    window: Duration | UnsetType = UNSET
    repeat_threshold: Positive | UnsetType = UNSET
    repeat_window_ms: Positive | UnsetType = UNSET
    repeat_window: Duration | UnsetType = UNSET
    latency_threshold_ms: Positive | UnsetType = UNSET  # additive: a call that takes longer counts as slow
    latency_threshold: Duration | UnsetType = UNSET
    latency_count: Positive = 1  # additive: so many slow calls within window_ms trip it
    on_trip: Literal["TERMINATE_RUN", "BLOCK", "REJECT_WITH_HINT"]
    terminate_code: Word | UnsetType = UNSET  # the reason code stands in when it is left out

    def __post_init__(self) -> None:
        slow = (self.latency_threshold_ms, self.latency_threshold) != (UNSET, UNSET)
        window = (self.window_ms, self.window) != (UNSET, UNSET)
        if self.error_threshold is UNSET and self.repeat_threshold is UNSET and not slow:
            raise ValueError("A breaker needs `error_threshold`, `repeat_threshold` or `latency_threshold`")
        if self.error_threshold is not UNSET and not window:
            raise ValueError("A breaker with `error_threshold` needs `window` or `window_ms`")
        if slow and not window:
            raise ValueError("A breaker with `latency_threshold` needs `window` or `window_ms`")
        if self.repeat_threshold is not UNSET and (self.repeat_window_ms, self.repeat_window) == (UNSET, UNSET):
            raise ValueError("A breaker with `repeat_threshold` needs `repeat_window` or `repeat_window_ms`")


class Dedupe(Advice, kw_only=True):
    scope: Scope
    window_ms: Positive | UnsetType = UNSET
    window: Duration | UnsetType = UNSET
    key: Literal["args_hash", "custom"] = "args_hash"
    key_args: Annotated[list[Word], Meta(min_length=1)] | UnsetType = UNSET  # additive: what `custom` compares
    on_duplicate: Literal["BLOCK", "REJECT_WITH_HINT"]

    def __post_init__(self) -> None:
        if self.window_ms is UNSET and self.window is UNSET:
            raise ValueError("A dedupe rule needs `window` or `window_ms`")
        if (self.key == "custom") != (self.key_args is not UNSET):
            raise ValueError("`key: custom` and `key_args` belong together")


class Tag(Part, kw_only=True):
    add_risk_class: Annotated[list[Word], Meta(min_length=1)]


class BudgetEffect(Part, kw_only=True):
    budget: Budget


class RateLimitEffect(Part, kw_only=True):
    rate_limit: RateLimit


class BreakerEffect(Part, kw_only=True):
    breaker: Breaker


class DedupeEffect(Part, kw_only=True):
    dedupe: Dedupe


class TagEffect(Part, kw_only=True):
    tag: Tag


class RuleBase(Part, kw_only=True, tag_field="kind"):
    """§2.3. The kind is the tag of the concrete class and says which effect belongs to it."""

    rule_id: Id
    enabled: bool = True  # the pack requires it and `severity`; their defaults are additive
    match: Match
    unless: Match | UnsetType = UNSET  # additive: the rule applies if `match` holds and this does not
    severity: Severity = "warn"
    description: str | UnsetType = UNSET

    @property
    def kind(self) -> str:
        return str(self.__struct_config__.tag)


class AllowRule(RuleBase, kw_only=True, tag="allow"):
    effect: AllowEffect


class DenyRule(RuleBase, kw_only=True, tag="deny"):
    effect: DenyEffect


class BudgetRule(RuleBase, kw_only=True, tag="budget"):
    effect: BudgetEffect


class RateLimitRule(RuleBase, kw_only=True, tag="rate_limit"):
    effect: RateLimitEffect


class BreakerRule(RuleBase, kw_only=True, tag="breaker"):
    effect: BreakerEffect


class DedupeRule(RuleBase, kw_only=True, tag="dedupe"):
    effect: DedupeEffect


class TagRule(RuleBase, kw_only=True, tag="tag"):
    effect: TagEffect


Rule = AllowRule | DenyRule | BudgetRule | RateLimitRule | BreakerRule | DedupeRule | TagRule


class Bundle(Part, kw_only=True):
    """§2.1: what people write, as YAML or JSON."""

    policy_id: Id
    version: Id
    mode: Mode
    defaults: Defaults
    selectors: Selectors
    rules: list[Rule]
    description: str | UnsetType = UNSET
    owner: str | UnsetType = UNSET
    created_at: Timestamp | UnsetType = UNSET

    def __post_init__(self) -> None:
        seen: set[str] = set()
        for rule in self.rules:
            if rule.rule_id in seen:
                raise ValueError("Two rules have the same `rule_id`; it must be unique within a policy")
            seen.add(rule.rule_id)


class Snapshot(Struct, kw_only=True):
    """§2.6: what shims load, as a plain dict of this shape; the type is for checks and for the schema.

    All defaults are stated. `time.utc_hours` is a sorted list of integers, see `expand_hours`. `policy_hash` is the
    SHA-256 of the canonical form of the snapshot without `policy_hash` itself.
    """

    snapshot_format: Literal[1]
    policy_id: Id
    version: Id
    mode: Mode
    defaults: Defaults
    selectors: Selectors
    rules: list[Rule]
    policy_hash: Annotated[str, Meta(pattern=r"^[0-9a-f]{64}$(?!\n)")]


def expand_hours(utc_hours: list[int | str]) -> list[int]:
    """The hours of the day that a checked `match.time.utc_hours` names, sorted."""
    hours: set[int] = set()
    for entry in utc_hours:
        if isinstance(entry, int):
            hours.add(entry)
            continue
        first, last = (int(hour) for hour in entry.split("-"))
        hours.update((first + step) % 24 for step in range((last - first) % 24 + 1))
    return sorted(hours)
