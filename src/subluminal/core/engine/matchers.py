"""What a rule's `match.args` and a bundle's `selectors` test (§2.2, §2.4). Names are in `names`.

Predicates test top-level keys. Numbers compare exactly: 0.1 in a policy is the decimal 0.1, 1.0 equals 1, and no
boolean equals a number.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
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
    """`match.args`: all predicates must hold."""

    __slots__ = ("_among", "_equal", "_keys", "_ranges")

    def __init__(self, spec: dict[str, Any]) -> None:
        self._keys = tuple(spec.get("has_keys") or ())
        self._equal = tuple((key, exact(value)) for key, value in (spec.get("key_equals") or {}).items())
        self._among = tuple(
            (key, frozenset(exact(value) for value in values)) for key, values in (spec.get("key_in") or {}).items()
        )
        self._ranges = tuple(
            (key, _bound(limits.get("min")), _bound(limits.get("max")))
            for key, limits in (spec.get("numeric_range") or {}).items()
        )

    def __call__(self, args: dict[str, Any]) -> bool:
        for key in self._keys:
            if key not in args:
                return False
        for key, wanted in self._equal:
            value = args.get(key, _ABSENT)
            if value.__class__ is not str:
                value = _ABSENT if isinstance(value, (list, dict)) else exact(value)
            if value != wanted:
                return False
        for key, choices in self._among:
            if key not in args or isinstance(args[key], (list, dict)) or exact(args[key]) not in choices:
                return False
        for key, low, high in self._ranges:  # noqa: SIM110 - a generator would double the cost of a usual rule
            if key not in args or not _in_range(args[key], low, high):
                return False
        return True


def _in_range(value: Any, low: Any, high: Any) -> bool:
    if value.__class__ is not int:
        value = exact(value)
        if value is _TRUE or value is _FALSE or value is None or isinstance(value, (str, list, dict)):
            return False
        if value != value:  # not a number at all
            return False
    return (low is None or value >= low) and (high is None or value <= high)


def args_match(spec: dict[str, Any] | None) -> ArgsMatch | None:
    return ArgsMatch(spec) if spec and any(spec.values()) else None


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
