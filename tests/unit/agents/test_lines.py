"""Lines out of bytes: cut anywhere, of any size, of any quality."""

from __future__ import annotations

import itertools

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from subluminal.agents.lines import BadLine, LineReader, LineSplitter, mend_json


class Shape(msgspec.Struct):
    type: str = ""
    text: str | None = None


def read(*chunks: bytes, limit: int = 1000) -> list[object]:
    reader = LineReader(Shape, limit)
    items = [item for chunk in chunks for item in reader.feed(chunk)] + list(reader.finish())
    return [(item.reason, item.size) if isinstance(item, BadLine) else item for item in items]


@given(data=st.binary(max_size=200).map(lambda raw: raw.replace(b"\x07", b"\n")), cuts=st.lists(st.integers(0, 200)))
@settings(max_examples=300, derandomize=True, deadline=None)
def test_where_the_bytes_are_cut_makes_no_difference(data: bytes, cuts: list[int]) -> None:
    whole = LineSplitter()
    expected = list(whole.feed(data)) + list(whole.finish())
    parts = LineSplitter()
    edges = [0, *sorted(cut for cut in cuts if cut <= len(data)), len(data)]
    got = [line for start, end in itertools.pairwise(edges) for line in parts.feed(data[start:end])]
    got += list(parts.finish())
    assert got == expected == [line.strip() for line in data.split(b"\n") if line.strip()]


def test_blank_lines_and_carriage_returns_are_nothing() -> None:
    assert read(b'\r\n\n  \n{"type":"a"}\r\n') == [(Shape("a"), 12)]


def test_a_last_line_without_newline_counts() -> None:
    assert read(b'{"type":"a"}\n{"type":', b'"b"}') == [(Shape("a"), 12), (Shape("b"), 12)]


def test_a_line_at_the_limit_is_read_and_one_byte_more_is_only_counted() -> None:
    line = b'{"text":"' + b"x" * 989 + b'"}'
    assert len(line) == 1000
    assert read(line + b"\n") == [(Shape(text="x" * 989), 1000)]
    assert read(line + b" \n" + line) == [("oversize", 1001), (Shape(text="x" * 989), 1000)]


def test_an_endless_line_is_not_held() -> None:
    splitter = LineSplitter(max_line_bytes=1000)
    for _ in range(1000):
        assert list(splitter.feed(b"x" * 500)) == []
        assert sum(map(len, splitter._held)) <= 1000
    [bad] = splitter.feed(b"\n")
    assert isinstance(bad, BadLine)
    assert bad.size == 500_000


@pytest.mark.parametrize(
    "line",
    [
        b"Warning: something",
        b"[WARN] started",
        b"12:30 retrying",
        b'{"type":"a"',
        b'{"type":"a"} {"type":"b"}',
        b'garbage{"type":"a"}',
        b"\x00\x01\x02",
        b"\xff\xfe",
        b'{"a":' + b"[" * 50_000,
        b"NaN",
    ],
)
def test_what_is_not_json_is_known_by_its_size_only(line: bytes) -> None:
    assert read(line + b"\n", limit=100_000) == [("not_json", len(line))]


@pytest.mark.parametrize("line", [b"[]", b"12", b"null", b'"text"', b'{"type":1}', b'{"text":{}}'])
def test_json_of_another_shape_is_told_apart_from_garbage(line: bytes) -> None:
    assert read(line + b"\n") == [("unexpected_shape", len(line))]


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (b'{"text":"a\xffb"}', "a\ufffdb"),
        (b'{"text":"a\\ud83d"}', "a\ufffd"),
        (b'{"text":"\\ud83d\\udc96"}', "💖"),
        (b'{"text":"\\ud83d\\ud83d\\udc96"}', "\ufffd💖"),
        (b'{"text":"\\\\ud83d \\udc96"}', "\\ud83d \ufffd"),
    ],
)
def test_invalid_utf8_and_lone_surrogates_are_mended(line: bytes, text: str) -> None:
    assert read(line) == [(Shape(text=text), len(line))]


@given(text=st.text())
@settings(max_examples=200, derandomize=True, deadline=None)
def test_mending_leaves_good_json_alone(text: str) -> None:
    line = msgspec.json.encode(text)
    assert mend_json(line) == line
