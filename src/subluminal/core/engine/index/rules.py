"""The index over the rules of a plan: each stands under the one predicate that keeps most calls away from it."""

from __future__ import annotations

from subluminal.core.engine.index.groups import Equal, Group, Missing, Present, Ranges, Texts
from subluminal.core.engine.index.patterns import contains_patterns, glob_patterns, regex_patterns_of
from subluminal.core.engine.matchers import is_plain, limits_of
from subluminal.core.engine.where import MAX_SEGMENTS, Where, segments

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from subluminal.core.engine.rules import Rule

    # The group that a rule is put into: its kind, its key, and what the rule looks for there.
    Guard = tuple[type[Group], str, tuple[Any, ...]]

_PATTERNS = {"key_glob": glob_patterns, "key_regex": regex_patterns_of, "key_contains": contains_patterns}
_SCALARS = (str, int, float, type(None))  # bool is an int


class RuleIndex:
    """Made of rules that have guards; tells positions in their list."""

    __slots__ = ("_below", "_by_key", "_missing")

    def __init__(self, guarded: list[list[Guard]]) -> None:
        self._by_key: dict[str, list[Group]] = {}  # by the top-level keys without which a group has nothing to say
        self._below: dict[str, dict[str, list[Group]]] = {}  # by the first two names of a path
        self._missing: list[Group] = []
        groups: dict[tuple[type[Group], str], Group] = {}
        for position, guards in enumerate(guarded):
            for kind, key, wanted in guards:
                group = groups.get((kind, key))
                if group is None:
                    group = groups[kind, key] = self._new(kind, key)
                group.add(position, *wanted)
        for group in groups.values():
            group.close()

    def _new(self, kind: type[Group], key: str) -> Group:
        group = kind(key)
        if kind is Missing:
            self._missing.append(group)
            return group
        where = Where(key)
        if where.second is not None:
            self._below.setdefault(where.first, {}).setdefault(where.second, []).append(group)
        elif where.first != key:
            self._by_key.setdefault(where.first, []).append(group)
        self._by_key.setdefault(key, []).append(group)  # every path is a key as it stands, too
        return group

    def find(self, args: dict[str, Any]) -> set[int]:
        """Raises where a value cannot be read at all: then each rule has to say so itself."""
        found: set[int] = set()
        for key in _shared(args, self._by_key):
            for group in self._by_key[key]:
                group.find(args, found)
        for key in _shared(args, self._below):
            below, value = self._below[key], args[key]
            # A text may hold an object; what else is no object has nothing below it, which the group finds.
            for name in _shared(value, below) if value.__class__ is dict else below:
                for group in below[name]:
                    group.find(args, found)
        for group in self._missing:
            group.find(args, found)
        return found


def _shared(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    if len(one) > len(other):
        one, other = other, one
    return [key for key in one if key in other]


def guards_of(rule: Rule) -> list[Guard] | None:
    """Of these one must let a call pass for the rule to match; None: nothing in the arguments keeps it from matching.

    What is asked beside them (names, hours, `unless`) can only make a rule match less.
    """
    guard = _guard(rule.match.get("args") or {}, rule.generous, _paths(rule))
    if guard is not None:
        return [guard]
    alternatives = [_guard(each.get("args") or {}, rule.generous, {}) for each in rule.match.get("any_of") or ()]
    guards = [each for each in alternatives if each is not None]
    return guards if guards and len(guards) == len(alternatives) else None


def _paths(rule: Rule) -> dict[str, Any]:
    """The rule's own `path_within` by key: where its entries led when the rule was made is what counts."""
    beside = None if rule.args is None else rule.args.beside
    each = () if beside is None else beside.each
    return {predicate.key: predicate.test for predicate in each if predicate.name == "path_within"}  # type: ignore[union-attr]


def _guard(spec: dict[str, Any], generous: bool, paths: dict[str, Any]) -> Guard | None:
    return next(_guards(spec, generous, paths), None)


def _guards(spec: dict[str, Any], generous: bool, paths: dict[str, Any]) -> Iterator[Guard]:
    """The most telling predicate first. A boolean tells little: nearly every text can be read as true."""
    equal = list(_equal(spec))
    for key, values in equal:
        if not any(isinstance(value, bool) for value in values):
            yield Equal, key, (values,)
    for name, key, wanted in _items(spec, *_PATTERNS):
        yield Texts, key, (_PATTERNS[name](wanted),)
    yield from _resolved(spec, generous, paths)
    for key, values in equal:
        yield Equal, key, (values,)
    for _, key, wanted in _items(spec, "numeric_range"):
        yield Ranges, key, limits_of(wanted)
    for name, wanted in spec.items():
        for key in wanted or () if name not in ("missing_keys", "bytes") else ():
            if segments(key) <= MAX_SEGMENTS:
                yield Present, key, ()
    for key in spec.get("missing_keys") or ():
        if is_plain(key):
            yield Missing, key, ()


def _resolved(spec: dict[str, Any], generous: bool, paths: dict[str, Any]) -> Iterator[Guard]:
    if not (spec.get("host_in") or spec.get("command") or spec.get("path_within")):
        return
    from subluminal.core.engine.index.resolved import Directories, HostNames, Programs

    for _, key, wanted in _items(spec, "host_in"):
        yield HostNames, key, (wanted, generous)
    for _, key, wanted in _items(spec, "command"):
        if generous:  # strictly, a line is in doubt for more reasons than these
            yield Programs, key, (wanted["programs"],)
    for _, key, _ in _items(spec, "path_within"):
        if key in paths and paths[key].settled:
            yield Directories, key, (paths[key],)


def _equal(spec: dict[str, Any]) -> Iterator[tuple[str, list[Any]]]:
    for name, key, wanted in _items(spec, "key_equals", "key_in"):
        values = [wanted] if name == "key_equals" else wanted
        if all(isinstance(value, _SCALARS) for value in values):
            yield key, values


def _items(spec: dict[str, Any], *names: str) -> Iterator[tuple[str, str, Any]]:
    for name in names:
        for key, wanted in (spec.get(name) or {}).items():
            if segments(key) <= MAX_SEGMENTS:  # what leads deeper cannot be judged, and the rule has to say so
                yield name, key, wanted
