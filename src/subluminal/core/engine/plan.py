"""Which rules concern a tool: worked out once per (server, tool, risk classes), then looked up.

A plan holds the rules whose names match, in order. What tags the policy gives by name alone is settled here, so most
`risk_class` conditions are settled here too; rules that can no longer matter (access rules behind an unconditional
one) are left out. What depends on the arguments, the clock or run state stays for each call.
"""

from __future__ import annotations

from operator import attrgetter

from subluminal.contracts.vocabulary import LISTED_CLASSES, TOOL_NOT_LISTED
from subluminal.core.engine.accumulators import Accumulator
from subluminal.core.engine.faults import Unavailable
from subluminal.core.engine.names import NameIndex
from subluminal.core.engine.rules import AccessRule, Rule, TagRule

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from subluminal.core.engine.index.rules import Guard, RuleIndex
    from subluminal.core.engine.rules import Judgement, Outcome, Refusal

# Tool names are chosen by the agent: both caches are bounded, and names beyond this length are not kept at all.
MAX_PLANS = 1_024
MAX_SERVERS = 64
MAX_CACHED_NAME_CHARS = 256
# As many rules that look at arguments cost more when each is asked than an index that names those to be asked.
INDEXED_FROM = 16
# Tools that the same rules concern share one.
MAX_INDEXES = 16
_BY_NUMBER = attrgetter("rule.number")


class Cache:
    """A bounded cache of two generations: a hit costs one lookup, what was not used for a generation goes.

    `hot` may be looked at directly, which saves a call; only `get` finds everything.
    """

    __slots__ = ("_bound", "_cold", "hot")

    def __init__(self, bound: int) -> None:
        self._bound = bound // 2
        self.hot: dict[Any, Any] = {}
        self._cold: dict[Any, Any] = {}

    def get(self, key: Any) -> Any:
        value = self.hot.get(key)
        if value is None and self._cold:
            value = self._cold.get(key)
            if value is not None:
                self.put(key, value)
        return value

    def put(self, key: Any, value: Any) -> None:
        if len(self.hot) >= self._bound:
            self._cold = self.hot
            self.hot = {}
        self.hot[key] = value

    def __len__(self) -> int:
        return len(self.hot) + len(self._cold)


class Step:
    """One rule in a plan. `check_risk`: its risk_class depends on a tag that depends on the call.

    `certain`: nothing of a call keeps it from being applied.
    `ask`: what is asked of the arguments, where nothing else may keep it from being applied.
    `unlisted`: it depends on what the tool's server has not said yet, so it can only be judged where a tag settles it.
    """

    __slots__ = ("accumulator", "apply", "ask", "certain", "check_risk", "conditional", "decides_access", "keys",
        "rule", "unlisted")  # fmt: skip

    def __init__(self, rule: Rule, check_risk: bool, unlisted: bool, keys: Any) -> None:
        self.rule = rule
        self.unlisted = unlisted
        self.apply = _apply_if_tagged(rule) if unlisted else rule.apply
        self.check_risk = check_risk and not unlisted
        self.conditional = rule.conditional
        plainly = rule.args is not None and rule.hours is None and rule.applies is None
        self.ask = rule.args.ask if plainly and rule.args is not None else None
        self.decides_access = isinstance(rule, AccessRule)
        self.certain = not (self.check_risk or self.conditional or self.decides_access)
        self.accumulator = rule if isinstance(rule, Accumulator) else None
        self.keys = keys


def _apply_if_tagged(rule: Rule) -> Callable[[Judgement, Outcome, Any], Refusal | None]:
    def apply(judgement: Judgement, outcome: Outcome, keys: Any) -> Refusal | None:
        if rule.classed(outcome):
            return rule.apply(judgement, outcome, keys)
        raise Unavailable(TOOL_NOT_LISTED)

    return apply


class Plan:
    """The steps for one tool. `tags` holds from the start; `tagged` is what the policy itself added to it."""

    __slots__ = ("_asked", "_guarded", "_index", "access", "indexed", "stateful", "steps", "tagged", "tags", "wide")

    def __init__(
        self, steps: list[Step], access: AccessRule | None, tags: frozenset[str], tagged: frozenset[str]
    ) -> None:
        self.steps = steps
        self.access = access  # the deciding rule, when there are no steps at all
        self.tags = tags
        self.tagged = tagged
        self.stateful = any(step.accumulator is not None for step in steps)
        self.wide = any(step.accumulator is not None and step.accumulator.wide for step in steps)
        self.indexed = False
        self._index: RuleIndex | None = None
        self._guarded: list[Step] = []
        self._asked: list[Step] = []

    def index(self, index: RuleIndex, guarded: list[Step], asked: list[Step]) -> None:
        """`asked`: the steps that the index knows nothing of."""
        self.indexed = True
        self._index, self._guarded, self._asked = index, guarded, asked

    def found_for(self, judgement: Judgement) -> list[Step]:
        """Of a plan with an index: those of the steps, in order, that may match this call or may not be judged."""
        index = self._index
        assert index is not None
        try:
            found = index.find(judgement.held or judgement.args())
        except Exception:  # of arguments that cannot be had or read, each rule says so itself
            return self.steps
        if not found:
            return self._asked
        guarded = self._guarded
        return sorted([*self._asked, *[guarded[position] for position in found]], key=_BY_NUMBER)


class Planner:
    """Makes the plans of one bundle."""

    __slots__ = ("_by_number", "_guards", "_indexes", "_names", "_rules", "_servers", "_steps")

    def __init__(self, rules: list[Rule]) -> None:
        self._rules = rules
        self._by_number = {rule.number: rule for rule in rules}
        self._servers = Cache(MAX_SERVERS)
        self._names = Cache(MAX_SERVERS)  # by the rules: servers that have the same ones share an index
        self._guards: dict[int, list[Guard] | None] = {}
        self._indexes = Cache(MAX_INDEXES)
        self._steps: dict[tuple[int, bool, bool], Step] = {}  # of rules without keys, shared by all tools

    def named(self, server_name: str, tool_name: str) -> list[Rule]:
        """The rules whose names match, in order."""
        index: NameIndex | None = self._servers.get(server_name)
        if index is None:
            rules = [rule for rule in self._rules if rule.server is None or rule.server(server_name)]
            numbers = tuple(rule.number for rule in rules)
            index = self._names.get(numbers)
            if index is None:
                index = NameIndex((rule.number, rule.tool) for rule in rules)
                self._names.put(numbers, index)
            if len(server_name) <= MAX_CACHED_NAME_CHARS:
                self._servers.put(server_name, index)
        return [self._by_number[number] for number in index.find(tool_name)]

    def plan(self, policy: str, server_name: str, tool_name: str, risk: frozenset[str] | None, complete: bool) -> Plan:
        """`complete` keeps the rules that no longer matter, for a trace."""
        steps: list[Step] = []
        tags, tagged = set(risk or ()), set[str]()
        possible = set(tags)
        unheard = LISTED_CLASSES if risk is None else frozenset()
        decided = None
        # Once a tag depends on the call, what follows it is settled by the call as well.
        settled = not complete
        for rule in self.named(server_name, tool_name):
            if rule.risk is not None and not rule.risk & possible and not rule.risk & unheard:
                continue
            check_risk = rule.risk is not None and not rule.risk & tags
            sure = not check_risk and not rule.conditional
            if isinstance(rule, TagRule):
                possible |= rule.adds
                settled = settled and sure
                if settled:
                    tags |= rule.adds
                    tagged |= rule.adds
                    continue
            elif isinstance(rule, AccessRule):
                if decided is not None and not complete:
                    continue
                if sure:
                    decided = decided or rule
            unlisted = check_risk and rule.risk is not None and bool(rule.risk & unheard)
            if isinstance(rule, Accumulator):
                steps.append(Step(rule, check_risk, unlisted, rule.keys(policy, server_name, tool_name)))
                continue
            kind = (rule.number, check_risk, unlisted)
            if kind not in self._steps:
                self._steps[kind] = Step(rule, check_risk, unlisted, None)
            steps.append(self._steps[kind])
        access = decided if len(steps) == 1 and steps[0].rule is decided and not complete else None
        if access is not None:
            steps = []
        plan = Plan(steps, access, frozenset(tags), frozenset(tagged))
        if not complete and sum(step.conditional for step in steps) >= INDEXED_FROM:
            self._index(plan)
        return plan

    def _index(self, plan: Plan) -> None:
        from subluminal.core.engine.index.rules import RuleIndex, guards_of

        kept = self._guards
        guarded: list[Step] = []
        asked: list[Step] = []
        for step in plan.steps:
            number = step.rule.number
            if number not in kept:
                kept[number] = guards_of(step.rule) if step.conditional else None
            (asked if kept[number] is None else guarded).append(step)
        if len(guarded) < INDEXED_FROM:
            return
        key = tuple(step.rule.number for step in guarded)
        index = self._indexes.get(key)
        if index is None:
            index = RuleIndex([kept[number] or [] for number in key])
            self._indexes.put(key, index)
        plan.index(index, guarded, asked)
