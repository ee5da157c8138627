"""yaml, imported without the patterns of its pure parser: 6 ms, a tenth of `sub policy lint`.

PyYAML compiles them as it is imported, and libyaml, which reads policies wherever it is there, asks none of them. Here
each is compiled when it is first asked. For the moment of the import `re.compile` is another function, so a process of
several threads imports yaml as everybody does.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class _Later:
    """A pattern that `re` compiles, and keeps, when something of it is wanted."""

    __slots__ = ("_given",)

    def __init__(self, pattern: str, flags: int = 0) -> None:
        self._given = (pattern, flags)

    def __getattr__(self, name: str) -> Any:
        return getattr(re.compile(*self._given), name)


@contextmanager
def _patterns_later() -> Iterator[None]:
    if len(sys._current_frames()) > 1:
        yield
        return
    compile_now = re.compile
    re.compile = _Later  # type: ignore[assignment]
    try:
        yield
    finally:
        re.compile = compile_now


with _patterns_later():
    import yaml as yaml
