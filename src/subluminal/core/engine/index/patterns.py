"""Many patterns on one text: the tests of `key_glob`, `key_regex` and `key_contains` as a `NameIndex` finds them.

What has a literal beginning or end is found by that, all others by one RE2 set. Of a glob with stars on both sides the
set is given the longest literal in it: whatever matches holds it.
"""

from __future__ import annotations

from subluminal.contracts.globs import glob_test, glob_tokens
from subluminal.core.engine.names import NameIndex, NameMatch, Pattern, glob_pattern, regex_patterns
from subluminal.core.engine.texts import contains_tests, searching

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


def text_index(numbered: Iterable[tuple[int, list[Pattern]]]) -> NameIndex:
    def matches() -> Iterable[tuple[int, NameMatch]]:
        for number, patterns in numbered:
            match = NameMatch((), ())
            match.patterns = patterns
            yield number, match

    return NameIndex(matches())


def glob_patterns(globs: list[str]) -> list[Pattern]:
    return [_glob(glob) for glob in globs]


def _glob(glob: str) -> Pattern:
    pattern = glob_pattern(glob)
    if pattern.exact is not None:
        return pattern
    if len(pattern.suffix) > len(pattern.prefix):
        return Pattern(pattern.test, suffix=pattern.suffix)
    return pattern if pattern.prefix else _holding(glob_test(glob), _longest_literal(glob))


def _longest_literal(glob: str) -> str:
    runs = "".join(token if len(token) == 1 and token not in "*?" else "\0" for token in glob_tokens(glob))
    return max(runs.split("\0"), key=len)


def contains_patterns(parts: list[str]) -> list[Pattern]:
    return [_holding(test, part) for part, test in zip(parts, contains_tests(parts), strict=True)]


def regex_patterns_of(regexes: list[str]) -> list[Pattern]:
    made = []
    for regex in regexes:
        for pattern in regex_patterns(regex):
            if pattern.regex is not None:  # even with a literal beginning: many may begin alike
                made.append(Pattern(searching(regex), regex=regex))
            elif pattern.exact is None and not pattern.prefix and not pattern.suffix:
                made.append(Pattern(pattern.test, regex=regex))
            else:
                made.append(pattern)
    return made


def _holding(test: object, literal: str) -> Pattern:
    if not literal or any("\ud800" <= char <= "\udfff" for char in literal):
        return Pattern(test)  # type: ignore[arg-type]
    import re2

    return Pattern(test, regex=re2.escape(literal))  # type: ignore[arg-type]
