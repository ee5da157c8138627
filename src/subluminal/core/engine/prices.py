"""What a call costs its budget, where that is more than a fixed number: for policies that say so.

A table names tools (`cost_units_by_tool`), an argument says how much (`cost_units_from`). Rounded up, and never less
than the call would cost without its argument: a budget is a limit, and what it counts stops calls.
"""

from __future__ import annotations

from subluminal.contracts.globs import glob_test, is_glob, literal_head
from subluminal.contracts.vocabulary import UNJUDGED_ARGS
from subluminal.core.engine.faults import Unavailable
from subluminal.core.engine.state import MAX_INTEGER
from subluminal.core.engine.where import MAX_ELEMENTS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from subluminal.core.engine.rules import Judgement

# Beyond what any limit and any `per` make a difference to.
_ENDLESS = 2.0**120


class Price:
    """Called with a judgement and what the tool costs at least."""

    __slots__ = ("_arg", "_exact", "_globs", "_locate", "_otherwise", "_per")

    def __init__(self, detail: dict[str, Any], otherwise: int) -> None:
        self._otherwise = otherwise
        table: dict[str, int] = {
            glob: min(int(units), MAX_INTEGER) for glob, units in (detail.get("cost_units_by_tool") or {}).items()
        }
        self._exact = {name: units for name, units in table.items() if not is_glob(name)}
        # A mapping has no order that a snapshot keeps: the more a glob says of how a name begins, the earlier it is.
        globs = sorted(filter(is_glob, table), key=lambda glob: (-len(literal_head(glob)), glob))
        self._globs = [(glob_test(glob), table[glob]) for glob in globs]
        source = detail.get("cost_units_from") or {}
        self._arg: str = source.get("arg") or ""
        self._per = max(1, int(source.get("per") or 1))
        self._locate = None
        if self._arg:
            from subluminal.core.engine.located import locator

            self._locate = locator(self._arg)

    def at_least(self, tool_name: str) -> int:
        """What a call of this tool costs, whatever its arguments are."""
        exact = self._exact.get(tool_name)
        if exact is not None:
            return exact
        return next((units for test, units in self._globs if test(tool_name)), self._otherwise)

    def __call__(self, judgement: Judgement, at_least: int) -> int:
        if self._locate is None:
            return at_least
        total = sum(map(self._amount, _elements(self._locate(judgement.args()), self._arg)))
        return max(at_least, min(-(-total // self._per), MAX_INTEGER))

    def _amount(self, value: Any) -> int:
        """The largest whole number that a server could read in it, upwards; nothing below zero."""
        if value.__class__ is int:
            return max(0, min(value, int(_ENDLESS)))
        if isinstance(value, float) and value != value:
            return int(_ENDLESS)
        from decimal import ROUND_CEILING, Decimal
        from math import ceil

        from subluminal.core.engine.readings import RangeReadings

        readings = RangeReadings(None, None)(value)
        if not readings:
            raise Unavailable(UNJUDGED_ARGS, f"the call costs what {self._arg!r} says, and that is no number")
        number = readings[0]
        if number <= 0:
            return 0 if not isinstance(value, Decimal) or value <= 0 else 1
        if number >= _ENDLESS:
            return int(_ENDLESS)
        return int(value.to_integral_value(ROUND_CEILING)) if isinstance(value, Decimal) else ceil(number)


def _elements(values: list[Any], arg: str) -> list[Any]:
    """What stands in lists, lists in lists included, is added up."""
    found: list[Any] = []
    waiting = values[::-1]
    seen = 0
    while waiting:
        value = waiting.pop()
        if not isinstance(value, list):
            found.append(value)
            continue
        seen += len(value)
        if seen > MAX_ELEMENTS:
            raise Unavailable(UNJUDGED_ARGS, f"the argument {arg!r} has more than {MAX_ELEMENTS:,} elements to add up")
        waiting += reversed(value)
    return found
