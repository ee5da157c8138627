"""The predicates of `match.args` one by one: where each looks, and what it makes of the values there.

`matchers.ArgsMatch` asks the oldest ones on top-level keys itself, which is quicker; those are made here as well where
each has to be asked on its own: for a trace, and where one of them cannot be judged.

Generously, any value at the place matches; strictly, there is one and every one does. What cannot be judged
(`Unavailable`) gives way to what is certain: a predicate that is false, or an element that decides.
"""

from __future__ import annotations

from subluminal.contracts.jsontext import to_json
from subluminal.core.engine.certainty import decided, decided_among
from subluminal.core.engine.faults import Unavailable
from subluminal.core.engine.matchers import ASKED_HERE, in_range, is_plain, limits_of, no_readings, scalar
from subluminal.core.engine.where import MAX_ELEMENTS, Where, spread, too_many

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from subluminal.core.engine.places import Places

    ValueTest = Callable[[Any], bool]

ABSENT = object()


class Predicate:
    """One key of one predicate.

    `takes_lists`: the test itself knows what a list means. `joins`: a list is tested as the text of it as well.
    """

    __slots__ = ("_generous", "_joins", "_listed", "_plain", "_takes_lists", "_where", "key", "name", "test")

    def __init__(
        self, name: str, key: str, test: ValueTest, *, generous: bool, takes_lists: bool = False, joins: bool = False
    ) -> None:
        self.name = name
        self.key = key
        self.test = test
        self._generous = generous
        self._takes_lists = takes_lists
        self._joins = joins
        self._where = Where(key)
        self._plain = is_plain(key)
        # An exact comparison wants the text as it stands.
        self._listed = generous or not isinstance(test, Typed)

    def __call__(self, args: dict[str, Any]) -> bool:
        if self._plain:
            value = args.get(self.key, ABSENT)
            if value is ABSENT:
                return False
            if value.__class__ is str and "]" not in value:
                test = self.test
                return test(value)
        values, complete = self.values(args)
        if not values and complete:
            return False
        return decided_among(values, self._generous, self.test, None if complete else too_many(self.key))

    def values(self, args: dict[str, Any]) -> tuple[list[Any], bool]:
        """What is tested, and whether that is all there is. Strictly, every element of a list has to have something."""
        found = self._where.locate(args, generous=self._generous, listed=self._listed)
        if found.lacking and not self._generous:
            return [], True
        if self._takes_lists:
            return found.values, found.complete
        values, complete = spread(found.values, generous=self._generous)
        if self._joins and values is not found.values:
            values += (text for value in found.values if isinstance(value, list) for text in joined(value))
        return values, complete and found.complete

    def deciding(self, args: dict[str, Any]) -> tuple[Any, bool | None, str | None]:
        """For a trace: the value that decided, whether it matched (None: it cannot be told), and why."""
        doubtful = None
        values, complete = self.values(args)
        for value in values:
            try:
                if bool(self.test(value)) is self._generous:
                    return value, self._generous, reading(self.test, value)
            except Unavailable as unavailable:
                doubtful = doubtful or (value, None, unavailable.why)
        if doubtful is not None:
            return doubtful
        if not complete:
            return values, None, too_many(self.key).why
        if not values:
            return ABSENT, False, None
        return values[0], not self._generous, reading(self.test, values[0])


class Presence:
    """`has_keys` and, turned round, `missing_keys`: what lets a call through must see even what is barely there."""

    __slots__ = ("_generous", "_wanted", "_where", "key", "name")

    def __init__(self, name: str, key: str, *, generous: bool) -> None:
        self.name = name
        self.key = key
        self._wanted = name == "has_keys"
        self._generous = generous
        self._where = Where(key)

    def __call__(self, args: dict[str, Any]) -> bool:
        if is_plain(self.key):
            if self._wanted:
                return self.key in args
            return self.key not in args or (self._generous and args[self.key] is None)
        found = self._where.locate(args, generous=self._generous is self._wanted)
        if self._wanted is self._generous:  # is it there by any reading?
            certain = bool(found.values)
            answer = self._wanted
        else:  # is it missing anywhere?
            certain = not found.values or found.lacking
            if not self._wanted:
                certain = certain or any(value is None for value in found.values)
            answer = not self._wanted
        if certain:
            return answer
        if not found.complete:
            raise too_many(self.key)
        return not answer

    def deciding(self, args: dict[str, Any]) -> tuple[Any, bool | None, str | None]:
        values = self._where.locate(args, generous=self._generous is self._wanted).values
        try:
            return values[0] if values else ABSENT, self(args), None
        except Unavailable as unavailable:
            return ABSENT, None, unavailable.why


class Typed:
    """`key_equals`, `key_in`, `numeric_range`: the exact value, else (generously) what it can be read as."""

    __slots__ = ("_exactly", "_readings")

    def __init__(self, exactly: ValueTest, readings: Callable[[Any], tuple[Any, ...]]) -> None:
        self._exactly = exactly
        self._readings = readings

    def __call__(self, value: Any) -> bool:
        return self._exactly(value) or bool(self._readings(value))

    def read(self, value: Any) -> Any:
        """What the value matches as, if it does not match as it stands."""
        found = () if self._exactly(value) else self._readings(value)
        return found[0] if found else None


def joined(value: list[Any]) -> list[str]:
    """A list as JavaScript writes it, where that has no more parts than are looked at."""
    from subluminal.core.engine.readings import texts

    return [text for text in texts(value, MAX_ELEMENTS) if text is not None]


def reading(test: Any, value: Any) -> str | None:
    """What the value was read as, in words; None: as it stands."""
    if not hasattr(test, "read"):
        told: str = test.reading(value)
        return told or None
    read = test.read(value)
    return None if read is None else f"read as {to_json(read)}"


class Predicates:
    """Several predicates, of which all must hold."""

    __slots__ = ("each",)

    def __init__(self, each: list[Predicate | Presence]) -> None:
        self.each = each

    def __call__(self, args: dict[str, Any]) -> bool:
        return decided(self.each, False, args)

    @property
    def ask(self) -> Callable[[dict[str, Any]], bool]:
        """The shortest way to the answer: most rules have one predicate, and nothing to weigh it against."""
        return self.each[0].__call__ if len(self.each) == 1 else self.__call__

    def readings(self, args: dict[str, Any]) -> list[dict[str, str]]:
        """Which values of typed predicates match only by what they are read as. As JSON: the spelling matters."""
        found = []
        for predicate in self.each:
            if isinstance(predicate, Predicate) and isinstance(predicate.test, Typed):
                value, matched, _ = predicate.deciding(args)
                read = predicate.test.read(value) if matched else None
                if read is not None:
                    found.append({"key": predicate.key, "value": to_json(value), "read_as": to_json(read)})
        return found

    def told(self, args: dict[str, Any]) -> Iterator[tuple[str, Any, bool | None, str | None]]:
        """For a trace: the place, the value that decided (ABSENT: none), whether it matched, what it was read as."""
        for predicate in self.each:
            place = f"args.{predicate.name}.{predicate.key}"
            try:
                yield place, *predicate.deciding(args)
            except Unavailable as unavailable:
                yield place, ABSENT, None, unavailable.why


def predicates(spec: dict[str, Any], generous: bool, places: Places | None, *, besides_plain: bool) -> Predicates:
    """`besides_plain`: without those that `ArgsMatch` asks itself. The cheapest come first."""
    made: list[Predicate | Presence] = []
    for name in ("has_keys", "missing_keys"):
        made += [Presence(name, key, generous=generous) for key in spec.get(name) or ()]
    made += _typed(spec, generous)
    made += _textual(spec, generous)
    made += _resolved(spec, generous, places)
    if besides_plain:
        made = [each for each in made if each.name not in ASKED_HERE or not is_plain(each.key)]
    return Predicates(made)


def _typed(spec: dict[str, Any], generous: bool) -> Iterator[Predicate]:
    for name in ("key_equals", "key_in", "numeric_range"):
        for key, wanted in (spec.get(name) or {}).items():
            yield Predicate(name, key, _typed_test(name, wanted, generous), generous=generous, takes_lists=True)


def _typed_test(name: str, wanted: Any, generous: bool) -> Typed:
    from subluminal.core.engine.readings import RangeReadings, Readings

    if name == "numeric_range":
        low, high = limits_of(wanted)
        return Typed(lambda value: in_range(value, low, high), RangeReadings(low, high) if generous else no_readings)
    values = [wanted] if name == "key_equals" else wanted
    choices = frozenset(scalar(value) for value in values)
    return Typed(lambda value: scalar(value) in choices, Readings(values) if generous else no_readings)


def _textual(spec: dict[str, Any], generous: bool) -> Iterator[Predicate]:
    names = [name for name in ("key_contains", "key_glob", "key_regex") if spec.get(name)]
    if not names:
        return
    from subluminal.core.engine.texts import TextMatch, contains_tests, glob_tests, regex_tests

    make = {"key_glob": glob_tests, "key_regex": regex_tests, "key_contains": contains_tests}
    for name in names:
        for key, patterns in spec[name].items():
            yield Predicate(name, key, TextMatch(make[name](patterns), generous), generous=generous, joins=generous)


def _resolved(spec: dict[str, Any], generous: bool, places: Places | None) -> Iterator[Predicate]:
    """What a value leads to: a host, the programs of a line, a file. Without `places` no path can be judged."""
    if spec.get("host_in"):
        from subluminal.core.engine.hosts import HostIn

        for key, patterns in spec["host_in"].items():
            yield Predicate("host_in", key, HostIn(patterns, generous), generous=generous)
    if spec.get("command"):
        from subluminal.core.engine.commands import CommandOf

        for key, wanted in spec["command"].items():
            yield Predicate("command", key, CommandOf(wanted, generous), generous=generous, takes_lists=True)
    if spec.get("path_within"):
        from subluminal.core.engine.paths import PathWithin

        for key, entries in spec["path_within"].items():
            yield Predicate("path_within", key, PathWithin(entries, generous, places), generous=generous)
