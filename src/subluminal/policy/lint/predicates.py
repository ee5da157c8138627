"""Predicates on arguments compared: which follows from which, and which exclude each other.

Only what is certain counts. Two predicates are compared if they have the same key in the same spelling. In the generous
sense a list stands for any of its elements and a value for any of its readings, so there even `1` and `2` can both be
found; in the strict sense a value is what it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from subluminal.contracts.globs import glob_tokens, is_glob
from subluminal.core.engine.matchers import exact
from subluminal.core.engine.readings import RangeReadings, Readings, double
from subluminal.policy.lint.directories import directory_covers
from subluminal.policy.lint.hosts import host_covers
from subluminal.policy.lint.patterns import glob_covers, globs_overlap, text_matches

# Fields that look at a value, so that the key must be there. `values` stands for key_equals and key_in.
_TEXT_FIELDS = ("key_glob", "key_regex", "key_contains")
_PLACE_FIELDS = ("path_within", "host_in", "command")
_LOOKS_AT_VALUE = frozenset(("values", "numeric_range", *_TEXT_FIELDS, *_PLACE_FIELDS))


class Predicate(NamedTuple):
    """`wanted`: values, patterns, directories, hosts or programs of which any will do; or the limits of a range."""

    field: str
    key: str
    wanted: Any = None

    @property
    def steps_into_lists(self) -> bool:
        return "[]" in self.key

    @property
    def is_path(self) -> bool:
        """Strictly and generously, other values may be found there: JSON in a text, a value where a list should be."""
        return self.steps_into_lists or "." in self.key


def predicates_of(args: dict[str, Any]) -> Iterator[Predicate]:
    """key_equals and key_in stay apart: generously, one value may be read as two."""
    for key in args.get("has_keys", []):
        yield Predicate("has_keys", key)
    for key in args.get("missing_keys", []):
        yield Predicate("missing_keys", key)
    for key, value in args.get("key_equals", {}).items():
        yield Predicate("values", key, [value])
    for key, values in args.get("key_in", {}).items():
        yield Predicate("values", key, values)
    for field in (*_TEXT_FIELDS, "numeric_range", "path_within", "host_in"):
        for key, wanted in args.get(field, {}).items():
            yield Predicate(field, key, wanted)
    for key, command in args.get("command", {}).items():
        yield Predicate("command", key, command["programs"])
    if args.get("bytes"):
        yield Predicate("bytes", "", args["bytes"])


# -- following ----------------------------------------------------------------------------------------------------


def follows(wide: Predicate, narrow: Predicate, generous: bool | None) -> bool:
    """Whether all that `narrow` matches is matched by `wide`, in this sense; None: in both."""
    if wide.key != narrow.key:
        return False
    if wide.field == "has_keys":
        # Strictly, a list has a key only if every element has it.
        found = narrow.field in _LOOKS_AT_VALUE and (generous is True or not wide.steps_into_lists)
        return narrow.field == "has_keys" or found
    if wide.field == "missing_keys":
        return narrow.field == "missing_keys"
    if narrow.field == wide.field:
        return _SAME_FIELD[wide.field](wide.wanted, narrow.wanted)
    if narrow.field == "values":
        return _values_follow(wide, narrow.wanted, generous)
    if narrow.field == "key_contains" and wide.field == "key_glob":
        return all(_any_covers(wide.wanted, f"*{part}*") for part in narrow.wanted if not is_glob(part)) and not any(
            map(is_glob, narrow.wanted)
        )
    if narrow.field == "key_glob" and wide.field == "key_contains":
        return all(any(part in run for part in wide.wanted for run in _fixed_texts(glob)) for glob in narrow.wanted)
    return False


def _values_follow(wide: Predicate, values: list[Any], generous: bool | None) -> bool:
    if wide.field == "numeric_range":
        return all(_is_number(value) and _within(wide.wanted, value, value) for value in values)
    if wide.field in _TEXT_FIELDS and generous is False:
        return all(
            isinstance(value, str) and not _may_be_json(value) and text_matches(wide.field, wide.wanted, value) is True
            for value in values
        )
    return False


def _may_be_json(text: str) -> bool:
    """Servers that ask for a list read one in a text; then each element counts."""
    return text.strip()[:1] in ("[", "{")


def _any_covers(globs: list[str], narrow: str) -> bool:
    return any(glob_covers(glob, narrow) for glob in globs)


def _fixed_texts(glob: str) -> list[str]:
    """What every text must hold that the glob matches."""
    return "".join(token if len(token) == 1 and token not in "*?" else "\0" for token in glob_tokens(glob)).split("\0")


def _range_covers(wide: dict[str, Any], narrow: dict[str, Any]) -> bool:
    return _within(wide, narrow.get("min"), narrow.get("max"))


def _within(limits: dict[str, Any], low: Any, high: Any) -> bool:
    """Whether a range lies within the limits; None is no limit."""
    least, most = limits.get("min"), limits.get("max")
    return (least is None or (low is not None and low >= least)) and (
        most is None or (high is not None and high <= most)
    )


def _is_number(value: Any) -> bool:
    return not isinstance(value, bool | str)


def _program_covers(wide: str, narrow: str) -> bool:
    """Globs on names; those on paths compare by their spelling alone."""
    return wide == narrow or ("/" not in wide + narrow and glob_covers(wide, narrow))


def _each(covers: Callable[[Any, Any], bool]) -> Callable[[list[Any], list[Any]], bool]:
    return lambda wide, narrow: all(any(covers(w, n) for w in wide) for n in narrow)


_SAME_FIELD: dict[str, Callable[[Any, Any], bool]] = {
    "values": lambda wide, narrow: {exact(value) for value in narrow} <= {exact(value) for value in wide},
    "key_glob": _each(glob_covers),
    "key_regex": lambda wide, narrow: set(narrow) <= set(wide),
    "key_contains": _each(lambda wide, narrow: wide in narrow),
    "numeric_range": _range_covers,
    "path_within": _each(directory_covers),
    "host_in": _each(host_covers),
    "command": _each(_program_covers),
    "bytes": _range_covers,
}


# -- excluding ----------------------------------------------------------------------------------------------------


def exclude(strict: Predicate, generous: Predicate) -> bool:
    """Whether certainly no call meets both, the one judged strictly and the other generously.

    What certainly cannot hold in these two senses cannot hold strictly for both.
    """
    if strict.key != generous.key:
        return False
    if strict.field == "bytes":
        return generous.field == "bytes" and _apart(strict.wanted, generous.wanted)
    if strict.field == "missing_keys":
        return generous.field == "has_keys" or generous.field in _LOOKS_AT_VALUE
    if generous.field == "missing_keys":
        return strict.field in _LOOKS_AT_VALUE and not strict.steps_into_lists  # and null is none of these
    if strict.is_path:
        return False
    if strict.field == "values":
        return all(_never_read(value, generous) for value in strict.wanted)
    if strict.field == "numeric_range":
        return _range_excludes(strict.wanted, generous)
    if strict.field == generous.field == "key_glob":
        return not any(globs_overlap(a, b) for a in strict.wanted for b in generous.wanted)
    return False


def _never_read(value: Any, wanted: Predicate) -> bool:
    """Whether no server could find in this very value what is wanted."""
    if isinstance(value, str) and _may_be_json(value):
        return False
    if wanted.field == "values":
        choices = {exact(choice) for choice in wanted.wanted}
        return exact(value) not in choices and not Readings(wanted.wanted)(value)
    if wanted.field == "numeric_range":
        return not RangeReadings(wanted.wanted.get("min"), wanted.wanted.get("max"))(value)
    if wanted.field in _TEXT_FIELDS and isinstance(value, str):
        return text_matches(wanted.field, wanted.wanted, value) is False
    return False


def _range_excludes(limits: dict[str, Any], wanted: Predicate) -> bool:
    if wanted.field == "numeric_range":
        return _apart(limits, wanted.wanted)
    if wanted.field == "values":  # a number is also read as true, and as text
        return all(_is_number(value) and _apart(limits, {"min": value, "max": value}) for value in wanted.wanted)
    return False


def _apart(a: dict[str, Any], b: dict[str, Any]) -> bool:
    """Whether two ranges have no number in common, even rounded as most parsers round."""
    return any(
        low.get("min") is not None and high.get("max") is not None and double(high["max"]) < double(low["min"])
        for low, high in ((a, b), (b, a))
    )
