"""`any_of`, `unless` and the size of the arguments: what only rules that use them are asked beside their match.

An `unless` is judged the other way round than the rule it belongs to: what stops a call is generous in its match and
strict in its `unless`, what lets it through strict in its match and generous in its `unless`.
"""

from __future__ import annotations

from subluminal.contracts.vocabulary import LISTED_CLASSES, TOOL_NOT_LISTED, UNINSPECTED_ARGS
from subluminal.core.engine.certainty import decided
from subluminal.core.engine.faults import Unavailable
from subluminal.core.engine.matchers import args_match
from subluminal.core.engine.names import name_match
from subluminal.core.engine.rules import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from subluminal.contracts.toolcall import ToolCall
    from subluminal.core.engine.places import Places
    from subluminal.core.engine.rules import Judgement, Outcome

    Member = Callable[[Judgement, Outcome], bool]

# "{}": no arguments are smaller.
_LEAST_BYTES = 2


class Applies:
    """Whether a rule whose names, classes and hours match applies: the rest of its `match`, and its `unless`."""

    __slots__ = ("_asks_more", "_match", "_unless")

    def __init__(
        self, match: dict[str, Any], unless: dict[str, Any] | None, generous: bool, places: Places | None
    ) -> None:
        rest = {name: wanted for name, wanted in match.items() if name in ("args", "any_of")}
        self._match = Condition(rest, generous, places)
        self._unless = None if unless is None else Condition(unless, not generous, places)
        self._asks_more = any(rest.values())

    def __call__(self, judgement: Judgement, outcome: Outcome) -> bool:
        if self._unless is None:
            return self._match.holds(judgement, outcome)
        if not self._asks_more:
            return not self._unless.holds(judgement, outcome)
        return decided((self._match.holds, self._not_excepted), False, judgement, outcome)

    def _not_excepted(self, judgement: Judgement, outcome: Outcome) -> bool:
        return self._unless is None or not self._unless.holds(judgement, outcome)

    def excepted(self, judgement: Judgement, outcome: Outcome) -> bool:
        """For a trace: whether it is only the `unless` that keeps the rule from applying."""
        try:
            return self._match.holds(judgement, outcome)
        except Exception:
            return False


class Condition:
    """A match, an alternative of one, or an exception, as it is judged for each call: all members must hold."""

    __slots__ = ("_members", "_only")

    def __init__(self, spec: dict[str, Any], generous: bool, places: Places | None) -> None:
        members: list[Member] = [_named(name, spec[name]) for name in ("tool_name", "server_name") if name in spec]
        hours = frozen((spec.get("time") or {}).get("utc_hours"))
        if hours is not None:
            members.append(lambda judgement, outcome: hour_of(judgement) in hours)
        risk = frozen(spec.get("risk_class"))
        if risk is not None:
            members.append(lambda judgement, outcome: _classed(risk, judgement, outcome, generous))
        args = spec.get("args") or {}
        if args.get("bytes"):
            members.append(_sized(args["bytes"], generous))
        asked = args_match(args, generous=generous, places=places)
        if asked is not None:
            ask = asked.ask
            members.append(lambda judgement, outcome: ask(judgement.held or judgement.args()))
        if "any_of" in spec:
            members.append(_any_of([Condition(each, generous, places) for each in spec["any_of"]]))
        self._members = members
        self._only = members[0] if len(members) == 1 else None

    def holds(self, judgement: Judgement, outcome: Outcome) -> bool:
        if self._only is not None:
            only = self._only
            return only(judgement, outcome)
        return decided(self._members, False, judgement, outcome)


def _any_of(alternatives: list[Condition]) -> Member:
    tests = [alternative.holds for alternative in alternatives]
    return lambda judgement, outcome: decided(tests, True, judgement, outcome)


def _named(field: str, spec: dict[str, Any]) -> Member:
    match = name_match(spec)

    def member(judgement: Judgement, outcome: Outcome) -> bool:
        call = judgement.call
        return match is None or match(call.tool_name if field == "tool_name" else call.server_name)

    return member


def hour_of(judgement: Judgement) -> int:
    return judgement.wall_ms // 3_600_000 % 24


def _classed(risk: frozenset[str], judgement: Judgement, outcome: Outcome, generous: bool) -> bool:
    """What a server that has not listed the tool would say of it is not known, and unknown is not "none"."""
    seen = outcome.tags | outcome.suspected if generous else outcome.tags
    if not risk.isdisjoint(seen):
        return True
    if judgement.call.risk_classes is None and risk & LISTED_CLASSES:
        raise Unavailable(TOOL_NOT_LISTED)
    return False


def _sized(limits: dict[str, Any], generous: bool) -> Member:
    least, most = limits.get("min") or 0, limits.get("max")

    def member(judgement: Judgement, outcome: Outcome) -> bool:
        call = judgement.call
        if call.args_raw is not None:
            return least <= len(call.args_raw) and (most is None or len(call.args_raw) <= most)
        return _size_of_unheld(call, least, most, generous)

    return member


def _size_of_unheld(call: ToolCall, least: int, most: int | None, generous: bool) -> bool:
    """Arguments that were not held are no larger than their message, and nearly all of it in any plausible case."""
    size = call.bytes_in
    if size < least:
        return False
    if (most is None or size <= most) and (generous or least <= _LEAST_BYTES):
        return True
    raise Unavailable(UNINSPECTED_ARGS)
