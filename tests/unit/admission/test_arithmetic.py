"""Integers only: truncating, in basis points, of 64 bits."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from subluminal.admission.bps import (
    INT64_MAX,
    INT64_MIN,
    ArithmeticFault,
    bps_div,
    bps_mul,
    checked,
    decay,
    divide,
    remainder,
)

INT64 = st.integers(INT64_MIN, INT64_MAX)


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (bps_mul(1000, 500), 50),
        (bps_mul(10000, 10000), 10000),
        (bps_mul(-1000, 333), -33),
        (bps_div(5000, 2500), 20000),
        (bps_div(-1, 3), -3333),
        (decay(1000, 150, 1), 985),
        (decay(1000, 150, 2), 971),
        (decay(1000, 150, 0), 1000),
        (decay(1000, 10000, 5), 0),
        (decay(1, 150, INT64_MAX), 1),
        (divide(-7, 2), -3),
        (remainder(-7, 2), -1),
        (divide(7, -2), -3),
        (remainder(7, -2), 1),
    ],
)
def test_the_vectors(result: int, expected: int) -> None:
    assert result == expected


@given(INT64, INT64.filter(bool))
def test_quotient_and_remainder_give_the_number_back(numerator: int, denominator: int) -> None:
    if (numerator, denominator) == (INT64_MIN, -1):
        with pytest.raises(ArithmeticFault, match="integer_overflow"):
            divide(numerator, denominator)
        return
    assert divide(numerator, denominator) * denominator + remainder(numerator, denominator) == numerator
    assert abs(remainder(numerator, denominator)) < abs(denominator)


@given(st.integers(0, INT64_MAX), st.integers(0, 10_000), st.integers(0, 50))
def test_decay_never_grows_and_never_falls_below_zero(value: int, rate: int, epochs: int) -> None:
    assert 0 <= decay(value, rate, epochs + 1) <= decay(value, rate, epochs) <= value


@pytest.mark.parametrize("value", [True, 1.0, "1", None, INT64_MAX + 1, INT64_MIN - 1])
def test_what_is_not_a_64_bit_integer_is_refused(value: Any) -> None:
    with pytest.raises(ArithmeticFault):
        checked(value)


@pytest.mark.parametrize(
    ("word", "calculation"),
    [
        ("division_by_zero", lambda: divide(1, 0)),
        ("division_by_zero", lambda: remainder(1, 0)),
        ("division_by_zero", lambda: bps_div(1, 0)),
        ("integer_overflow", lambda: bps_mul(INT64_MAX, 10_001)),
        ("integer_overflow", lambda: bps_div(INT64_MAX, 1)),
        ("rate_out_of_range", lambda: decay(1, 10_001, 1)),
        ("rate_out_of_range", lambda: decay(1, -1, 1)),
        ("negative_epochs", lambda: decay(1, 1, -1)),
        ("not_an_integer", lambda: bps_mul(True, 1)),
    ],
)
def test_a_calculation_without_an_answer_says_why(word: str, calculation: Any) -> None:
    with pytest.raises(ArithmeticFault) as caught:
        calculation()
    assert caught.value.word == word
