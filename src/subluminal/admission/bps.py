"""Integer arithmetic of the rules: 64-bit, truncating towards zero, in basis points (10,000 = one whole).

Traps: Python's `//` and `%` round down, these truncate; `bool` is an `int` to Python and is refused here.
"""

from __future__ import annotations

BASIS_POINTS = 10_000
INT64_MIN = -(1 << 63)
INT64_MAX = (1 << 63) - 1


class ArithmeticFault(Exception):
    """A calculation without an answer. `word` is stable and becomes the `rule_reason`."""

    def __init__(self, word: str) -> None:
        super().__init__(word)
        self.word = word


def checked(value: object) -> int:
    """`value` itself, if it is an integer (not a bool) of 64 bits."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise ArithmeticFault("not_an_integer")
    if not INT64_MIN <= value <= INT64_MAX:
        raise ArithmeticFault("integer_overflow")
    return int(value)


def divide(numerator: int, denominator: int) -> int:
    return checked(_truncate(checked(numerator), checked(denominator)))


def remainder(numerator: int, denominator: int) -> int:
    """Has the sign of the numerator, so that divide * denominator + remainder is the numerator."""
    quotient = _truncate(checked(numerator), checked(denominator))
    return checked(numerator - quotient * denominator)


def bps_mul(value: int, rate_bps: int) -> int:
    """`rate_bps` basis points of `value`."""
    return checked(_truncate(checked(value) * checked(rate_bps), BASIS_POINTS))


def bps_div(part: int, whole: int) -> int:
    """What `part` is of `whole`, in basis points."""
    return checked(_truncate(checked(part) * BASIS_POINTS, checked(whole)))


def decay(value: int, rate_bps: int, epochs: int) -> int:
    """`value` after losing `rate_bps` of what is left in each epoch; each loss is truncated.

    Ends early where nothing more is lost, so any number of epochs takes bounded time.
    """
    left, rate, rounds = checked(value), checked(rate_bps), checked(epochs)
    if not 0 <= rate <= BASIS_POINTS:
        raise ArithmeticFault("rate_out_of_range")
    if rounds < 0:
        raise ArithmeticFault("negative_epochs")
    while rounds:
        loss = bps_mul(left, rate)
        if loss == 0:
            return left
        left -= loss
        rounds -= 1
    return left


def _truncate(numerator: int, denominator: int) -> int:
    """Of any size: a product of two 64-bit numbers is divided before it is checked."""
    if denominator == 0:
        raise ArithmeticFault("division_by_zero")
    quotient = abs(numerator) // abs(denominator)
    return quotient if (numerator < 0) == (denominator < 0) else -quotient
