"""A segment as bytes of anybody: what is not exactly one is refused, with its word, within its bounds."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import msgspec
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from harness.ledger import EventMaker
from subluminal.fleet.collector.rows import rows_of
from subluminal.fleet.segments import MAX_BODY_BYTES, MAX_BYTES, MAX_LINES, BadSegment, Segment, decode, encode
from subluminal.fleet.shipping.backlog import part, without_known

LINES = EventMaker("run-1", "shim-1").whole_run(3)
WHOLE = Segment("run-1", "shim-1", 1, LINES, [(5, 4), (20, 7)], (30, "ab" * 32))
NOW_MS = 1_700_000_100_000


def body(text: bytes | None = None, **header: Any) -> bytes:
    """With another header, or other events, and everything else as it should be."""
    text = b"\n".join([*LINES, b""]) if text is None else text
    told = {"v": 1, "run_id": "run-1", "shim_id": "shim-1", "first_seq": 1, "last_seq": len(LINES)}
    told |= {"sha256": sha256(text).hexdigest(), "spans": [(1, len(LINES))], "head": None, **header}
    return zstandard.ZstdCompressor().compress(msgspec.json.encode(told) + b"\n" + text)


def test_what_was_encoded_is_read_back_byte_for_byte() -> None:
    assert decode(encode(WHOLE)) == WHOLE
    assert decode(body()) == Segment("run-1", "shim-1", 1, LINES, [(1, len(LINES))], None)


@pytest.mark.parametrize(
    ("word", "wrong"),
    [
        ("zstd", b""),
        ("zstd", b"not a frame"),
        ("zstd", encode(WHOLE)[:-3]),
        ("zstd", encode(WHOLE) + b"more"),
        ("zstd", encode(WHOLE) + encode(WHOLE)),
        ("zstd", zstandard.ZstdCompressor(write_content_size=False).compress(b"x" * 1000)),
        ("size", b"x" * (MAX_BODY_BYTES + 1)),
        ("size", zstandard.ZstdCompressor().compress(b"\0" * (MAX_BYTES + 1))),
        ("header", zstandard.ZstdCompressor().compress(b"no newline")),
        ("header", zstandard.ZstdCompressor().compress(b"[1]\n")),
        ("header", zstandard.ZstdCompressor().compress(b'{"v":1}\n')),
        ("header", zstandard.ZstdCompressor().compress(b"[" * 100_000 + b"\n")),
        ("header", body(run_id="")),
        ("header", body(shim_id="x" * 5000)),
        ("header", body(run_id="a\0b")),
        ("header", body(head=(3, "zz"))),
        ("header", body(head=(0, "ab" * 32))),
        ("version", body(v=2)),
        ("hash", body(sha256="0" * 64)),
        ("lines", body(b"\n".join(LINES))),
        ("lines", body(b"\n" * 11)),
        ("lines", body(b"\n".join([*LINES[:-1], LINES[-1][:-1] + b',"more":"\xff"}', b""]))),
        ("range", body(last_seq=12)),
        ("range", body(first_seq=5, last_seq=3)),
        ("range", body(last_seq=1 << 63)),
        ("size", body(last_seq=MAX_LINES + 1)),
        ("spans", body(spans=[])),
        ("spans", body(spans=[(1, 10)])),
        ("spans", body(spans=[(10, 5), (1, 6)])),
        ("spans", body(spans=[(1, 5), (5, 6)])),
        ("spans", body(spans=[(1, 0), (2, 11)])),
    ],
)
def test_what_is_no_segment_is_refused_with_its_word(word: str, wrong: bytes) -> None:
    with pytest.raises(BadSegment) as refused:
        decode(wrong)
    assert refused.value.word == word


@given(st.binary(max_size=400))
def test_no_bytes_lead_to_anything_but_a_segment_or_its_refusal(garbage: bytes) -> None:
    for attempt in (garbage, zstandard.ZstdCompressor().compress(garbage)):
        with pytest.raises(BadSegment):
            decode(attempt)


@pytest.mark.parametrize(
    ("word", "lines"),
    [
        ("event", [b"{}"]),
        ("event", [LINES[0][:-1]]),
        ("event", [LINES[0].replace(b"2023-11-14", b"2023-02-31")]),
        ("identity", [LINES[0].replace(b'"run-1"', b'"run-2"')]),
        ("identity", [LINES[0].replace(b'"shim-1"', b'"shim-2"')]),
        ("range", [LINES[1]]),
        ("range", [LINES[0], LINES[2]]),
        ("event", [*LINES[:3], LINES[3].replace(b'"latency_ms":3', b'"latency_ms":9223372036854775808')]),
    ],
)
def test_a_line_that_is_no_event_of_its_segment_is_refused(word: str, lines: list[bytes]) -> None:
    segment = Segment("run-1", "shim-1", 1, lines, [(1, len(lines))])
    with pytest.raises(BadSegment) as refused:
        rows_of(segment, "acme", "m1", NOW_MS)
    assert refused.value.word == word


def test_a_clock_that_is_a_day_or_years_wrong_keeps_its_time_and_chooses_no_partition() -> None:
    day_ms = 86_400_000
    for skew_ms, day in (
        (-day_ms, "2023-11-13"),
        (day_ms, "2023-11-15"),
        (-9_000 * day_ms, None),
        (900 * day_ms, None),
    ):
        lines = EventMaker("run-1", "shim-1", start_ms=NOW_MS + skew_ms).whole_run(1)
        found = rows_of(Segment("run-1", "shim-1", 1, lines, [(1, 5)]), "acme", "m1", NOW_MS).lines[0]
        assert set(found.days) == {day or "2023-11-14"}
        assert found.ts_ms[0] == NOW_MS + skew_ms + 1


def test_a_producer_that_numbers_nothing_is_known_by_the_hash_of_each_line() -> None:
    from subluminal.ledger.store.events import hashed_seq

    line = LINES[0].replace(b',"seq":1}', b"}")
    rows = rows_of(Segment("run-1", "shim-1", hashed_seq(line), [line], [(1, 1)]), "acme", "m1", NOW_MS)
    assert rows.lines[0].first_seq < 0


def test_parts_of_a_segment_keep_their_numbers_and_places() -> None:
    assert part(WHOLE, 2, 6) == Segment("run-1", "shim-1", 3, LINES[2:6], [(7, 2), (20, 2)], WHOLE.head)
    assert without_known(WHOLE, 0) is WHOLE
    assert without_known(WHOLE, 4) == part(WHOLE, 4, len(LINES))
    assert without_known(WHOLE, len(LINES)) is None
