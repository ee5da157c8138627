"""Where a predicate matches more, or less, than its words say: servers coerce values, and rules are judged accordingly.

What stops a call matches every value that a server could read as the wanted one; what lets it through matches that
value alone (`core.engine.readings`). Notes, because both are right: they say what to expect.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from subluminal.core.engine.readings import RangeReadings
from subluminal.policy.lint.findings import shown
from subluminal.policy.lint.reporter import Linter, Path

_TRY = "try it with `sub policy explain --args ...`, which names the reading that matched"
_AS_TRUE = '1, "yes", "false" and every other value but false, 0, null and ""'
_AS_FALSE = '0, null, "", [] and words such as "no" and "off"'


def note_readings(rules: dict[int, dict[str, Any]], linter: Linter) -> None:
    for index, rule in rules.items():
        linter.base, linter.rule_id = ("rules", index), rule["rule_id"]
        words = _strict if rule["kind"] == "allow" else _generous
        for predicate, key, wanted in _predicates(rule["match"].get("args", {})):
            text = next(filter(None, map(words, wanted)), None)  # one note for each key is enough
            if text:
                where: Path = ("match", "args", predicate, key)
                linter.note(where, "readings", f"{predicate}.{key} {text}", _TRY)


def _predicates(args: dict[str, Any]) -> Iterator[tuple[str, str, list[Any]]]:
    """A predicate, its key, and the wanted values or the limits of a range."""
    for key, value in args.get("key_equals", {}).items():
        yield "key_equals", key, [value]
    for key, values in args.get("key_in", {}).items():
        yield "key_in", key, values
    for key, limits in args.get("numeric_range", {}).items():
        yield "numeric_range", key, [limits]


def _strict(wanted: Any) -> str | None:
    if isinstance(wanted, str):
        return None
    what = "numbers" if isinstance(wanted, dict) else shown(wanted)
    other = "a number as text" if isinstance(wanted, dict) else f'"{shown(wanted)}"'
    return f"of an allow matches {what} alone: not {other}, though servers read it so"


def _generous(wanted: Any) -> str | None:
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
