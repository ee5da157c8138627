"""Streams of a hostile upstream: whatever could be a call is judged, has a fault, or ends the stream."""

from __future__ import annotations

import json

import pytest

from harness.effort import growth
from harness.messages import (
    MAX_CALL_BYTES,
    clients,
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
    told,
    tool_use,
)
from subluminal.model.anthropic import stream as streams
from subluminal.model.anthropic.api import API
from subluminal.model.anthropic.blocks import INVALID_INPUT
from subluminal.model.refused import PREFIX
from subluminal.model.words import ModelFault

BASH = start(0, type="tool_use", id="t", name="Bash", input={})
RUN = pieces_of(0, '{"command":"rm"}')
BOM = b"\xef\xbb\xbf"
BLOCK = '{"type":"tool_use","id":"t","name":"Bash","input":{}}'


def named(name: str, data: str) -> bytes:
    return f"event: {name}\ndata: {data}\n\n".encode()


@pytest.mark.parametrize(
    ("why", "sent"),
    [
        ("disagree", named("ping", f'{{"type":"content_block_start","index":0,"content_block":{BLOCK}}}')),
        ("disagree", named("content_block_start", f'{{"type":"ping","index":0,"content_block":{BLOCK}}}')),
        ("disagree", named("message", f'{{"type":"content_block_start","index":0,"content_block":{BLOCK}}}')),
        ("disagree", named("content_block_start", f'{{"index":0,"content_block":{BLOCK}}}')),
        (
            "disagree",
            named("Content_Block_Start", f'{{"type":"Content_Block_Start ","index":0,"content_block":{BLOCK}}}'),
        ),
        ("disagree", named("x", f'{{"type":"\\u0063ontent_block_start","index":0,"content_block":{BLOCK}}}')),
        (
            "twice",
            named("content_block_start", f'{{"type":"ping","type":"content_block_start","content_block":{BLOCK}}}'),
        ),
        (
            "twice",
            named("content_block_start", '{"type":"content_block_start","index":0,"content_block":{"type":"text"'
                  f',"text":""}},"content_block":{BLOCK}}}'),
        ),
        (
            "twice",
            named("content_block_start", '{"type":"content_block_start","index":0,"content_block":'
                  '{"type":"text","type":"tool_use","id":"t","name":"Bash","input":{}}}'),
        ),
        (
            "spelled",
            named("content_block_start", '{"type":"content_block_start","index":0,"content_block":'
                  '{"type":"text","text":"","Type":"tool_use","id":"t","name":"Bash","input":{}}}'),
        ),
        (
            "spelled",
            named("content_block_start", '{"type":"content_block_start","index":0,"content_block":'
                  f'{{"type":"text","text":""}},"Content_Block":{BLOCK}}}'),
        ),
        ("not one JSON object", named("content_block_start", "{type:'content_block_start'}")),
        ("not one JSON object", named("content_block_start", f"[{BLOCK}]")),
        ("not one JSON object", named("unknown", "{'a':1}")),
        ("not one JSON object", named("ping", f'{{"content_block":{BLOCK}')),
        ("not one JSON object", b"event: content_block_start\ndata: \xff{}\n\n"),
        ("does not belong", named("message_stop", f'{{"type":"message_stop","content_block":{BLOCK}}}')),
        ("does not belong", named("content_block_delta", '{"type":"content_block_delta","index":0,"delta":'
                                  f'{{"type":"text_delta","text":""}},"content_block":{BLOCK}}}')),
        ("starts with content", event("message_start", message={"content": [json.loads(BLOCK)]})),
        ("content in the end", event("message_delta", delta={"content": [json.loads(BLOCK)]})),
        ("second", message_start() + message_start()),
        ("second", text(0, "a") + message_start()),
        ("no index", start(0, type="text", text="").replace(b":0", b':"0"')),
        ("no index", start(0, type="text", text="").replace(b":0", b":-1")),
        ("no index", start(0, type="text", text="").replace(b":0", b":0.0")),
        ("no index", start(0, type="text", text="").replace(b":0", b":12345678901")),
        ("no index", event("content_block_start", content_block=json.loads(BLOCK))),
        ("no type", start(0, id="t", name="Bash", input={})),
        ("no type", start(0, type=["tool_use"], id="t", name="Bash", input={})),
        ("no id", start(0, type="tool_use", name="Bash", input={})),
        ("no id", start(0, type="tool_use", id=7, name="Bash", input={})),
        ("no id", start(0, type="tool_use", id="", name="Bash", input={})),
        ("no id", start(0, type="tool_use", id="t", name=None, input={})),
        ("no id", start(0, type="tool_use", id="t" * 1000, name="Bash", input={})),
        ("more tool calls", b"".join(tool_use(i, f"t{i}", "Read") for i in range(4097))),
        ("without its content_block", event("content_block_start", index=0)),
        ("not one JSON object", event("content_block_start", index=0, content_block="tool_use")),
        ("overlap", BASH + start(1, type="tool_use", id="u", name="Read", input={})),
        ("overlap", BASH + start(0, type="text", text="")),
        ("no open call", tool_use(0, "t", "Bash", "{}") + RUN),
        ("no open call", start(0, type="text", text="") + RUN),
        ("no open call", RUN),
        ("no open call", start(0, type="text", text="") + delta(0, "text_delta", text="", partial_json="{}")),
        ("no open call", start(0, type="server_tool_use", id="s", name="x", input={}) + delta(0, "input_json_delta")),
        ("not open", tool_use(0, "t", "Bash", "{}") + stop(0)),
        ("not open", stop(3)),
        ("not open", BASH + event("message_stop") + stop(0)),
        ("only some clients see", f": \u2028data: {BLOCK}\n\n".encode()),
        ("only some clients see", b": \x0cdata: {}\n\n"),
        ("only some clients see", b"event: ping\xc2\x85event: content_block_start\ndata: {}\n\n"),
        ("only some clients see", b": .\n\n" + BOM + BASH),
        ("only some clients see", BASH.replace(b"data: ", BOM + b"data: ")),
    ],
)  # fmt: skip
def test_what_could_be_a_call_and_breaks_the_rules_ends_the_stream(why: str, sent: bytes) -> None:
    through = passed(sent + text(5, "not to be seen"), refuse)
    assert why in (through.fault or "")
    assert b"not to be seen" not in through.bytes
    for client in clients():
        assert all(name.startswith(PREFIX) for name, _ in client.read(through.bytes))


@pytest.mark.parametrize(
    ("fault", "sent"),
    [
        ("no end", BASH + RUN + event("message_stop")),
        ("invalid_json", BASH + pieces_of(0, '{"command":"r') + stop(0)),
        ("invalid_json", BASH + pieces_of(0, "{'command':1}") + stop(0)),
        ("invalid_json", BASH + pieces_of(0, " ") + stop(0)),
        ("duplicate_key", BASH + pieces_of(0, '{"command":"ls","command":"rm"}') + stop(0)),
        ("trailing_bytes", BASH + pieces_of(0, '{"command":"ls"}', "{}") + stop(0)),
        ("not_finite", BASH + pieces_of(0, '{"n":NaN}') + stop(0)),
        ("not an object", BASH + pieces_of(0, '["rm"]') + stop(0)),
        ("not an object", BASH + pieces_of(0, "null") + stop(0)),
        ("another type", BASH + RUN + delta(0, "text_delta", text="x") + stop(0)),
        ("another type", BASH + delta(0, "input_json_delta", partial_json=1) + stop(0)),
        ("another type", BASH + delta(0, "input_json_delta") + stop(0)),
        ("in the start", start(0, type="tool_use", id="t", name="Bash", input={"command": "ls"}) + RUN + stop(0)),
        ("in the start", start(0, type="tool_use", id="t", name="Bash", input={"command": "ls"}) + stop(0)),
        ("one id", tool_use(0, "t", "Read", "{}") + tool_use(1, "t", "Bash", "{}")),
        ("numbered", tool_use(1, "t", "Bash", "{}")),
        ("numbered", text(0, "a") + tool_use(0, "t", "Bash", "{}")),
        ("numbered", text(2, "a") + tool_use(1, "t", "Bash", "{}")),
    ],
)
def test_a_call_that_clients_could_read_differently_has_a_fault(fault: str, sent: bytes) -> None:
    call = passed(sent).calls[-1]
    assert fault in (call.fault or "")
    refused = passed(sent, refuse_faults)
    for client in clients():
        assert "Bash" not in [name for name, _ in client.read(refused.bytes)]


@pytest.mark.parametrize("sent", [BASH, BASH + RUN, BASH + RUN + stop(0)[:-1], BASH + RUN + stop(0)[:-20]])
def test_of_a_call_that_the_stream_ends_in_nothing_passes(sent: bytes) -> None:
    through = passed(message_start() + sent)
    assert (through.bytes, through.calls) == (message_start(), [])


def test_arguments_that_are_no_json_are_kept_as_text_in_the_refusal() -> None:
    through = passed(BASH + pieces_of(0, '{"command":"r') + stop(0), refuse)
    wrapped = json.loads(json.loads(told(through.bytes)[1][1])["delta"]["partial_json"])
    assert wrapped["call"] == {"name": "Bash", "input": {INVALID_INPUT: '{"command":"r'}}


def test_a_call_that_is_too_large_is_not_held_and_never_passes() -> None:
    pieces = ['{"command":"', *["x" * 1000] * 100, '"}']
    sent = message_start() + tool_use(0, "t", "Bash", *pieces) + text(1, "and on") + message_end()
    for judge in (refuse, lambda call: None):
        through = passed(sent, judge)
        [call] = through.calls
        assert call.too_large == f"larger than {MAX_CALL_BYTES} bytes"
        assert len(call.arguments) < 2000
        assert through.bytes.endswith(text(1, "and on") + message_end())
        wrapped = json.loads(json.loads(told(through.bytes)[2][1])["delta"]["partial_json"])
        assert wrapped["call"]["input"][INVALID_INPUT].startswith('{"command":"xxx')
        assert clients()[0].read(through.bytes)[0][0] == PREFIX + "Bash"


def test_one_huge_piece_is_a_call_too_large() -> None:
    [call] = passed(tool_use(0, "t", "Bash", '{"a":"' + "x" * 1_000_000 + '"}')).calls
    assert call.too_large


def test_arguments_in_the_start_are_counted_too() -> None:
    sent = start(0, type="tool_use", id="t", name="Bash", input={"a": "x" * 10_000}) + stop(0)
    for stream in (sent, sent[: -len(stop(0))] + event("message_stop")):
        [call] = passed(stream).calls
        assert call.too_large
        assert len(call.arguments) < 2000
        assert clients()[0].read(passed(stream).bytes)[0][0] == PREFIX + "Bash"


def test_pieces_without_content_do_not_fill_memory() -> None:
    answer = API.answer(True, 1024)
    answer.feed(BASH)
    for _ in range(300):
        assert answer.feed(pieces_of(0, *[""] * 100)) == []
    [call] = answer.feed(stop(0))
    assert call.too_large  # type: ignore[union-attr]


def test_an_event_larger_than_is_held_ends_the_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "MAX_EVENT_BYTES", 10_000)
    through = passed(message_start() + b"event: x\ndata: {" + b" " * 20_000)
    assert "larger than" in (through.fault or "")


def test_what_waits_behind_a_call_is_bounded() -> None:
    through = passed([BASH, *[text(1, "x" * 1000)] * 2000])
    assert "behind a tool call" in (through.fault or "")
    assert through.bytes == b""


def test_open_blocks_are_bounded() -> None:
    through = passed(b"".join(start(i, type="text", text="") for i in range(2000)))
    assert "too many" in (through.fault or "")


def test_after_a_fault_nothing_passes_and_what_came_before_has_passed() -> None:
    answer = API.answer(True, 1024)
    assert answer.feed(text(0, "before") + stop(7) + text(1, "behind")) != []
    for work in (lambda: answer.feed(text(1, "behind")), answer.end):
        with pytest.raises(ModelFault, match="not open"):
            work()


@pytest.mark.parametrize("rest", [b"event: content_block_start\n", b"data: [DONE]", b": bye", b"\n"])
def test_what_is_left_at_the_end_passes_if_it_is_no_event(rest: bytes) -> None:
    assert passed(text(0, "a") + rest).bytes == text(0, "a") + rest


def test_half_an_event_at_the_end_does_not_pass() -> None:
    for cut in range(1, 40):
        through = passed(text(0, "a") + tool_use(1, "t", "Bash", "{}").partition(b"\n\n")[0][:-cut])
        assert b"tool_use" not in through.bytes
        assert through.fault is None


def test_a_fault_says_nothing_of_what_was_sent() -> None:
    through = passed(named("content_block_start", '{"type":"sk-secret","sk-secret":1,"sk-secret":2}'))
    assert "sk-secret" not in (through.fault or "sk-secret")


def test_the_work_is_linear() -> None:
    def strings(size: int) -> None:
        passed(text(0, 'a\\"b\\\\' * size) + tool_use(1, "t", "Bash", '{"a":"', *["\\u00e9\\n"] * size, '"}'))

    def unfinished(size: int) -> None:
        answer = API.answer(True, 1024)
        answer.feed(message_start())
        event_text = delta(0, "text_delta", text='"' * size * 10)[:-10]
        for at in range(0, len(event_text), 100):
            answer.feed(event_text[at : at + 100])

    def blocks(size: int) -> None:
        passed(b"".join(tool_use(i, f"t{i}", "Bash", "{}") for i in range(size)))

    for work in (strings, unfinished, blocks):
        assert growth(work, 100, 2_000, 3) < 3
