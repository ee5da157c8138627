"""Streamed answers: what passes, what waits, and what a refused call becomes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from harness.effort import calls_made, growth_of_calls
from harness.responses_api import (
    MAX_CALL_BYTES,
    allow,
    compact,
    custom_call,
    event,
    function_call,
    message,
    passed,
    refuse,
    refuse_all,
    response,
    shell_call,
    stream,
)
from subluminal.model.refused import unwrapped
from subluminal.model.responses.api import ResponsesApi
from subluminal.model.words import Emitted, Later, ModelFault

ECHO = function_call("echo", '{"text": "h\u00e9llo"}', 1, namespace="mcp__box")
PATCH = custom_call("apply_patch", "*** Begin Patch\n*** End Patch\n", 2)
LS = shell_call(["ls", "-l"], 3)
ALL = stream(message("Let me look."), ECHO, PATCH, LS, message("And now?", 4))


def test_what_is_allowed_passes_byte_for_byte() -> None:
    result = passed(ALL)
    assert result.out == ALL
    assert [(e.id, e.kind, e.name, e.namespace, e.fault) for e in result.emitted] == [
        ("call_1", "function_call", "echo", "mcp__box", None),
        ("call_2", "custom_tool_call", "apply_patch", "", None),
        ("call_3", "local_shell_call", "local_shell_call", "", None),
    ]
    assert result.emitted[0].arguments == '{"text": "h\u00e9llo"}'.encode()


def test_a_refused_call_is_another_call_wherever_it_stands() -> None:
    result = passed(ALL, refuse_all)
    names = ["subluminal_refused__echo", "subluminal_refused__apply_patch", "subluminal_refused__local_shell_call"]
    done = [item for item in result.items_done() if item["type"] != "message"]
    assert [item["name"] for item in done] == names
    assert {item["type"] for item in done} == {"function_call"}
    assert [item["call_id"] for item in done] == ["call_1", "call_2", "call_3"]
    assert done[0]["namespace"] == "mcp__box"
    final = result.events[-1]["response"]["output"]
    assert [item for item in final if item["type"] != "message"] == done
    for item, original in zip(done, (ECHO, PATCH, LS), strict=True):
        found = unwrapped(item["arguments"].encode())
        assert found is not None
        assert json.loads(found[0]) == original
        assert found[1].startswith("Refused: ")
    assert b'"name":"echo"' not in result.out.replace(b"\\", b"").split(b'"call":')[0]


def test_only_what_is_refused_changes() -> None:
    result = passed(ALL, refuse("apply_patch"))
    untouched = [told for told in result.events if told.get("output_index") in (0, 1, 3, 4)]
    before = [told for told in passed(ALL).events if told.get("output_index") in (0, 1, 3, 4)]
    assert untouched == before
    assert [item["type"] for item in result.items_done()] == [
        "message", "function_call", "function_call", "local_shell_call", "message",
    ]  # fmt: skip


def test_a_client_that_builds_calls_from_pieces_gets_all_of_a_refused_one() -> None:
    result = passed(stream(ECHO), refuse_all)
    kinds = [told["type"] for told in result.events]
    assert kinds == [
        "response.created",
        "response.output_item.added",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        "response.output_item.done",
        "response.completed",
    ]
    added, delta, whole, done = result.events[1:5]
    assert (added["item"]["arguments"], added["item"]["status"]) == ("", "in_progress")
    assert delta["delta"] == whole["arguments"] == done["item"]["arguments"]
    assert {told["item_id"] for told in (delta, whole)} == {"fc_1"}
    numbers = [told["sequence_number"] for told in result.events]
    assert numbers == sorted(set(numbers))
    assert {told["output_index"] for told in (added, delta, whole, done)} == {0}


@pytest.mark.parametrize("judge", [allow, refuse_all, refuse("echo")])
@pytest.mark.parametrize("ends", [b"\n", b"\r\n", b"\r"])
def test_an_answer_is_the_same_however_it_comes_in_pieces(judge: Any, ends: bytes) -> None:
    data = stream(message("Hm."), ECHO, PATCH).replace(b"\n", ends)
    data = data.replace(
        b"event: response.output_item.done", b": a comment" + ends + b"event: response.output_item.done"
    )
    whole = passed(data, judge)
    bytewise = passed([data[i : i + 1] for i in range(len(data))], judge)
    split = [bytewise, *(passed([data[:at], data[at:]], judge) for at in range(0, len(data), 41))]
    for result in split:
        assert result.out == whole.out
        assert [e.arguments for e in result.emitted] == [e.arguments for e in whole.emitted]


def test_text_does_not_wait() -> None:
    answer = ResponsesApi().answer(True, MAX_CALL_BYTES)
    for piece in (e + b"\n\n" for e in stream(message("One two three."))[:-2].split(b"\n\n")):
        pieces = answer.feed(piece)
        assert pieces[0] == piece or isinstance(pieces[0], Later)


def test_a_call_waits_for_its_end_and_what_follows_waits_behind_it() -> None:
    answer = ResponsesApi().answer(True, MAX_CALL_BYTES)
    added = event("response.output_item.added", output_index=0, item={**ECHO, "arguments": ""})
    text = event("response.output_text.delta", output_index=1, delta="x")
    ping = b": still there\n\n"
    done = event("response.output_item.done", output_index=0, item=ECHO)
    assert answer.feed(added) == answer.feed(text) == []
    assert answer.feed(ping) == [ping]
    emitted, behind = answer.feed(done)
    assert isinstance(emitted, Emitted)
    assert emitted.decided(None) == added + done
    assert behind == text


def test_calls_that_are_told_at_the_same_time_are_told_apart() -> None:
    events = [
        event("response.output_item.added", output_index=0, item={**ECHO, "arguments": ""}),
        event("response.output_item.added", output_index=1, item={**PATCH, "input": ""}),
        event("response.function_call_arguments.delta", output_index=0, delta=ECHO["arguments"]),
        event("response.custom_tool_call_input.delta", output_index=1, delta=PATCH["input"]),
        event("response.output_item.done", output_index=1, item=PATCH),
        event("response.output_item.done", output_index=0, item=ECHO),
    ]
    result = passed(events, refuse("echo"))
    assert result.faults == [None, None]
    assert [item["name"] for item in result.items_done()] == ["subluminal_refused__echo", "apply_patch"]


def test_an_item_that_only_says_it_is_done_is_judged() -> None:
    done = event("response.output_item.done", item=ECHO)
    assert passed(done).out == done
    result = passed(done, refuse_all)
    assert [told["type"] for told in result.events] == ["response.output_item.done"]
    assert result.items_done()[0]["name"] == "subluminal_refused__echo"


def test_a_call_that_only_the_whole_answer_has_is_judged_before_it() -> None:
    data = event("response.completed", response=response([message("x"), ECHO]))
    result = passed(data, refuse_all)
    assert result.order == ["Emitted", "Sized", "Usage"]
    assert result.faults == [None]
    assert result.events[0]["response"]["output"][0] == message("x")
    assert result.events[0]["response"]["output"][1]["name"] == "subluminal_refused__echo"
    assert passed(data).out == data


def test_a_whole_answer_that_tells_a_call_otherwise_is_judged_again() -> None:
    other = {**ECHO, "arguments": '{"text": "rm"}'}
    data = stream(ECHO, end=None) + event("response.completed", response=response([other]))
    result = passed(data, lambda emitted: "No." if emitted.fault else None)
    assert result.faults == [None, "another call has its call_id"]
    assert result.items_done() == [ECHO]
    assert result.events[-1]["response"]["output"][0]["name"] == "subluminal_refused__echo"


def _told(**changed: Any) -> list[bytes]:
    """A call whose last event says something else than those before."""
    events = stream(ECHO, end=None).split(b"\n\n")[:-2]
    done = event("response.output_item.done", output_index=0, item={**ECHO, **changed})
    return [*(e + b"\n\n" for e in events), done]


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        (_told(name="delete"), "it was announced as another call"),
        (_told(call_id="call_9"), "it was announced as another call"),
        (_told(namespace="mcp__other"), "it was announced as another call"),
        (_told(arguments='{"text":"x"}'), "its arguments were told in two ways"),
        (_told(type="message", call_id=None), "it was announced as a call, and is none in the end"),
        (_told(type="custom_tool_call", input="x"), "its arguments were told in two ways"),
        (_told(call_id=None), "it was announced as another call"),
    ],
)
def test_what_is_told_in_two_ways_is_a_fault(data: list[bytes], fault: str) -> None:
    result = passed(data, refuse_all)
    assert result.faults == [fault]
    assert result.items_done()[0]["name"].startswith("subluminal_refused__")


def test_an_item_that_is_done_twice_is_judged_twice() -> None:
    data = stream(ECHO, end=None) + event("response.output_item.done", output_index=0, item=ECHO)
    assert passed(data).faults == [None, "another call has its call_id"]


def test_an_item_id_that_changes_from_event_to_event_is_no_fault() -> None:
    started = event("response.output_item.added", output_index=0, item={**ECHO, "id": "a", "arguments": ""})
    delta = event("response.function_call_arguments.delta", output_index=0, item_id="b", delta=ECHO["arguments"])
    done = event("response.output_item.done", output_index=0, item={**ECHO, "id": "c"})
    assert passed(started + delta + done).faults == [None]


def test_arguments_of_a_call_that_was_never_announced_wait_for_it() -> None:
    early = event("response.function_call_arguments.done", output_index=0, name="echo", arguments=ECHO["arguments"])
    answer = ResponsesApi().answer(True, MAX_CALL_BYTES)
    assert answer.feed(early) == []
    result = passed(early + event("response.output_item.done", output_index=0, item=ECHO), refuse_all)
    assert early not in result.out
    assert result.faults == [None]


def test_pieces_without_an_index_are_of_the_call_under_way() -> None:
    bare = {key: value for key, value in ECHO.items() if key != "id"}
    data = b"".join(
        [
            event("response.output_item.added", item={**bare, "arguments": ""}),
            event("response.function_call_arguments.delta", item_id="call_1", delta=ECHO["arguments"]),
            event("response.output_item.done", item=bare),
            event("response.output_text.delta", item_id="msg", delta="x"),
        ]
    )
    answer = ResponsesApi().answer(True, MAX_CALL_BYTES)
    assert len(answer.feed(data)) == 2
    assert passed(data).out == data
    assert passed(data, refuse_all).faults == [None]


def test_arguments_that_come_after_the_end_of_a_call_do_not_pass() -> None:
    late = event("response.function_call_arguments.done", output_index=0, arguments='{"text":"rm"}')
    text = event("response.output_text.delta", output_index=1, delta="x")
    data = stream(ECHO, end=None)
    assert passed(data + late + text).out == data + text


@pytest.mark.parametrize(
    "data",
    [
        b'event: response.output_text.delta\ndata: {"type":"response.output_item.done","item":%b}\n\n' % compact(ECHO),
        b'data: {"type":"response.output_text.delta","type":"response.output_item.done","item":%b}\n\n' % compact(ECHO),
        b'data: {"type":"response.output_text.delta","Type":"response.output_item.done","item":%b}\n\n' % compact(ECHO),
        b'data: {"type":"response.output_item.done","item":{"type":"message","type":"function_call"}}\n\n',
        b'data: {"type":"response.output_item.done","item":%b\n\n' % compact(ECHO),
        b'data: {"item":%b}\n\n' % compact(ECHO),
        b'data: {"type":"response.output_item.done","item":%b,"response":{"output":[]}}\n\n' % compact(ECHO),
        b'data: {"type":"response.completed","response":{"output":{"0":1}}}\n\n',
        b'data: {"type":"response.completed","response":{"output":[],"output":[%b]}}\n\n' % compact(ECHO),
        b'data: {"type":"response.output_item.added","item":{"type":"function_call","name":"echo"}}\n\n',
        b'data: {"type":"response.function_call_arguments.done","arguments":"{}"}\n\n',
        b'data: {"type":"x","item":' + b"[" * 100_000 + b"\n\n",
        b'data: {"type":"x\xff"}\n\n',
    ],
)
def test_what_nobody_can_read_for_sure_ends_the_answer(data: bytes) -> None:
    with pytest.raises(ModelFault) as fault:
        passed(data)
    assert "echo" not in fault.value.why


def test_what_came_before_a_fault_passes_first() -> None:
    answer = ResponsesApi().answer(True, MAX_CALL_BYTES)
    text = event("response.output_text.delta", output_index=0, delta="x")
    assert answer.feed(text + b"data: {\n\n" + text) == [text]
    for _ in range(2):
        with pytest.raises(ModelFault):
            answer.feed(text)
    with pytest.raises(ModelFault):
        answer.end()


def test_a_call_in_an_event_of_an_unknown_type_is_judged() -> None:
    data = event("response.output_item.revised", output_index=0, item=ECHO)
    assert passed(data).faults == ["an event of an unknown type has it"]
    assert passed(data).out == data
    assert b'"name":"echo"' not in passed(data, refuse_all).out


@pytest.mark.parametrize(
    "data",
    [
        event("response.web_search_call.searching", output_index=0, item_id="w"),
        event("codex.rate_limits", rate_limits={"a": 1}),
        event("error", code="x", message="y"),
        b"data: [DONE]\n\n",
        b": hello\n\n",
        b"event: ping\n\n",
        event("response.output_item.done", output_index=0, item=message("x")),
    ],
)
def test_everything_else_passes(data: bytes) -> None:
    assert passed(data).out == data


def test_calls_of_the_providers_own_pass_and_are_observed_once() -> None:
    search = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"query": "x"}}
    connector = {"type": "mcp_call", "id": "m", "server_label": "box", "name": "echo", "arguments": "{}", "output": "y"}
    data = stream(search, connector, message("z"))
    result = passed(data, refuse_all)
    assert result.out == data
    assert [(o.kind, o.server, o.name) for o in result.observed] == [
        ("web_search_call", "", "web_search"),
        ("mcp_call", "box", "echo"),
    ]
    only = event("response.completed", response=response([connector]))
    assert [o.name for o in passed(only).observed] == ["echo"]


def test_usage_is_what_the_last_event_states() -> None:
    (usage,) = passed(stream(message("x"))).usage
    assert (usage.message_id, usage.model, usage.stop_reason) == ("resp_1", "gpt-5", "completed")
    assert (usage.input_tokens, usage.cache_read_input_tokens, usage.cached_in_input) == (110, 90, True)
    assert (usage.output_tokens, usage.reasoning_tokens) == (17, 5)


def test_usage_of_a_cut_stream_is_unknown() -> None:
    (usage,) = passed(stream(message("x"), end=None)).usage
    assert (usage.message_id, usage.model) == ("resp_1", "gpt-5")
    assert usage.input_tokens is usage.output_tokens is usage.cached_in_input is None


def test_why_an_answer_is_incomplete() -> None:
    whole = response([], "incomplete", incomplete_details={"reason": "max_output_tokens"}, usage={"input_tokens": "7"})
    (usage,) = passed(event("response.incomplete", response=whole)).usage
    assert (usage.stop_reason, usage.input_tokens) == ("max_output_tokens", None)


def test_nothing_of_a_call_passes_whose_end_is_cut() -> None:
    data = stream(message("x"), ECHO, end=None)
    text = stream(message("x"), end=None)
    for at in range(len(text), len(data) - len(b"\n\n")):
        result = passed(data[:at])
        assert result.out == text
        assert not result.emitted


def test_an_event_that_only_lacks_its_empty_line_is_judged() -> None:
    data = event("response.output_item.done", item=ECHO)[:-2]
    assert passed(data).out == data
    assert b'"name":"echo"' not in passed(data, refuse_all).out


def test_a_call_that_is_never_done_is_judged_by_the_whole_answer() -> None:
    added = event("response.output_item.added", output_index=0, item={**ECHO, "arguments": ""})
    text = event("response.output_text.delta", output_index=1, delta="x")
    whole = event("response.completed", response=response([ECHO]))
    result = passed(added + text + whole)
    assert result.out == text + whole
    assert result.faults == [None]


# -- bounds -------------------------------------------------------------------------------------------------------


def test_a_call_of_more_than_is_held_is_judged_by_its_name() -> None:
    large = function_call("write", json.dumps({"text": "x" * 3_000}), 0)
    data = stream(large, message("after", 1))
    allowed = passed(data, max_call_bytes=1_000)
    assert allowed.out == data
    (emitted,) = allowed.emitted
    assert (emitted.name, emitted.id, emitted.arguments) == ("write", "call_0", b"{}")
    assert emitted.too_large == "the call is larger than 1000 bytes"
    result = passed(data, refuse_all, max_call_bytes=1_000)
    done, after = result.items_done()
    assert (done["name"], after) == ("subluminal_refused__write", message("after", 1))
    assert b"xxx" not in result.out
    assert result.events[-1]["response"]["output"][0] == done


def test_a_large_call_that_changes_its_name_ends_the_answer() -> None:
    large = function_call("read", json.dumps({"text": "x" * 9_000}), 0)
    events = stream(large, end=None).split(b"\n\n")[:-2]
    done = event("response.output_item.done", output_index=0, item={**large, "name": "write"})
    with pytest.raises(ModelFault, match="told in two ways"):
        passed([*(e + b"\n\n" for e in events), done], max_call_bytes=1_000)


def test_what_waits_behind_a_call_that_never_ends_is_bounded() -> None:
    answer = ResponsesApi().answer(True, 1_000)
    assert answer.feed(event("response.output_item.added", output_index=0, item={**ECHO, "arguments": ""})) == []
    fed = 0
    pieces: list[Any] = []
    while not pieces:
        pieces = answer.feed(event("response.output_text.delta", output_index=1, delta="x" * 100))
        fed += 100
        assert fed < 20_000
    assert pieces[0].too_large


def test_an_event_of_more_than_is_held_ends_the_answer() -> None:
    answer = ResponsesApi().answer(True, 1_000)
    with pytest.raises(ModelFault, match="larger than is held"):
        for _ in range(100):
            answer.feed(b"data: " + b"x" * 100_000)


def test_more_calls_than_any_answer_has_end_it() -> None:
    with pytest.raises(ModelFault, match="more calls"):
        passed([event("response.output_item.done", item={**ECHO, "call_id": f"c{i}"}) for i in range(1_100)])


def test_text_is_passed_on_at_a_glance() -> None:
    answer = ResponsesApi().answer(True, MAX_CALL_BYTES)
    text = event(
        "response.output_text.delta", item_id="msg", output_index=0, content_index=0, delta='"x"\n', logprobs=[]
    )
    assert calls_made(lambda: [answer.feed(text) for _ in range(100)]) < 100 * 25
    assert calls_made(lambda: answer.feed(text * 100)) < 30


def test_the_work_is_linear() -> None:
    def text(size: int) -> None:
        passed([e + b"\n\n" for e in stream(message("x" * size), end=None).split(b"\n\n")])

    def arguments(size: int) -> None:
        passed([e + b"\n\n" for e in stream(function_call("f", "[" + "1," * size), end=None).split(b"\n\n")])

    assert growth_of_calls(text, 300, 3_000) < 1.5
    assert growth_of_calls(arguments, 300, 3_000) < 1.5
