"""Every bound of the agent event envelope, at its edge and over it."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.effort import calls_made, cpu_ratio
from subluminal.contracts import agent_event as envelope
from subluminal.contracts.agent_event import (
    AgentCompletion,
    AgentEvent,
    AgentEventKind,
    bound_completion,
    bound_event,
    split_utf8,
    truncate_utf8,
)

DROPPED = {"dropped": {"reason": "oversize"}}
SUFFIX = "…(truncated)"
# Every script and every trouble: ASCII, two to four bytes, combining marks, joined emoji, lone surrogates.
PIECES = st.sampled_from(["a", "é", "ह", "क्ष", "漢", "💖", "e\u0301\u0323", "👩‍👩‍👧", "\0", "\n", "\ud83d", "\udc96"])
TEXTS = st.lists(st.one_of(PIECES, st.text(max_size=8)), max_size=40).map("".join)


def event(kind: AgentEventKind = AgentEventKind.Status, **fields: Any) -> AgentEvent:
    return AgentEvent("codex", kind, **fields)


def only(given_event: AgentEvent) -> AgentEvent:
    [bounded] = bound_event(given_event)
    return bounded


def repaired(text: str) -> str:
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def test_the_kinds_are_those_of_the_contract() -> None:
    assert [kind.value for kind in AgentEventKind] == [
        "TextOutput",
        "ToolCall",
        "ToolResult",
        "Status",
        "Error",
        "Unknown",
    ]


def test_an_event_within_its_bounds_is_returned_as_it_is() -> None:
    given_event = event(channel="tool", message="hello", data={"a": [1, 2.5, None, "é"]})
    assert bound_event(given_event)[0] is given_event


@pytest.mark.parametrize(
    ("channel", "kept"),
    [("c" * 128, True), ("c" * 129, False), ("é" * 64, True), ("é" * 64 + "c", False), ("", True)],
)
def test_a_channel_over_128_bytes_is_left_out(channel: str, kept: bool) -> None:
    assert only(event(channel=channel)).channel == (channel if kept else None)


@pytest.mark.parametrize("size", [0, 1, 4095, 4096])
def test_a_message_up_to_4096_bytes_is_kept(size: int) -> None:
    assert only(event(message="a" * size)).message == "a" * size


@pytest.mark.parametrize("size", [4097, 4106, 100_000])
def test_a_longer_message_is_cut_to_exactly_the_bound_and_marked(size: int) -> None:
    message = only(event(message="a" * size)).message
    assert message == "a" * 4082 + SUFFIX
    assert len(message.encode()) == 4096


def test_a_message_is_cut_between_characters() -> None:
    message = only(event(message="💖" * 2000)).message
    assert message == "💖" * 1020 + SUFFIX


@pytest.mark.parametrize(
    ("text", "bound", "expected"),
    [
        ("💖" * 10, 20, "💖" + SUFFIX),
        ("abcdef", 3, "…"),
        ("abcdef", 2, ""),
        ("abcdef", 0, ""),
        ("a" * 20, 14, "…"),
        ("a" * 20, 15, "a" + SUFFIX),
        ("💖" * 5, 15, SUFFIX),
        ("abc", 3, "abc"),
        ("é", 2, "é"),
    ],
)
def test_truncation_follows_the_algorithm_of_the_contract(text: str, bound: int, expected: str) -> None:
    assert truncate_utf8(text, bound) == expected


@given(text=TEXTS, bound=st.integers(0, 60))
@settings(max_examples=400, derandomize=True, deadline=None)
def test_truncation_is_valid_utf8_within_the_bound_and_begins_like_the_text(text: str, bound: int) -> None:
    result = truncate_utf8(text, bound)
    whole = repaired(text)
    assert len(result.encode()) <= bound
    if len(whole.encode()) <= bound:
        assert result == whole
    elif bound > 14:
        assert result.endswith(SUFFIX)
        head = result[: -len(SUFFIX)]
        assert whole.startswith(head)
        # As much as fits: the next character would not have.
        assert len((head + whole[len(head)] + SUFFIX).encode()) > bound
    else:
        assert result == ("…" if bound >= 3 else "")


@given(text=TEXTS, bound=st.integers(1, 40))
@settings(max_examples=400, derandomize=True, deadline=None)
def test_pieces_join_to_the_text_and_each_is_within_the_bound_or_one_character(text: str, bound: int) -> None:
    pieces = split_utf8(text, bound)
    whole = repaired(text)
    assert "".join(pieces) == whole
    for index, piece in enumerate(pieces):
        size = len(piece.encode())
        assert size <= bound or len(piece) == 1
        if index + 1 < len(pieces):
            assert piece
            assert size + len(pieces[index + 1][0].encode()) > bound


@pytest.mark.parametrize("size", [0, 65_535, 65_536])
def test_text_up_to_the_bound_is_one_event(size: int) -> None:
    assert only(event(AgentEventKind.TextOutput, text="a" * size)).text == "a" * size


def test_longer_text_becomes_several_events_that_repeat_the_other_fields() -> None:
    events = bound_event(event(AgentEventKind.TextOutput, channel="assistant", text="a" * 65_546, data={"n": 1}))
    assert [len(each.text or "") for each in events] == [65_536, 10]
    assert {(each.agent_kind, each.kind, each.channel) for each in events} == {("codex", "TextOutput", "assistant")}
    assert [each.data for each in events] == [{"n": 1}, {"n": 1}]


@pytest.mark.parametrize("unit", ["a", "é", "漢", "💖", "e\u0301", "👩‍👩‍👧"])
@pytest.mark.parametrize("extra", range(-4, 5))
def test_text_around_the_bound_is_split_between_characters(unit: str, extra: int) -> None:
    text = "x" * (65_536 + extra - len(unit.encode()) * 3) + unit * 6
    events = bound_event(event(AgentEventKind.TextOutput, text=text))
    assert "".join(each.text or "" for each in events) == text
    assert all(len((each.text or "").encode()) <= 65_536 for each in events)


@pytest.mark.parametrize("unit", ["a", "é", "💖"])
def test_a_mebibyte_of_text_is_split_in_one_quick_pass(unit: str) -> None:
    text = unit * (1_048_576 // len(unit.encode()))
    given_event = event(AgentEventKind.TextOutput, text=text)
    assert len(bound_event(given_event)) == 16
    assert calls_made(lambda: bound_event(given_event)) < 16 * 20, "a few calls for each part, none for a character"
    assert cpu_ratio(lambda: bound_event(given_event), lambda: json.dumps(text), limit=20) < 20


def test_text_of_another_kind_is_never_split_but_still_bounded() -> None:
    text = only(event(AgentEventKind.Unknown, text="a" * 70_000)).text
    assert text == "a" * (65_536 - 14) + SUFFIX


@pytest.mark.parametrize(
    ("data", "kept"),
    [
        ("a" * 65_534, True),
        ("a" * 65_535, False),
        ("é" * 32_767, True),  # not ASCII-escaped: two bytes, not six
        ("é" * 32_768, False),
        ("\n" * 32_767, True),  # escaped as two bytes
        ("\n" * 32_768, False),
        ({"k": "a" * 65_528}, True),
        ({"k": "a" * 65_529}, False),
        ([1] * 32_767, True),  # compact: no space after the comma
        ([1] * 32_768, False),
    ],
)
def test_data_over_64_kib_of_compact_json_is_replaced(data: Any, kept: bool) -> None:
    assert (len(json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode()) <= 65_536) is kept
    assert only(event(data=data)).data == (data if kept else DROPPED)


def test_a_completion_is_bound_like_an_event() -> None:
    bounded = bound_completion(
        AgentCompletion("codex", "FAILED", 1, final_text="a" * 70_000, message="m" * 5000, data="a" * 65_535)
    )
    assert bounded.data == DROPPED
    assert bounded.message == "m" * 4082 + SUFFIX
    assert len((bounded.final_text or "").encode()) == 65_536
    assert (bounded.status, bounded.exit_code) == ("FAILED", 1)
    assert bound_completion(AgentCompletion("codex", "SUCCEEDED", 0, data="a" * 65_534)).data == "a" * 65_534


def test_lone_surrogates_are_replaced_everywhere_and_never_crash() -> None:
    bounded = only(
        AgentEvent(
            "codex",
            AgentEventKind.TextOutput,
            channel="\ud800c",
            text="a\udc00b",
            message="\ud83d\udc96",
            data={"\ud800": ["\udfff", {"deep": "\ud83d\udc96"}]},
        )
    )
    assert bounded.channel == "\ufffdc"
    assert bounded.text == "a\ufffdb"
    assert bounded.message == "💖"
    assert bounded.data == {"\ufffd": ["\ufffd", {"deep": "💖"}]}
    msgspec.json.encode(bounded)


@pytest.mark.parametrize("data", [object(), {("a",): 1}, {1, "\ud800"}, [object]])
def test_data_that_is_no_json_value_is_dropped_and_says_so(data: Any) -> None:
    bounded = only(event(data=data)).data
    assert bounded == {"dropped": {"reason": "not_json"}}


def test_data_that_is_nested_without_end_is_dropped() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    circle: list[Any] = []
    circle.append(circle)
    assert only(event(data=deep)).data == {"dropped": {"reason": "not_json"}}
    assert only(event(data=circle)).data == {"dropped": {"reason": "not_json"}}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)


@given(
    channel=st.none() | TEXTS, message=st.none() | TEXTS, data=JSON, kind=st.sampled_from(AgentEventKind), text=TEXTS
)
@settings(max_examples=200, derandomize=True, deadline=None)
def test_whatever_is_bounded_can_be_written_and_read_back(
    channel: str | None, message: str | None, data: Any, kind: AgentEventKind, text: str
) -> None:
    for bounded in bound_event(AgentEvent("generic", kind, channel, text, message, data)):
        assert msgspec.json.decode(msgspec.json.encode(bounded), type=AgentEvent).text == bounded.text
        assert bound_event(bounded) == [bounded]


def test_the_bounds_are_the_numbers_of_the_contract() -> None:
    assert (
        envelope.MAX_CHANNEL_BYTES,
        envelope.MAX_TEXT_BYTES,
        envelope.MAX_MESSAGE_BYTES,
        envelope.MAX_DATA_BYTES,
    ) == (128, 65_536, 4_096, 65_536)


@pytest.mark.parametrize("kind", ["claude_code", "codex", "a", "x9_"])
def test_an_agent_kind_is_a_lower_case_word(kind: str) -> None:
    line = json.dumps({"agent_kind": kind, "kind": "Status"})
    assert msgspec.json.decode(line, type=AgentEvent).agent_kind == kind


@pytest.mark.parametrize("kind", ["", "Codex", "9a", "claude-code", "a b", "_a", "codex\n"])
def test_any_other_agent_kind_is_refused(kind: str) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(json.dumps({"agent_kind": kind, "kind": "Status"}), type=AgentEvent)
