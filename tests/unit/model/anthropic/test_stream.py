"""An answer as a stream: calls wait whole and in order, all else flows, and what passes is what was sent."""

from __future__ import annotations

import json

import pytest

from harness.messages import (
    allow,
    delta,
    event,
    message_end,
    message_start,
    passed,
    pieces_of,
    refuse,
    start,
    stop,
    text,
    told,
    tool_use,
)
from subluminal.model.anthropic.api import API
from subluminal.model.refused import refused_name
from subluminal.model.words import Emitted, Observed, Usage

PING = event("ping")
LS = tool_use(1, "toolu_1", "Bash", "", '{"comm', 'and": "ls"}')
MESSAGE = message_start() + text(0, "I will ", "look.") + LS + message_end()
SEARCH = start(0, type="server_tool_use", id="srvtoolu_1", name="web_search", input={}) + pieces_of(
    0, '{"query":', '"x"}'
)


def test_a_call_is_given_whole_and_passes_as_it_was_sent() -> None:
    through = passed(MESSAGE)
    assert through.bytes == MESSAGE
    [call] = through.calls
    assert (call.id, call.kind, call.name, call.arguments) == ("toolu_1", "tool_use", "Bash", b'{"command": "ls"}')
    assert (call.fault, call.too_large) == (None, None)


def test_nothing_of_a_call_is_given_before_its_stop_and_all_else_at_once() -> None:
    answer = API.answer(True, 1024)
    for before in (message_start(), start(0, type="text", text=""), delta(0, "text_delta", text="a"), stop(0), PING):
        assert answer.feed(before) == [before]
    assert answer.feed(LS[: -len(stop(1))]) == []
    assert answer.feed(PING) == [PING]
    assert answer.feed(b": still here\n\n") == [b": still here\n\n"]
    [call] = answer.feed(stop(1))
    assert isinstance(call, Emitted)
    assert call.decided(None) == LS


def test_a_refused_call_passes_under_its_refused_name_with_the_call_in_it() -> None:
    through = passed(MESSAGE, refuse)
    before = message_start() + text(0, "I will ", "look.")
    assert through.bytes.startswith(before)
    assert through.bytes.endswith(message_end())
    (_, first), (_, second), (_, third) = told(through.bytes.removeprefix(before))[:3]
    block = json.loads(first)
    assert (block["type"], block["index"]) == ("content_block_start", 1)
    assert block["content_block"] == {"type": "tool_use", "id": "toolu_1", "name": refused_name("Bash"), "input": {}}
    wrapped = json.loads(json.loads(second)["delta"]["partial_json"])
    assert wrapped == {"refused": refuse(through.calls[0]), "call": {"name": "Bash", "input": {"command": "ls"}}}
    assert json.loads(third) == {"type": "content_block_stop", "index": 1}


def test_members_that_nobody_here_knows_stay_with_a_refused_call() -> None:
    caller = {"type": "code_execution_20250825", "tool_id": "srvtoolu_1"}
    through = passed(message_start() + tool_use(0, "t", "query", "{}", caller=caller), refuse)
    assert json.loads(told(through.bytes)[1][1])["content_block"]["caller"] == caller


def test_parallel_calls_are_decided_one_by_one() -> None:
    calls = [tool_use(i, f"t{i}", name, '{"a":1}') for i, name in enumerate(("Read", "Bash", "Grep"))]
    stream = message_start() + b"".join(calls) + message_end()
    through = passed(stream, lambda call: "no" if call.name == "Bash" else None)
    assert [call.name for call in through.calls] == ["Read", "Bash", "Grep"]
    assert through.bytes.startswith(message_start() + calls[0])
    assert through.bytes.endswith(calls[2] + message_end())
    assert calls[1] not in through.bytes


def test_a_call_without_pieces_has_no_arguments() -> None:
    for pieces in ((), ("",), ("", "")):
        [call] = passed(message_start() + tool_use(0, "t", "List", *pieces)).calls
        assert (call.arguments, call.fault) == (b"{}", None)


def test_events_of_other_blocks_wait_behind_a_call() -> None:
    """Clients number blocks by their arrival: the text must not become the first."""
    call_start, call_stop = start(0, type="tool_use", id="t", name="Bash", input={}), stop(0)
    stream = message_start() + call_start + text(1, "meanwhile") + PING + call_stop
    through = passed(stream)
    assert through.bytes == message_start() + PING + call_start + call_stop + text(1, "meanwhile")
    assert through.fault is None


def test_an_error_passes_at_once_even_while_a_call_is_held() -> None:
    overloaded = event("error", error={"type": "overloaded_error", "message": "Overloaded"})
    answer = API.answer(True, 1024)
    answer.feed(message_start() + start(0, type="tool_use", id="t", name="Bash", input={}))
    assert answer.feed(overloaded) == [overloaded]


@pytest.mark.parametrize(
    "sent",
    [
        start(0, type="thinking", thinking="")
        + delta(0, "thinking_delta", thinking="h\u00fcm")
        + delta(0, "signature_delta", signature="EqQ=")
        + stop(0),
        start(0, type="redacted_thinking", data="Eo=") + stop(0),
        start(0, type="text", text="", citations=[])
        + delta(0, "citations_delta", citation={"type": "x", "name": "n"})
        + stop(0),
        start(0, type="some_future_block", name="a name") + delta(0, "some_future_delta", data=[1]) + stop(0),
        event("some_future_event", data={"name": "Bash", "input": {}}),
        b"data: [DONE]\n\n",
        b": comment\n\n",
        b"\n\n\n",
        b"event: ping\ndata: not JSON\n\n",
        b"id: 1\nretry: 10\n\n",
        b'event: content_block_delta\ndata: {"index":0,\ndata: "type":"content_block_delta","delta":{}}\n\n',
    ],
)
def test_what_is_no_call_passes_as_it_is(sent: bytes) -> None:
    through = passed(message_start() + sent)
    assert (through.bytes, through.fault, through.calls) == (message_start() + sent, None, [])


def test_lines_that_end_otherwise_are_lines() -> None:
    for end in (b"\r\n", b"\r"):
        stream = MESSAGE.replace(b"\n", end)
        through = passed(stream)
        assert (through.bytes, through.fault) == (stream, None)
        assert through.calls[0].arguments == b'{"command": "ls"}'


def test_a_byte_order_mark_is_no_part_of_the_first_event() -> None:
    stream = b"\xef\xbb\xbf" + tool_use(0, "t", "Bash", "{}")
    assert [call.name for call in passed(stream).calls] == ["Bash"]


def test_a_block_that_nobody_knows_but_that_has_name_and_input_is_a_call() -> None:
    sent = start(0, type="shell_use", id="t", name="Bash", input={}) + pieces_of(0, '{"a":1}') + stop(0)
    [call] = passed(sent).calls
    assert (call.kind, call.name, call.arguments) == ("shell_use", "Bash", b'{"a":1}')
    through = passed(sent, refuse)
    assert json.loads(told(through.bytes)[0][1])["content_block"]["type"] == "tool_use"
    partial = json.loads(told(through.bytes)[1][1])["delta"]["partial_json"]
    assert json.loads(partial)["call"] == {"type": "shell_use", "name": "Bash", "input": {"a": 1}}


# -- calls that the provider carries out ----------------------------------------------------------------------------


def observed(sent: bytes) -> list[tuple[object, ...]]:
    through = passed(sent)
    assert (through.bytes, through.calls, through.fault) == (sent, [], None)
    return [(o.id, o.kind, o.name, o.arguments, o.server, o.result, o.failed) for o in through.observed]


def test_a_call_of_the_provider_is_told_when_its_result_is_there() -> None:
    result = start(1, type="web_search_tool_result", tool_use_id="srvtoolu_1", content=[{"url": "u"}]) + stop(1)
    assert observed(SEARCH + stop(0) + result) == [
        ("srvtoolu_1", "server_tool_use", "web_search", b'{"query":"x"}', "", b'[{"url":"u"}]', None)
    ]
    answer = API.answer(True, 1024)
    assert answer.feed(SEARCH + stop(0)) == [SEARCH[: SEARCH.index(b"\n\n") + 2], *_events(SEARCH)[1:], stop(0)]
    told_first, *rest = answer.feed(result)
    assert isinstance(told_first, Observed)
    assert rest == [*_events(result)]


def _events(stream: bytes) -> list[bytes]:
    return [part + b"\n\n" for part in stream.split(b"\n\n")[:-1]]


def test_a_call_of_the_provider_without_a_result_is_told_at_the_end() -> None:
    assert observed(SEARCH) == [
        ("srvtoolu_1", "server_tool_use", "web_search", b'{"query":"x"}', "", b"", None),
    ]


def test_a_failure_of_the_provider_s_tool_is_told_in_its_words() -> None:
    failure = {"type": "web_search_tool_result_error", "error_code": "max_uses_exceeded"}
    result = start(1, type="web_search_tool_result", tool_use_id="srvtoolu_1", content=failure) + stop(1)
    assert observed(SEARCH + stop(0) + result)[0][-1] == "max_uses_exceeded"


def test_a_connector_s_call_names_its_server() -> None:
    call = start(0, type="mcp_tool_use", id="m1", name="echo", server_name="files", input={"a": 1}) + stop(0)
    content = [{"type": "text", "text": "no such file"}]
    result = start(1, type="mcp_tool_result", tool_use_id="m1", is_error=True, content=content) + stop(1)
    raw = json.dumps(content, separators=(",", ":")).encode()
    assert observed(call + result) == [("m1", "mcp_tool_use", "echo", b'{"a":1}', "files", raw, "no such file")]


def test_a_call_of_the_provider_that_is_too_large_is_told_without_its_arguments() -> None:
    call = start(0, type="server_tool_use", id="s", name="code_execution", input={})
    assert observed(call + pieces_of(0, *["x" * 1000] * 6) + stop(0))[0][3] == b""


# -- usage ------------------------------------------------------------------------------------------------------------


def usage(stream: bytes) -> Usage:
    [found] = passed(stream).usages
    return found


def test_usage_is_that_of_the_start_and_the_last_delta() -> None:
    first = message_start(input_tokens=7, output_tokens=1, cache_read_input_tokens=100, cache_creation_input_tokens=5)
    found = usage(
        first
        + event("message_delta", delta={}, usage={"output_tokens": 3})
        + message_end("end_turn", output_tokens=9, server_tool_use={"web_search_requests": 2, "web_fetch_requests": 1})
    )
    assert (found.message_id, found.model, found.stop_reason) == ("msg_1", "some-model", "end_turn")
    assert (found.input_tokens, found.output_tokens) == (7, 9)
    assert (found.cache_read_input_tokens, found.cache_creation_input_tokens) == (100, 5)
    assert (found.server_tool_requests, found.cached_in_input, found.reasoning_tokens) == (3, False, None)


def test_a_cut_stream_did_not_say_what_it_took() -> None:
    found = usage(message_start() + text(0, "I w"))
    assert (found.input_tokens, found.output_tokens, found.stop_reason) == (10, None, None)


def test_usage_is_told_once_and_before_the_message_ends() -> None:
    answer = API.answer(True, 1024)
    answer.feed(message_start())
    pieces = answer.feed(message_end())
    assert isinstance(pieces[-2], Usage)
    assert pieces[-1] == event("message_stop")
    assert answer.end() == []


def test_numbers_that_are_none_are_not_taken() -> None:
    odd = {"input_tokens": "7", "output_tokens": -1, "cache_read_input_tokens": True, "server_tool_use": {"x": "y"}}
    found = usage(message_start(**odd) + event("message_delta", delta={}, usage=[1]))  # type: ignore[arg-type]
    assert (found.input_tokens, found.output_tokens, found.cache_read_input_tokens) == (None, None, None)
    assert found.server_tool_requests == 0


def test_a_stream_without_a_message_states_nothing() -> None:
    assert passed(event("error", error={"type": "api_error", "message": "x"})).usages == []


def test_a_call_that_is_allowed_passes_again_if_asked_twice() -> None:
    [call] = passed(LS.replace(b'"index":1', b'"index":0'), allow).calls
    assert call.decided(None) == call.decided(None)
