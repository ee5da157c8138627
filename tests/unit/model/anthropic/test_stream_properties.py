"""Streams of any make, in pieces of any size: one result, and no client carries out what was not judged."""

from __future__ import annotations

import json
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from harness.messages import (
    Passed,
    clients,
    compact,
    delta,
    event,
    message_end,
    message_start,
    passed,
    pieces_of,
    refuse,
    refuse_faults,
    start,
    stop,
    text,
    tool_use,
)
from subluminal.model.refused import PREFIX
from subluminal.model.words import Emitted

MESSAGE = (
    message_start()
    + event("ping")
    + text(0, "h\u00e9llo \u2028 \u20ac", '"\\')
    + tool_use(1, "t1", "Bash", "", '{"a":"', '\u00e9\\n"}')
    + start(2, type="server_tool_use", id="s", name="web_search", input={})
    + pieces_of(2, '{"q":1}')
    + stop(2)
    + start(3, type="web_search_tool_result", tool_use_id="s", content=[])
    + stop(3)
    + tool_use(4, "t2", "Read", '{"b":')
    + message_end()
)


def seen(through: Passed) -> tuple[object, ...]:
    calls = [(call.id, call.name, call.arguments, call.fault, call.too_large) for call in through.calls]
    observed = [(o.id, o.arguments, o.result) for o in through.observed]
    usages = [(usage.input_tokens, usage.output_tokens) for usage in through.usages]
    return through.bytes, through.fault, calls, observed, usages


def only_read_refused(call: Emitted) -> str | None:
    return "no" if call.name == "Read" else None


def test_a_stream_cut_in_two_anywhere_is_the_same_stream() -> None:
    whole = seen(passed(MESSAGE, only_read_refused))
    for cut in range(len(MESSAGE)):
        assert seen(passed([MESSAGE[:cut], MESSAGE[cut:]], only_read_refused)) == whole, cut


def test_lines_cut_at_their_ends_are_the_same_lines() -> None:
    for end in (b"\r\n", b"\r"):
        stream = MESSAGE.replace(b"\n", end)
        whole = seen(passed(stream, only_read_refused))
        for cut in {at + by for at, byte in enumerate(stream) if byte in b"\r\n" for by in (0, 1)}:
            assert seen(passed([stream[:cut], stream[cut:]], only_read_refused)) == whole, cut
        assert seen(passed([bytes([byte]) for byte in stream], only_read_refused)) == whole


# -- hostile streams ------------------------------------------------------------------------------------------------

names = st.sampled_from(
    ["message_start", "content_block_start", "content_block_delta", "content_block_stop", "message_stop"] * 3
    + ["ping", "message", "unknown", "Content_block_start", "error"]
)
kinds = st.sampled_from(["tool_use"] * 4 + ["text", "server_tool_use", "unknown", "Tool_Use", 1])
indexes = st.sampled_from([0, 0, 0, 1, 1, 2, "0"])
arguments = st.sampled_from(["{}", '{"a":1}', '{"a":', "1}", "", "[]", '{"a":1,"a":2}', '"', " "])
pairs = st.one_of(
    st.tuples(st.just("type"), kinds),
    st.tuples(st.sampled_from(["id", "name", "Name"]), st.sampled_from(["Bash", "Read", "", None])),
    st.tuples(st.sampled_from(["input", "Input"]), st.sampled_from([{}, {"a": 3}, None])),
)
usual = st.just([("type", "tool_use"), ("id", "t"), ("name", "Bash"), ("input", {})])
blocks = usual | st.lists(pairs, max_size=6)
deltas = st.one_of(
    st.builds(lambda piece: [("type", "input_json_delta"), ("partial_json", piece)], arguments),
    st.lists(
        st.tuples(st.just("type"), st.sampled_from(["input_json_delta", "text_delta"]))
        | st.tuples(st.sampled_from(["partial_json", "text", "Partial_Json"]), arguments),
        max_size=3,
    ),
)


def object_of(listed: list[tuple[str, object]]) -> str:
    """With every member that is listed, some of them twice."""
    return "{" + ",".join(f"{compact(key)}:{compact(value)}" for key, value in listed) + "}"


@st.composite
def events(draw: st.DrawFn) -> bytes:
    name = draw(names)
    kind = name if draw(st.integers(0, 9)) else draw(names)
    parts = [f'"type":{compact(kind)}', f'"index":{compact(draw(indexes))}']
    if kind == "content_block_start" or not draw(st.integers(0, 9)):
        parts.append(f'"content_block":{object_of(draw(blocks))}')
    if kind == "content_block_delta" or not draw(st.integers(0, 9)):
        parts.append(f'"delta":{object_of(draw(deltas))}')
    if kind == "message_start":
        parts.append('"message":{"content":[%s]}' % (object_of(draw(blocks)) if draw(st.booleans()) else ""))
    if not draw(st.integers(0, 9)):
        parts.append(draw(st.sampled_from(parts)).replace("_start", "_stop"))
    line_end = draw(st.sampled_from(["\n", "\n", "\r\n"]))
    return f"event: {name}{line_end}data: {{{','.join(parts)}}}{line_end}{line_end}".encode()


good = st.sampled_from(
    [
        tool_use(0, "t", "Bash", '{"a":1}'),
        tool_use(1, "u", "Read", "{}"),
        text(0, "x"),
        stop(0),
        start(0, type="tool_use", id="t", name="Bash", input={}),
        pieces_of(0, '{"a":', "1}"),
        delta(0, "input_json_delta", partial_json='{"b":2}'),
        b"event: content_block_start\n",
    ]
)
streams = st.lists(good | events(), max_size=8).map(b"".join)


@settings(max_examples=400)
@given(streams)
def test_with_all_calls_refused_no_client_carries_one_out(stream: bytes) -> None:
    through = passed(stream, refuse)
    for client in clients():
        assert all(name.startswith(PREFIX) for name, _ in client.read(through.bytes))


@settings(max_examples=400)
@given(streams)
def test_what_any_client_carries_out_is_what_was_judged(stream: bytes) -> None:
    through = passed(stream, refuse_faults)
    judged = {
        (call.name, json.dumps(json.loads(call.arguments), sort_keys=True)) for call in through.calls if not call.fault
    }
    for client in clients():
        done = client.read(through.bytes)
        assert {call for call in done if not call[0].startswith(PREFIX)} <= judged


@given(streams, st.lists(st.integers(0, 400), max_size=6))
def test_a_hostile_stream_in_pieces_is_the_same_stream(stream: bytes, cuts: list[int]) -> None:
    bounds = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    pieces = [stream[a:b] for a, b in pairwise(bounds)]
    assert seen(passed(pieces, refuse_faults)) == seen(passed(stream, refuse_faults))
