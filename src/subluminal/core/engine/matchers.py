"""What a rule's `match.args` and a bundle's `selectors` test (§2.2, §2.4). Names are in `names`.

The four oldest predicates are asked here on top-level keys; all others, and keys that are paths, are in `predicates`,
which is imported only for policies that have them. What lets a call through is judged strictly: numbers compare exactly
(0.1 in a policy is the decimal 0.1, 1.0 equals 1) and no boolean equals a number. What stops a call is judged
generously: a value that does not match as it stands does if a server could read it as one that does (`readings`).
"""

from __future__ import annotations

from subluminal.core.engine.faults import Unavailable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from subluminal.contracts.identity import Identity
    from subluminal.core.engine.places import Places
    from subluminal.core.engine.predicates import Predicates

_TRUE, _FALSE = object(), object()
_ABSENT: Any = object()
# Asked by `ArgsMatch` itself, on plain keys.
ASKED_HERE = frozenset(("has_keys", "key_equals", "key_in", "numeric_range"))


def is_plain(key: str) -> bool:
    """Whether a key can be nothing but one top-level key (`where`)."""
    return not ("." in key or "[" in key or "\\" in key)


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


def limits_of(limits: dict[str, Any]) -> tuple[Any, Any]:
    return _bound(limits.get("min")), _bound(limits.get("max"))


class ArgsMatch:
    """`match.args`: all predicates must hold. `generous`: by any reading of their values.

    `ask` is the shortest way to what a call of it says.
    """

    __slots__ = ("_among", "_equal", "_keys", "_more", "_ranges", "_source", "ask", "beside")

    def __init__(self, spec: dict[str, Any], generous: bool, places: Places | None = None) -> None:
        self._source = (spec, generous, places)
        self._keys = tuple(key for key in spec.get("has_keys") or () if is_plain(key))
        self._equal = tuple(
            (key, exact(value), _final([value]), _readings([value], generous))
            for key, value in _plain_items(spec, "key_equals")
        )
        self._among = tuple(
            (key, frozenset(exact(value) for value in values), _final(values), _readings(values, generous))
            for key, values in _plain_items(spec, "key_in")
        )
        bounds = [(key, *limits_of(limits)) for key, limits in _plain_items(spec, "numeric_range")]
        self._ranges = tuple(
            (key, low, high, _final([limit for limit in (low, high) if limit is not None]), _range(low, high, generous))
            for key, low, high in bounds
        )
        self.beside: Predicates | None = None  # what is not asked here
        self._more: Callable[[dict[str, Any]], bool] | None = None
        if any(name not in ASKED_HERE or not all(map(is_plain, keys)) for name, keys in spec.items() if keys):
            self.beside = self._predicates(besides_plain=True)
            self._more = self.beside.ask
        plain = self._keys or self._equal or self._among or self._ranges
        self.ask: Callable[[dict[str, Any]], bool] = self.__call__ if plain or self._more is None else self._more

    def __call__(self, args: dict[str, Any]) -> bool:
        try:
            if self._keys and not all(map(args.__contains__, self._keys)):
                return False
            for key, wanted, final, readings in self._equal:
                value = args.get(key, _ABSENT)
                if value.__class__ is str:
                    if value == wanted:
                        continue
                    if final is str:
                        if "]" in value and readings(value):  # a list, as JSON in a text
                            continue
                        return False
                elif value is _ABSENT:
                    return False
                elif (_ABSENT if isinstance(value, (list, dict)) else exact(value)) == wanted:
                    continue
                if value.__class__ is final or not readings(value):
                    return False
            for key, choices, final, readings in self._among:
                value = args.get(key, _ABSENT)
                if (value if value.__class__ is str else scalar(value)) not in choices and (
                    value is _ABSENT
                    or (value.__class__ is final and (final is not str or "]" not in value))  # type: ignore[operator]
                    or not readings(value)
                ):
                    return False
            for key, low, high, final, readings in self._ranges:
                if key not in args:
                    return False
                value = args[key]
                if not in_range(value, low, high) and (value.__class__ is final or not readings(value)):
                    return False
        except Unavailable:  # but one of the others may be certainly false
            return self._predicates()(args)
        more = self._more
        return more is None or more(args)

    def _predicates(self, *, besides_plain: bool = False) -> Predicates:
        from subluminal.core.engine.predicates import predicates

        return predicates(*self._source, besides_plain=besides_plain)

    def readings(self, args: dict[str, Any]) -> list[dict[str, str]]:
        """Which values match only by what they are read as, where all predicates hold. For a trace."""
        return self._predicates().readings(args)


def _plain_items(spec: dict[str, Any], name: str) -> list[tuple[str, Any]]:
    return [(key, wanted) for key, wanted in (spec.get(name) or {}).items() if is_plain(key)]


def scalar(value: Any) -> Any:
    """As `exact`; what is no scalar equals nothing."""
    return _ABSENT if isinstance(value, (list, dict)) else exact(value)


def _final(wanted: list[Any]) -> type:
    """The type of value that has no other reading here: most calls have the type that the rule wants."""
    for kind in (str, bool):
        if all(value.__class__ is kind for value in wanted):
            return kind
    # Rounding to a double makes no integer one of these.
    return int if all(value.__class__ is int and abs(value) < 2**53 for value in wanted) else type


def no_readings(value: Any) -> tuple[Any, ...]:
    return ()


def _readings(wanted: list[Any], generous: bool) -> Callable[[Any], tuple[Any, ...]]:
    if not generous:
        return no_readings
    from subluminal.core.engine.readings import Readings  # for few policies

    return Readings(wanted)


def _range(low: Any, high: Any, generous: bool) -> Callable[[Any], tuple[Any, ...]]:
    if not generous:
        return no_readings
    from subluminal.core.engine.readings import RangeReadings

    return RangeReadings(low, high)


def in_range(value: Any, low: Any, high: Any) -> bool:
    if value.__class__ is not int:
        value = exact(value)
        if value is _TRUE or value is _FALSE or value is None or isinstance(value, (str, list, dict)):
            return False
        if value != value:  # not a number at all
            return False
    return (low is None or value >= low) and (high is None or value <= high)


def args_match(spec: dict[str, Any] | None, *, generous: bool, places: Places | None = None) -> ArgsMatch | None:
    """`bytes` is not asked of the values but of the call (`conditions`)."""
    if not spec:
        return None
    if "bytes" in spec:
        spec = {name: wanted for name, wanted in spec.items() if name != "bytes"}
    return ArgsMatch(spec, generous, places) if any(spec.values()) else None


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
