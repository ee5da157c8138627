"""What a rule's `match.args` and a bundle's `selectors` test (§2.2, §2.4). Names are in `names`.

Predicates test top-level keys. What lets a call through is judged strictly: numbers compare exactly (0.1 in a policy
is the decimal 0.1, 1.0 equals 1) and no boolean equals a number. What stops a call is judged generously: a value that
does not match as it stands does if a server could read it as one that does (`readings`).
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from subluminal.contracts.identity import Identity

_TRUE, _FALSE, _ABSENT = object(), object(), object()


def exact(value: Any) -> Any:
    """A scalar in a form where equal means equal: no boolean is a number, every number is exact."""
    if value is True:
        return _TRUE
    if value is False:
        return _FALSE
    if isinstance(value, float):
        from decimal import Decimal

        return Decimal(repr(value))
    return value


def _bound(value: Any) -> Any:
    """A limit of `numeric_range`: a number, or a decimal in a string."""
    if isinstance(value, str):
        from decimal import Decimal

        return Decimal(value)
    return exact(value)


class ArgsMatch:
    """`match.args`: all predicates must hold. `generous`: by any reading of their values."""

    __slots__ = ("_among", "_equal", "_keys", "_ranges")

    def __init__(self, spec: dict[str, Any], generous: bool) -> None:
        self._keys = tuple(spec.get("has_keys") or ())
        self._equal = tuple(
            (key, exact(value), _final([value]), _readings([value], generous))
            for key, value in (spec.get("key_equals") or {}).items()
        )
        self._among = tuple(
            (key, frozenset(exact(value) for value in values), _final(values), _readings(values, generous))
            for key, values in (spec.get("key_in") or {}).items()
        )
        ranges = (spec.get("numeric_range") or {}).items()
        bounds = [(key, _bound(limits.get("min")), _bound(limits.get("max"))) for key, limits in ranges]
        self._ranges = tuple(
            (key, low, high, _final([limit for limit in (low, high) if limit is not None]), _range(low, high, generous))
            for key, low, high in bounds
        )

    def __call__(self, args: dict[str, Any]) -> bool:
        for key in self._keys:
            if key not in args:
                return False
        for key, wanted, final, readings in self._equal:
            value = args.get(key, _ABSENT)
            if value.__class__ is str:
                if value == wanted:
                    continue
                if final is str:
                    return False
            elif value is _ABSENT:
                return False
            elif (_ABSENT if isinstance(value, (list, dict)) else exact(value)) == wanted:
                continue
            if value.__class__ is final or not readings(value):
                return False
        for key, choices, final, readings in self._among:
            value = args.get(key, _ABSENT)
            if (value if value.__class__ is str else _scalar(value)) not in choices and (
                value is _ABSENT or value.__class__ is final or not readings(value)
            ):
                return False
        for key, low, high, final, readings in self._ranges:
            if key not in args:
                return False
            value = args[key]
            if not _in_range(value, low, high) and (value.__class__ is final or not readings(value)):
                return False
        return True

    def readings(self, args: dict[str, Any]) -> list[dict[str, str]]:
        """Which values match only by what they are read as, where all predicates hold. For a trace.

        As JSON text, because the spelling of a number is what matters.
        """
        from subluminal.contracts.jsontext import to_json

        tests = [(key, _scalar(args[key]) == wanted, readings) for key, wanted, _, readings in self._equal]
        tests += [(key, _scalar(args[key]) in choices, readings) for key, choices, _, readings in self._among]
        tests += [(key, _in_range(args[key], low, high), readings) for key, low, high, _, readings in self._ranges]
        return [
            {"key": key, "value": to_json(args[key]), "read_as": to_json(read_as)}
            for key, exactly, readings in tests
            if not exactly
            for read_as in readings(args[key])
        ]


def _scalar(value: Any) -> Any:
    """As `exact`; what is no scalar equals nothing."""
    return _ABSENT if isinstance(value, (list, dict)) else exact(value)


def _final(wanted: list[Any]) -> type:
    """The type of value that has no other reading here: most calls have the type that the rule wants."""
    for kind in (str, bool):
        if all(value.__class__ is kind for value in wanted):
            return kind
    # Rounding to a double makes no integer one of these.
    return int if all(value.__class__ is int and abs(value) < 2**53 for value in wanted) else type


def _no_readings(value: Any) -> tuple[Any, ...]:
    return ()


def _readings(wanted: list[Any], generous: bool) -> Callable[[Any], tuple[Any, ...]]:
    if not generous:
        return _no_readings
    from subluminal.core.engine.readings import Readings  # for few policies

    return Readings(wanted)


def _range(low: Any, high: Any, generous: bool) -> Callable[[Any], tuple[Any, ...]]:
    if not generous:
        return _no_readings
    from subluminal.core.engine.readings import RangeReadings

    return RangeReadings(low, high)


def _in_range(value: Any, low: Any, high: Any) -> bool:
    if value.__class__ is not int:
        value = exact(value)
        if value is _TRUE or value is _FALSE or value is None or isinstance(value, (str, list, dict)):
            return False
        if value != value:  # not a number at all
            return False
    return (low is None or value >= low) and (high is None or value <= high)


def args_match(spec: dict[str, Any] | None, *, generous: bool) -> ArgsMatch | None:
    return ArgsMatch(spec, generous) if spec and any(spec.values()) else None


def selectors_match(selectors: dict[str, Any] | None, identity: Identity) -> bool:
    """§2.2: omitted matches all, arrays are OR, fields are AND. What is not known does not match.

    An empty array counts as omitted: a bundle must not lose its force by an empty list.
    """
    if not selectors:
        return True
    for field, value in (("env", identity.env), ("agent_id", identity.agent_id), ("client", identity.client)):
        wanted = selectors.get(field)
        if wanted and value not in wanted:
            return False
    wanted = selectors.get("workload") or {}
    workload = identity.workload or {}
    for field in ("namespace", "service_account", "repo", "branch"):
        if wanted.get(field) and workload.get(field) not in wanted[field]:
            return False
    labels = workload.get("labels") or {}
    return all(labels.get(key) == value for key, value in (wanted.get("labels") or {}).items())
