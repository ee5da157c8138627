"""Groups of an index: rules that look at the same place for the same kind of thing, found by the values there.

All look generously, whatever the rules do: what a strict look finds is among it. A value of a type that JSON does not
have, and a place with more than can be looked at, may mean any rule of the group.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from operator import itemgetter

from subluminal.core.engine.index.patterns import text_index
from subluminal.core.engine.predicates import Predicate
from subluminal.core.engine.readings import as_false, as_true, double, number_in, texts
from subluminal.core.engine.where import MAX_ELEMENTS, held_in, spread

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from subluminal.core.engine.names import NameIndex, Pattern

_LIMIT = itemgetter(0)
_JSON = frozenset((str, int, float, bool, type(None), list, dict))


class Group:
    """`add` every rule, `close` it, then `find`."""

    __slots__ = ("_all", "_place")
    takes_lists = False
    joins = False

    def __init__(self, key: str) -> None:
        self._all: list[int] = []
        self._place = Predicate("", key, bool, generous=True, takes_lists=self.takes_lists, joins=self.joins)

    def add(self, position: int, *wanted: Any) -> None:
        self._all.append(position)

    def close(self) -> None:
        pass

    def find(self, args: dict[str, Any], found: set[int]) -> None:
        values, complete = self._place.values(args)
        if not complete or any(value.__class__ not in _JSON for value in values):
            found.update(self._all)
            return
        for value in values:
            self.find_value(value, found)

    def find_value(self, value: Any, found: set[int]) -> None:
        raise TypeError("a group is one of its kinds")


class Present(Group):
    """Rules that match nothing where there is nothing."""

    __slots__ = ()

    def find(self, args: dict[str, Any], found: set[int]) -> None:
        found.update(self._all)


class Missing(Group):
    """`missing_keys`: of a top-level key alone."""

    __slots__ = ()

    def find(self, args: dict[str, Any], found: set[int]) -> None:
        if args.get(self._place.key) is None:
            found.update(self._all)


class _Elements(Group):
    """Typed predicates: a list, or a text that is one as JSON, is read as a whole and by its elements."""

    __slots__ = ()
    takes_lists = True

    def find_value(self, value: Any, found: set[int]) -> None:
        self.read(value, found)
        if value.__class__ is str:
            value = held_in(value) if "]" in value else None
        if isinstance(value, list):
            elements, complete = spread([value], generous=True, empty=True)
            if not complete or any(element.__class__ not in _JSON for element in elements):
                found.update(self._all)
                return
            for element in elements:
                self.read(element, found)

    def read(self, value: Any, found: set[int]) -> None:
        raise TypeError("a group is one of its kinds")


class Equal(_Elements):
    """`key_equals` and `key_in`: the readings of a value (`readings`), looked up among all that is wanted."""

    __slots__ = ("_false", "_longest", "_null", "_numbers", "_texts", "_true")

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self._texts: dict[str, list[int]] = {}
        self._numbers: dict[float, list[int]] = {}
        self._true: list[int] = []
        self._false: list[int] = []
        self._null: list[int] = []
        self._longest = 0

    def add(self, position: int, *wanted: Any) -> None:
        super().add(position)
        for value in wanted[0]:
            if isinstance(value, str):
                self._texts.setdefault(value, []).append(position)
                self._longest = max(self._longest, len(value))
            elif value is None:
                self._null.append(position)
            elif isinstance(value, bool):
                (self._true if value else self._false).append(position)
            else:  # numbers that are equal are equal when they are rounded
                self._numbers.setdefault(double(value), []).append(position)

    def read(self, value: Any, found: set[int]) -> None:
        if value.__class__ is str:
            found.update(self._texts.get(value, ()))
        else:
            if self._texts:
                for text in texts(value, self._longest):
                    found.update(self._texts.get(text, ()))  # type: ignore[arg-type]
            if value is None:
                found.update(self._null)
        if self._numbers and (number := number_in(value)) is not None:
            found.update(self._numbers.get(number, ()))
        if self._true and as_true(value):
            found.update(self._true)
        if self._false and as_false(value):
            found.update(self._false)


class Ranges(_Elements):
    """`numeric_range`: those that begin at or below a number; of those without a beginning, that end at or above it."""

    __slots__ = ("_ending", "_ends", "_starting", "_starts")

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self._starts: list[tuple[float, int]] = []
        self._ends: list[tuple[float, int]] = []

    def add(self, position: int, *wanted: Any) -> None:
        super().add(position)
        low, high = (None if limit is None or double(limit) != double(limit) else double(limit) for limit in wanted)
        if low is not None or high is None:
            self._starts.append((float("-inf") if low is None else low, position))
        else:
            self._ends.append((high, position))

    def close(self) -> None:
        self._starts.sort()
        self._ends.sort()
        self._starting = [position for _, position in self._starts]
        self._ending = [position for _, position in self._ends]

    def read(self, value: Any, found: set[int]) -> None:
        number = number_in(value)
        if number is not None:
            found.update(self._starting[: bisect_right(self._starts, number, key=_LIMIT)])
            found.update(self._ending[bisect_left(self._ends, number, key=_LIMIT) :])


class Texts(Group):
    """`key_glob`, `key_regex`, `key_contains`: what is a text, and what a server could write of other values."""

    __slots__ = ("_index", "_patterns")
    joins = True

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self._patterns: list[tuple[int, list[Pattern]]] = []
        self._index: NameIndex

    def add(self, position: int, *wanted: Any) -> None:
        super().add(position)
        self._patterns.append((position, wanted[0]))

    def close(self) -> None:
        self._index = text_index(self._patterns)

    def find_value(self, value: Any, found: set[int]) -> None:
        for text in (value,) if value.__class__ is str else texts(value, MAX_ELEMENTS):
            if text is not None:
                found.update(self._index.find(text))
