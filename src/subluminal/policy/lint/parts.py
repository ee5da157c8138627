"""The matches of a rule, one by one: `match`, its alternatives, `unless`, and its alternatives.

Each has a place and a sense. What stops a call is judged generously and what lets it through strictly, so the `unless`
of a rule has the other sense than its `match`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

Match = dict[str, Any]
NAMES = ("tool_name", "server_name")  # tools first: they tell rules apart sooner
Place = tuple[str | int, ...]


class Part(NamedTuple):
    """One match without its alternatives, which are parts of their own."""

    place: Place
    match: Match
    generous: bool

    @property
    def args(self) -> dict[str, Any]:
        args: dict[str, Any] = self.match.get("args", {})
        return args

    @property
    def words(self) -> str:
        """As people write the place: `any_of[1].`; nothing for `match` itself, which needs no naming."""
        steps = [f"[{step}]" if isinstance(step, int) else f".{step}" for step in self.place]
        text = "".join(steps).lstrip(".").removeprefix("match").lstrip(".")
        return f"{text}." if text else ""


def parts_of(rule: dict[str, Any]) -> Iterator[Part]:
    stops = rule["kind"] != "allow"
    for field, generous in (("match", stops), ("unless", not stops)):
        if field in rule:
            match = rule[field]
            yield Part((field,), match, generous)
            for number, alternative in enumerate(match.get("any_of", [])):
                yield Part((field, "any_of", number), alternative, generous)


def classes_asked(match: Match) -> set[str]:
    """Every risk class that a match asks for, in its alternatives too."""
    return {word for part in (match, *match.get("any_of", [])) for word in part.get("risk_class", [])}


def reads_values(matches: Iterable[Match]) -> bool:
    """Whether strict and generous differ: what looks at names, time, size and the presence of plain keys does not."""
    parts = [part for match in matches for part in (match, *match.get("any_of", []))]
    return any(_reads(part.get("args", {})) for part in parts)


def _reads(args: dict[str, Any]) -> bool:
    return bool(args.keys() - {"has_keys", "bytes"}) or any("[]" in key for key in args.get("has_keys", []))


def weight(match: Match) -> int:
    """How much there is to compare: names, values and patterns, of all alternatives."""
    total = 1
    for part in (match, *match.get("any_of", [])):
        names = [patterns for field in NAMES for patterns in part.get(field, {}).values()]
        predicates = [
            wanted for field in part.get("args", {}).values() if isinstance(field, dict) for wanted in field.values()
        ]
        total += sum(len(wanted) for wanted in (*names, *predicates) if isinstance(wanted, list | dict))
        total += sum(len(field) for field in part.get("args", {}).values()) + 1
    return total
