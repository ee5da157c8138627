"""Tests of a value as text: `key_glob`, `key_regex`, `key_contains`. Any of the patterns matches.

Generously, a value that is no text is tested by what a server could write of it (`readings`); strictly it matches
nothing. Texts are chosen by the agent and long, so every test is linear in them.
"""

from __future__ import annotations

from subluminal.contracts.globs import glob_test
from subluminal.core.engine.names import PATTERN_MEMORY, re2_options, regex_patterns
from subluminal.core.engine.plan import Cache
from subluminal.core.engine.readings import texts
from subluminal.core.engine.where import MAX_ELEMENTS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    TextTest = Callable[[str], bool]

# Compiled at a time, each with at most PATTERN_MEMORY: long hostile texts fill RE2's caches, and a policy may have
# two thousand patterns. The least used are compiled again.
MAX_COMPILED = 128
_compiled = Cache(MAX_COMPILED)


class TextMatch:
    """Any of the tests, on one value."""

    __slots__ = ("_generous", "_tests")

    def __init__(self, tests: list[TextTest], generous: bool) -> None:
        self._tests = tests
        self._generous = generous

    def __call__(self, value: Any) -> bool:
        if value.__class__ is str:
            for test in self._tests:  # noqa: SIM110  a generator would cost more than most tests
                if test(value):
                    return True
            return False
        return self._generous and self.read(value) is not None

    def read(self, value: Any) -> str | None:
        """The text that a value which is no text can be read as, and that matches."""
        if value.__class__ is str or not self._generous:
            return None
        for text in texts(value, MAX_ELEMENTS):
            if text is not None and any(test(text) for test in self._tests):
                return text
        return None


def glob_tests(globs: list[str]) -> list[TextTest]:
    return [glob_test(glob) for glob in globs]


def contains_tests(parts: list[str]) -> list[TextTest]:
    return [_contains(part) for part in parts]


def _contains(part: str) -> TextTest:
    return lambda text: part in text


def regex_tests(regexes: list[str]) -> list[TextTest]:
    tests: list[TextTest] = []
    for regex in regexes:
        for pattern in regex_patterns(regex):
            tests.append(searching(pattern.regex) if pattern.regex is not None else pattern.test)
    return tests


def searching(regex: str) -> TextTest:
    def test(text: str) -> bool:
        search = _compiled.get(regex)
        if search is None:
            import re2

            search = re2.compile(regex, re2_options(PATTERN_MEMORY)).search
            _compiled.put(regex, search)
        return search(text.encode("utf-8", "replace").decode()) is not None

    return test
