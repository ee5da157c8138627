"""A limit on one argument: predicates of `match.args`, and what they rest on, in words."""

from __future__ import annotations

from typing import Any

from msgspec import Struct, field


class Limit(Struct, eq=False):
    """`predicates`: name -> what stands under the key; several are alternatives. None of them: any value.

    `urls`: what hosts may stand in a text, where that is limited too: None, no limit.
    """

    kind: str
    predicates: list[tuple[str, Any]]
    words: str
    examples: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)  # values of the kind that were not seen, for the tests
    urls: list[str] | None = None
    never: list[tuple[str, str, str]] = field(default_factory=list)  # a name, a regex that is refused, in words
    heads: list[str] = field(default_factory=list)  # how its texts begin
    message: str = ""
    widest: bool = False  # no level makes it wider
    form: int = 0  # the level at which it has this form
