"""A script for sans-IO code: what goes in, what must come out, in this order and nothing else.

    playbook(connection) \\
        .when("receive_data", b"...").then(RequestReceived(...), DataToSend(b"...")) \\
        .when("receive_eof").then()

`when` calls the method of the subject; what it returns (None, one output, or any iterable of outputs) must equal what
`then` states, completely. An expected value may be a `Placeholder`, which takes the actual value the first time and
must equal it afterwards, or `Matching(description, predicate)`. A failure shows the whole exchange so far with a diff.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

T = TypeVar("T")
_UNSET = object()


class Placeholder:
    """A value the test does not choose, such as a call_id, that must stay the same wherever it appears."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._value: Any = _UNSET

    def __call__(self) -> Any:
        assert self._value is not _UNSET, f"the placeholder {self.name} was never filled"
        return self._value

    def __eq__(self, other: object) -> bool:
        if self._value is _UNSET:
            self._value = other
        return bool(self._value == other)

    def __hash__(self) -> int:
        return id(self)

    def __repr__(self) -> str:
        return f"<{self.name}>" if self._value is _UNSET else repr(self._value)


class Matching:
    """A value described by a condition."""

    def __init__(self, description: str, predicate: Callable[[Any], bool]) -> None:
        self.description = description
        self.predicate = predicate

    def __eq__(self, other: object) -> bool:
        return self.predicate(other)

    def __hash__(self) -> int:
        return id(self)

    def __repr__(self) -> str:
        return f"<{self.description}>"


class Playbook(Generic[T]):
    def __init__(self, subject: T) -> None:
        self.subject = subject
        self._transcript: list[str] = []
        self._outputs: list[Any] | None = None

    def when(self, method: str, *args: Any, **kwargs: Any) -> Playbook[T]:
        """An input. The outputs of the one before must have been stated, if there were any."""
        if self._outputs:
            self.then()
        shown = ", ".join([*map(_short, args), *(f"{name}={_short(value)}" for name, value in kwargs.items())])
        self._transcript.append(f">> {method}({shown})")
        self._outputs = _as_list(getattr(self.subject, method)(*args, **kwargs))
        return self

    def then(self, *expected: Any) -> Playbook[T]:
        """The outputs of the last input, all of them."""
        assert self._outputs is not None, "state an input with when() first"
        actual, self._outputs = self._outputs, None
        # The expectation stands on the left, so that its __eq__ is asked even when the actual type defines one.
        if len(expected) != len(actual) or not all(want == got for want, got in zip(expected, actual, strict=True)):
            raise AssertionError(self._difference(list(expected), actual))
        self._transcript += [f"<< {_short(output)}" for output in actual]
        return self

    def check(self, statement: Callable[[T], bool], why: str) -> Playbook[T]:
        """A property of the subject between two steps."""
        if not statement(self.subject):
            raise AssertionError("\n".join([*self._transcript, f"!! {why}"]))
        self._transcript.append(f"-- {why}")
        return self

    def _difference(self, expected: list[Any], actual: list[Any]) -> str:
        diff = difflib.unified_diff(
            [f"<< {_long(value)}" for value in expected],
            [f"<< {_long(value)}" for value in actual],
            "expected",
            "actual",
            lineterm="",
            n=100,
        )
        return "\n".join(["the exchange went differently:", *self._transcript, *diff])


def playbook(subject: T) -> Playbook[T]:
    return Playbook(subject)


def _as_list(outputs: Any) -> list[Any]:
    if outputs is None:
        return []
    if isinstance(outputs, Iterable) and not isinstance(outputs, str | bytes | bytearray | dict | tuple):
        return list(outputs)
    return [outputs]


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 160 else f"{text[:120]}... ({len(text)} characters)"


def _long(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 2000 else f"{text[:2000]}... ({len(text)} characters)"
