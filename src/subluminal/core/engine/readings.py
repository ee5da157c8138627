"""What servers make of a value that is not of the type they ask for.

SDKs coerce before a tool sees its arguments: pydantic reads "yes" as true and "1_000" as 1000, `z.coerce` reads every
text that is not empty as true, null as 0 and ["a"] as "a", and every JSON parser in JavaScript rounds 2^53+1. What
stops a call is judged by all of these readings together; `tests/fixtures/readings.json` has what the SDKs really did.
A list stands for its elements as well: what one of them is read as, the list is. A text that is a list as JSON is
that list, to a server that asks for one. All that is done here is linear in the value: the agent chooses it.
"""

from __future__ import annotations

from subluminal.core.engine.where import held_in, spread, too_many

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

# What JavaScript, Rust or Python strip around a number.
_BLANKS = "\t\n\v\f\r\x1c\x1d\x1e\x1f \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000\ufeff" + "".join(
    map(chr, range(0x2000, 0x200B))
)
# pydantic's words and those of `z.stringbool`; "null" is null to the Python SDK, and null is no.
_NO = frozenset(("0", "disabled", "f", "false", "n", "no", "null", "off"))
_LONGEST_NO = 8
_LARGEST = 1.7976931348623157e308


class Readings:
    """The values that a predicate wants, and whether a server could arrive at one of them."""

    __slots__ = ("_false", "_longest", "_numbers", "_texts", "_true")

    def __init__(self, wanted: Iterable[Any]) -> None:
        wanted = list(wanted)
        self._texts = frozenset(value for value in wanted if isinstance(value, str))
        self._longest = max(map(len, self._texts), default=0)
        self._true = any(value is True for value in wanted)
        self._false = any(value is False for value in wanted)
        self._numbers = {double(value): value for value in wanted if not isinstance(value, (bool, str))}

    def __call__(self, value: Any) -> tuple[Any, ...]:
        """The wanted value that `value` can be read as, if there is one. No text is read as another text."""
        return self._read(value) or _elements(value, self._element)

    def _element(self, value: Any) -> tuple[Any, ...]:
        if value.__class__ is str and value in self._texts:
            return (value,)
        return self._read(value)

    def _read(self, value: Any) -> tuple[Any, ...]:
        if self._texts and value.__class__ is not str:
            for text in texts(value, self._longest):
                if text in self._texts:
                    return (text,)
        if self._numbers and (number := number_in(value)) is not None and number in self._numbers:
            return (self._numbers[number],)
        if self._true and as_true(value):
            return (True,)
        return (False,) if self._false and as_false(value) else ()


class RangeReadings:
    """The same for `numeric_range`."""

    __slots__ = ("_high", "_low")

    def __init__(self, low: Any, high: Any) -> None:
        self._low = float("-inf") if low is None else double(low)
        self._high = float("inf") if high is None else double(high)

    def __call__(self, value: Any) -> tuple[int | float, ...]:
        return self._read(value) or _elements(value, self._read)

    def _read(self, value: Any) -> tuple[int | float, ...]:
        number = number_in(value)
        if number is None or not self._low <= number <= self._high:
            return ()
        return (int(number) if number.is_integer() else number,)


def _elements(value: Any, read: Callable[[Any], tuple[Any, ...]]) -> tuple[Any, ...]:
    """What the first element that matches is read as."""
    if value.__class__ is str:
        value = held_in(value) if "]" in value else None
    if not isinstance(value, list):
        return ()
    elements, complete = spread([value], generous=True, empty=True)
    for element in elements:
        if found := read(element):
            return found
    if not complete:
        raise too_many()
    return ()


def double(number: Any) -> float:
    """The number as most parsers hold it. Rounding keeps order and equality: what matches exactly matches so too."""
    try:
        return float(number)
    except OverflowError:  # only integers raise it
        return float("inf") if number > 0 else float("-inf")
    except (TypeError, ValueError):  # in-process servers may be given what JSON cannot say
        return float("nan")


def number_in(value: Any) -> float | None:
    """The number that a server could read in a value."""
    if value is None:
        return 0.0
    if isinstance(value, list):
        value = _joined(value, 0)
    if isinstance(value, str):
        return _parsed(value)
    if value is None or isinstance(value, dict):
        return None
    number = double(value)
    return number if number == number else None


def _parsed(text: str) -> float | None:
    text = text.strip(_BLANKS).replace("_", "")
    if not text:
        return 0.0
    try:
        number = float(text)
    except ValueError:
        if text[:1] != "0":
            return None
        try:
            number = double(int(text, 0))  # 0x10, 0o7, 0b1
        except ValueError:
            return None
    return number if number == number else None


def as_true(value: Any) -> bool:
    if value is None or isinstance(value, str):
        return bool(value)
    return isinstance(value, (list, dict)) or double(value) != 0


def as_false(value: Any) -> bool:
    if isinstance(value, str):
        return not value or (len(value) <= _LONGEST_NO and value.lower() in _NO)
    return not value or (not isinstance(value, (list, dict)) and double(value) == 0)


def texts(value: Any, longest: int) -> tuple[str | None, ...]:
    """What `String()` of JavaScript and `str()` of Python make of a value that is no text."""
    if value is None:
        return "null", "None"
    if isinstance(value, list):
        return (_joined(value, longest),)
    if isinstance(value, (bool, dict)):
        return _leaf(value), str(value) if isinstance(value, bool) else None
    exact = str(value) if isinstance(value, int) and value.bit_length() <= 1024 else None
    return _leaf(value), repr(double(value)), exact, None if value else "-0.0"


def _joined(items: list[Any], commas: int) -> str | None:
    """An array as JavaScript's text of it, nested ones flattened; None if it has more commas than these."""
    stack: list[Any] = [items]
    parts: list[str] = []
    while stack:
        if len(stack) + len(parts) > commas + 1:
            return None
        item = stack.pop()
        if isinstance(item, list) and item:
            stack += reversed(item)
        else:
            parts.append("" if item is None or item == [] else _leaf(item))
    return ",".join(parts)


def _leaf(value: Any) -> str:
    """A value other than null and arrays, as JavaScript's text of it."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "[object Object]"
    number = double(value)
    if not -_LARGEST <= number <= _LARGEST:
        return "NaN" if number != number else "Infinity" if number > 0 else "-Infinity"
    if number == 0:
        return "0"
    if 1e-6 <= abs(number) < 1e21:
        from decimal import Decimal

        return format(Decimal(repr(number)), "f").removesuffix(".0")
    mantissa, _, exponent = repr(number).partition("e")
    return f"{mantissa}e{int(exponent):+}"
