"""Where a predicate matches more, or less, than its words say: servers coerce values, and rules are judged accordingly.

What stops a call matches every value that a server could read as the wanted one; what lets it through matches that
value alone (`core.engine.readings`). Notes, because both are right: they say what to expect.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from subluminal.core.engine.readings import RangeReadings
from subluminal.policy.lint.findings import shown
from subluminal.policy.lint.keys import escaped, is_dotted
from subluminal.policy.lint.matches import keys_of
from subluminal.policy.lint.parts import Part, parts_of
from subluminal.policy.lint.reporter import Linter, Path

_TRY = "try it with `sub policy explain --args ...`, which names the reading that matched"
_AS_TRUE = '1, "yes", "false" and every other value but false, 0, null and ""'
_AS_FALSE = '0, null, "", [] and words such as "no" and "off"'


def note_readings(rules: dict[int, dict[str, Any]], linter: Linter) -> None:
    for index, rule in rules.items():
        linter.base, linter.rule_id = ("rules", index), rule["rule_id"]
        for part in parts_of(rule):
            _note_values(part, rule["kind"], linter)
        _note_keys(rule, linter)


def _note_values(part: Part, kind: str, linter: Linter) -> None:
    words = _generous if part.generous else _strict
    whose = f"of {_article(kind)}" if part.place[0] == "match" else f"in the unless of {_article(kind)}"
    for predicate, key, wanted in _predicates(part.args):
        text = next(filter(None, (words(value, whose) for value in wanted)), None)  # one note for each key is enough
        if text:
            where: Path = (*part.place, "args", predicate, key)
            linter.note(where, "readings", f"{predicate}.{key} {text}", _TRY)


def _article(kind: str) -> str:
    return f"an {kind}" if kind == "allow" else f"a {kind.replace('_', ' ')}"


def _note_keys(rule: dict[str, Any], linter: Linter) -> None:
    """One note for each key of a rule: a path that may also be one key, and a list of which every element counts."""
    seen: set[str] = set()
    for part in parts_of(rule):
        for place, key in keys_of(part):
            if key in seen:
                continue
            if is_dotted(key):
                message = f"the key {shown(key)} is read as a path, and as one key that has dots in it"
                linter.note(place, "readings", message, f"write {escaped(key)} if only the one key is meant")
            elif "[]" in key and not part.generous and "missing_keys" not in place:
                message = f"{shown(key)} asks every element of the list here: an empty list, or no list, does not match"
                linter.note(place, "readings", message, _TRY)
            else:
                continue
            seen.add(key)


def _predicates(args: dict[str, Any]) -> Iterator[tuple[str, str, list[Any]]]:
    """A predicate, its key, and the wanted values or the limits of a range."""
    for key, value in args.get("key_equals", {}).items():
        yield "key_equals", key, [value]
    for key, values in args.get("key_in", {}).items():
        yield "key_in", key, values
    for key, limits in args.get("numeric_range", {}).items():
        yield "numeric_range", key, [limits]


def _strict(wanted: Any, whose: str) -> str | None:
    if isinstance(wanted, str):
        return None
    what = "numbers" if isinstance(wanted, dict) else shown(wanted)
    other = "a number as text" if isinstance(wanted, dict) else f'"{shown(wanted)}"'
    return f"{whose} matches {what} alone: not {other}, though servers read it so"


def _generous(wanted: Any, whose: str) -> str | None:
    if isinstance(wanted, str):
        if wanted.lower() in ("true", "false") or (wanted.strip() and RangeReadings(None, None)(wanted)):
            return (
                f"is the text {shown(wanted)}, so other spellings of {wanted[:20]} do not match; they do without quotes"
            )
        return None
    if isinstance(wanted, bool):
        return f"{shown(wanted)} also matches what a server could read so: {_AS_TRUE if wanted else _AS_FALSE}"
    limits = wanted if isinstance(wanted, dict) else {"min": wanted, "max": wanted}
    if RangeReadings(limits.get("min"), limits.get("max"))(0):
        return 'also matches what a server could read as 0: null, "", [] and false'
    return None
