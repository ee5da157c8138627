"""Widths, cuts and times as the commands print them."""

from __future__ import annotations

import pytest

from subluminal.cli.render.call_lines import INDENT, wrapped
from subluminal.cli.render.columns import aligned, cut, pad, width
from subluminal.cli.render.moments import between_ms, duration, moment_ms
from subluminal.contracts.errors import UsageError

NOW = 1_700_000_000_000


@pytest.mark.parametrize(("text", "cells"), [("abc", 3), ("ツール", 6), ("e\u0301", 1), ("", 0), ("aツ", 3)])
def test_wide_characters_take_two_cells_and_combining_ones_none(text, cells):
    assert width(text) == cells
    assert width(pad(text, 10)) == 10


@pytest.mark.parametrize(
    ("text", "cells", "expected"),
    [("abcdef", 6, "abcdef"), ("abcdef", 5, "abcd…"), ("ツール", 5, "ツー…"), ("ツール", 4, "ツ…"),
     ("abc", 1, "…"), ("a", 0, "")],
)  # fmt: skip
def test_a_cut_never_takes_more_than_its_room(text, cells, expected):
    assert cut(text, cells) == expected
    assert width(cut(text, cells)) <= cells


def test_a_narrow_table_goes_without_columns_before_it_cuts():
    rows = [["one", "two", "a-very-long-name-indeed"]]
    header = ["A", "B", "C"]
    assert aligned(rows, header)[1] == ["one", "two", "a-very-long-name-indeed"]
    assert aligned(rows, header, drop=(1,), total=28)[1] == ["one", "a-very-long-name-indeed"]
    assert aligned(rows, header, drop=(1,), total=20)[1] == ["one", "a-very-long-na…"]
    assert aligned([["5"]], ["COUNT"], numbers=(0,))[1] == ["    5"]


def test_long_sentences_are_wrapped_between_words_and_end():
    lines = wrapped("word " * 100, 40)
    assert len(lines) == 4 and lines[-1].endswith("…")
    assert all(width(line) <= 40 - len(INDENT) for line in lines)
    assert wrapped("word " * 100, None) == ["word " * 100]
    assert all(width(line) <= 30 for line in wrapped("長" * 500, 40))


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("30s", NOW - 30_000),
        ("15m", NOW - 900_000),
        ("2h", NOW - 7_200_000),
        ("3d", NOW - 259_200_000),
        ("2023-11-14T22:13:20Z", NOW),
        ("2023-11-14T23:13:20+01:00", NOW),
        ("999999999w", 0),
    ],
)
def test_times_are_read_as_people_write_them(text, ms):
    assert moment_ms(text, NOW) == ms


@pytest.mark.parametrize("text", ["", "m", "-5m", "5x", "1.5h", "٣d", "2023-13-01", "someday", "9" * 40 + "s"])
def test_what_is_no_time_is_refused(text):
    with pytest.raises(UsageError):
        moment_ms(text, NOW)


@pytest.mark.parametrize(
    ("ms", "text"),
    [(None, "-"), (0, "<1 ms"), (999, "999 ms"), (2500, "2.50 s"), (42_000, "42.0 s"), (61_000, "1m 01s"),
     (7_260_000, "2h 01m"), (200_000_000, "2d 07h")],
)  # fmt: skip
def test_durations_are_short(ms, text):
    assert duration(ms) == text


def test_a_duration_between_unknown_moments_is_unknown():
    assert between_ms("2023-11-14T22:13:20Z", None) is None
    assert between_ms("nonsense", "2023-11-14T22:13:20Z") is None
    assert between_ms("2023-11-14T22:13:20.000Z", "2023-11-14T22:13:21.500Z") == 1500
