"""What predicates saw, as `sub policy explain` shows it: within the terminal, with nothing that it would obey."""

from __future__ import annotations

from typing import Any

import pytest

from subluminal.cli.policy.predicates import predicate_lines
from subluminal.cli.render.columns import width


def told(place: str, value: str | None, matched: bool | None, read_as: str | None = None) -> dict[str, Any]:
    return {"place": place, "value": value, "matched": matched, "read_as": read_as}


def test_a_mark_a_place_a_value_and_what_it_was_read_as() -> None:
    lines = predicate_lines(
        [
            told("args.key_glob.path", '"/etc/passwd"', True),
            told("args.key_equals.force", '"yes"', True, "read as true"),
            told("args.has_keys.x", None, False),
            told("unless.args.command.line", '"echo \'x"', None, "the quote is not closed"),
        ],
        80,
    )
    assert list(lines) == [
        '          + args.key_glob.path  "/etc/passwd"',
        '          + args.key_equals.force  "yes"  (read as true)',
        "          - args.has_keys.x  not there",
        '          ? unless.args.command.line  "echo \'x"  (the quote is not closed)',
    ]


@pytest.mark.parametrize("columns", [40, 80, 200])
@pytest.mark.parametrize("place", ["args.key_glob.k", "any_of[0].args.key_glob." + "k" * 300])
def test_every_line_fits_and_what_was_read_is_not_lost(columns: int, place: str) -> None:
    lines = list(predicate_lines([told(place, '"' + "文x" * 200, False, "a b " * 5 + "is /etc\x1b[2J")], columns))
    assert all(width(line) <= columns for line in lines)
    assert "/etc" in lines[-1]
    assert "\x1b" not in "".join(lines)
