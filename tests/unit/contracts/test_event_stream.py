"""Event streams: what WHATWG's algorithm tells is told, in whatever pieces they come, and every byte passes."""

from __future__ import annotations

import re

from hypothesis import example, given
from hypothesis import strategies as st

from harness.effort import growth
from subluminal.contracts.event_stream import Event, EventStream, Part, event_bytes

NEVER_LARGE = 2**20
pieces = st.sampled_from(
    (
        b"\r|\n|\r\n|\n\n|data|data: |data:x|data:|:| |event: ping|event:|event|id: 1|id:|id: \0|retry: 10|retry: x|"
        b"\xef\xbb\xbf|\xef|x|: comment|datax: 1"
    ).split(b"|")
)
streams = st.lists(pieces, max_size=30).map(b"".join)
cuts = st.lists(st.integers(0), max_size=12)
Told = tuple[bytes, bytes]


def reference(stream: bytes) -> list[Told]:
    """The algorithm of the HTML standard, on a whole stream: type and data of what is dispatched."""
    told: list[Told] = []
    data, kind = b"", b""
    lines = re.split(rb"\r\n|\n|\r", stream.removeprefix(b"\xef\xbb\xbf"))
    for line in lines[:-1]:
        if not line:
            if data:
                told.append((kind or b"message", data.removesuffix(b"\n")))
            data, kind = b"", b""
            continue
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            data += value + b"\n"
        elif field == b"event":
            kind = value
    return told


def fed(stream: bytes, places: list[int], limit: int) -> tuple[list[Event | Part], bytes]:
    """What is found, and the rest."""
    reader = EventStream(limit)
    found: list[Event | Part] = []
    at = 0
    for place in [*sorted(place % (len(stream) + 1) for place in places), len(stream)]:
        found += reader.feed(stream[at:place])
        at = place
    return found, reader.rest()


def told(found: list[Event | Part]) -> list[Told]:
    return [(event.name, event.data) for event in found if isinstance(event, Event) and event.data is not None]


@given(streams, cuts)
@example(b"data: x\r\n\r\ndata: y\r\n\r\n", [9, 10])
@example(b"\xef\xbb\xbfdata: x\n\n\xef\xbb\xbfdata: y\n\n", [1, 2])
def test_it_tells_what_the_standard_tells_in_any_pieces(stream: bytes, places: list[int]) -> None:
    found, rest = fed(stream, places, NEVER_LARGE)
    assert told(found) == reference(stream)
    assert b"".join(event.raw for event in found) + rest == stream


def whole(found: list[Event | Part]) -> list[bytes]:
    """The data of every event that holds any, whether it came at once or in parts."""
    told: list[bytes] = []
    part = b""
    for event in found:
        if isinstance(event, Event):
            told += [event.data] if event.data else []
        else:
            part += event.data
            if event.last:
                told += [part] if part else []
                part = b""
    return told


@given(streams, cuts, st.integers(0, 12))
@example(b"\xef\xbb\xbfdata: abcdefgh\ndata: x\n\n", [1, 2, 3, 8], 2)
@example(b"data: abc\r\rdata: y\n\n", [10], 4)
def test_a_large_event_in_parts_holds_the_same(stream: bytes, places: list[int], limit: int) -> None:
    found, rest = fed(stream, places, limit)
    assert b"".join(event.raw for event in found) + rest == stream
    assert whole(found) == [data for _, data in reference(stream) if data]


@given(streams, cuts)
def test_between_events_is_where_nothing_has_begun(stream: bytes, places: list[int]) -> None:
    reader = EventStream(8)
    at = 0
    for place in [*sorted(place % (len(stream) + 1) for place in places), len(stream)]:
        found = reader.feed(stream[at:place])
        at = place
        if found and isinstance(found[-1], Part) and not found[-1].last:
            assert not reader.between_events
    if reader.between_events:
        assert reader.rest() == b""


def test_what_an_event_says() -> None:
    stream = b": hello\nevent: note\nid: 7\nretry: 1500\ndata: a\ndata:b\ndata\n\nid\n\nid: \0\nretry: 1s\ndata:\n\n"
    first, second, third = fed(stream, [], NEVER_LARGE)[0]
    assert isinstance(first, Event) and isinstance(second, Event) and isinstance(third, Event)
    assert (first.name, first.id, first.retry, first.data) == (b"note", b"7", b"1500", b"a\nb\n")
    assert (second.name, second.id, second.data) == (b"message", b"", None)
    assert (third.id, third.retry, third.data) == (None, None, b"")


def test_an_event_is_told_before_the_newline_that_may_follow_its_end() -> None:
    """A server with other line ends may wait for its answer right here."""
    reader = EventStream(NEVER_LARGE)
    assert told(reader.feed(b"data: x\r\r")) == [(b"message", b"x")]
    assert told(reader.feed(b"data: y\r\n\r")) == [(b"message", b"y")]
    late = reader.feed(b"\n")
    assert [event.raw for event in late] == [b"\n"] and told(late) == [], "it passes at once, and says nothing"


def test_a_large_event_is_not_kept() -> None:
    reader = EventStream(1000)
    passed = 0
    for _ in range(100):
        for part in reader.feed(b"data: " + b"x" * 5000 + b"\n"):
            passed += len(part.raw)
    assert passed >= 100 * 5007 - 10
    (last,) = reader.feed(b"\n")
    assert isinstance(last, Part) and last.last


def test_a_message_of_ours_is_one_event() -> None:
    (event,) = EventStream(NEVER_LARGE).feed(event_bytes(b'{"a":\r\n1}'))
    assert isinstance(event, Event) and event.data == b'{"a":  1}'


def by_bytes(stream: bytes) -> None:
    reader = EventStream(NEVER_LARGE)
    for at in range(len(stream)):
        reader.feed(stream[at : at + 1])


def test_the_work_is_linear_however_a_stream_is_made_or_cut() -> None:
    assert growth(lambda size: by_bytes(b"data: " + b"x" * size), 4_000, 40_000, 3) < 3
    assert growth(lambda size: by_bytes(b"a\r\nb\n" * size), 800, 8_000, 3) < 3
    for text in (b"\n", b"\r", b"a\n", b"a\r", b"data: x\n\n", b"data: x\r\r", b"a\n\r", b"a\r\n"):
        assert growth(lambda size, text=text: EventStream(NEVER_LARGE).feed(text * size), 5_000, 50_000, 3) < 3
        assert growth(lambda size, text=text: EventStream(64).feed(text * size), 5_000, 50_000, 3) < 3
