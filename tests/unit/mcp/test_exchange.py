"""Who asked what, as exact exchanges: what goes to the server, what to the client, and what the record says."""

from __future__ import annotations

import json
from typing import Any

import pytest

from harness.effort import cpu_ratio
from harness.engine import rule, tools
from harness.exchange import Talk
from harness.playbook import playbook
from subluminal.core.engine.state import terminate_op
from subluminal.mcp import given_up, legs
from subluminal.mcp.message import scan

ERA = {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}


def call(id: Any = 1, name: str = "echo", args: Any = None, **params: Any) -> bytes:
    message = {
        "jsonrpc": "2.0",
        "id": id,
        "method": "tools/call",
        "params": {"name": name, "arguments": args or {}, **params},
    }
    if id is None:
        del message["id"]
    return json.dumps(message, separators=(",", ":")).encode()


def reply(id: Any = 1, result: Any = None, **more: Any) -> bytes:
    body = more or {"result": {"content": []} if result is None else result}
    return json.dumps({"jsonrpc": "2.0", "id": id, **body}, separators=(",", ":")).encode()


def request(method: str, id: Any = 9, **params: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": id, "method": method, "params": params}, separators=(",", ":")).encode()


def to_server(line: bytes) -> tuple[str, bytes]:
    return ("server", line)


def to_client(line: bytes) -> tuple[str, bytes]:
    return ("client", line)


class Refused:
    """A refusal under this id, alone or as one of a batch."""

    def __init__(self, id: Any, code: int = -32081) -> None:
        self.id, self.code = id, code

    def __eq__(self, other: object) -> bool:
        side, line = other  # type: ignore[misc]
        message = json.loads(line)
        return side == "client" and message["id"] == self.id and message["error"]["code"] == self.code

    def __hash__(self) -> int:
        return 0

    def __repr__(self) -> str:
        return f"<refusal of {self.id}>"


def test_an_allowed_call_passes_unchanged_and_ends_with_its_reply() -> None:
    talk = Talk()
    line, answer = call(), reply()
    playbook(talk).when("client", line).then(to_server(line)).when("server", answer).then(to_client(answer))
    assert [e["type"] for e in talk.events] == ["tool_call_start", "tool_call_decision", "tool_call_end"]
    assert talk.ends() == [("echo", "OK")]


def test_a_refused_call_is_answered_and_never_forwarded() -> None:
    talk = Talk()
    playbook(talk).when("client", call(1, "bad")).then(Refused(1))
    assert talk.ends() == [("bad", "ERROR")]


RAW_IDS = [
    b"7",
    b"1.50",
    b"1e2",
    b"null",
    b"true",
    b'"7"',
    b'"\\u00e9"',
    b'{"a":1}',
    b"[1]",
    b"123456789012345678901234567890",
]


@pytest.mark.parametrize("raw", RAW_IDS)
def test_ids_of_every_kind_are_echoed_byte_for_byte(raw: bytes) -> None:
    talk = Talk()
    line = call(1, "bad").replace(b'"id":1', b'"id":' + raw)
    ((side, refusal),) = talk.client(line)
    assert side == "client"
    assert refusal.startswith(b'{"jsonrpc":"2.0","id":' + raw + b",")
    good = call(1).replace(b'"id":1', b'"id":' + raw)
    talk.client(good)
    talk.server(b'{"result":{},"id":' + raw + b',"jsonrpc":"2.0"}')
    assert talk.ends()[-1] == ("echo", "OK")


def test_ids_that_look_alike_belong_to_different_calls() -> None:
    talk = Talk()
    talk.client(call(1, "number"), call("1", "text"))
    talk.server(reply("1"))
    assert talk.ends() == [("text", "OK")]


CANCEL_1 = b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}'
AGAIN = {
    "a call": (call(1, "second"), "second"),
    "another spelling of the id": (call(1, "second").replace(b'"id":1', b'"id":1.0'), "second"),
    "a ping": (request("ping", 1), "(ping)"),
    "a list": (request("tools/list", 1), "(tools/list)"),
    "a method that is no string": (b'{"jsonrpc":"2.0","id":1,"method":7}', "(unreadable)"),
}


@pytest.mark.parametrize("held", [True, False], ids=["held", "scanned"])
@pytest.mark.parametrize(("second", "name"), AGAIN.values(), ids=AGAIN.keys())
def test_a_second_request_with_an_id_in_flight_is_refused_and_the_first_is_served(
    second: bytes, name: str, held: bool
) -> None:
    talk = Talk()
    talk.client(call(1, "first"))
    ((side, line),) = talk.client(second) if held else talk.client_large(second)
    assert (side, json.loads(line)["error"]["data"]["subluminal"]["reason_code"]) == ("client", "AMBIGUOUS_MESSAGE")
    assert talk.ends() == [(name, "ERROR")]
    assert talk.server(reply(1, error={"code": 1, "message": "no"}))[0][0] == "client"
    assert talk.ends() == [(name, "ERROR"), ("first", "ERROR")]
    assert talk.events[3]["call"]["tool_name"] == name
    assert talk.events[2]["call"]["ambiguous"] == "an id that is in flight"
    assert talk.client(call(1, "third")) == [to_server(call(1, "third"))], "it is free again"


def test_an_id_of_another_request_in_flight_is_no_id_for_a_call() -> None:
    talk = Talk()
    talk.client(request("ping", 1))
    playbook(talk).when("client", call(1)).then(Refused(1))


def test_an_id_twice_in_a_batch_is_in_flight_the_second_time() -> None:
    talk = Talk()
    out = talk.client(batch(call(1, "first"), request("ping", 1), call(2)))
    assert out == [to_server(batch(call(1, "first"), call(2)))]
    ((_, merged),) = talk.server(batch(reply(2), reply(1)))
    assert sorted(ids(merged)) == [1, 1, 2]
    assert sorted(talk.ends()) == [("(ping)", "ERROR"), ("echo", "OK"), ("first", "OK")]


@pytest.mark.parametrize("how", ["cancelled", "timed out"])
@pytest.mark.parametrize("id", [1, "x" * 100])
def test_an_id_that_was_given_up_may_still_be_answered_so_it_is_not_free(how: str, id: Any) -> None:
    talk = Talk(timeout_ms=100)
    talk.client(call(id, "slow"))
    if how == "cancelled":
        talk.client(request("notifications/cancelled", None, requestId=id).replace(b'"id":null,', b""))
    else:
        talk.wait(101)
        talk.tick()
    playbook(talk).when("client", call(id, "next")).then(Refused(id))
    ended = talk.ends()
    late = reply(id, error={"code": 1, "message": "no"})
    assert talk.server(late) == [to_client(late)]
    assert talk.ends() == ended, "a late reply settles nothing"
    talk.client(call(id, "last"))
    talk.server(reply(id))
    assert talk.ends() == [*ended, ("last", "OK")]


def test_ids_given_up_are_bounded_and_the_oldest_is_forgotten_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(given_up, "MAX_GIVEN_UP", 3)
    talk = Talk()
    for number in range(5):
        talk.client(
            call(number), request("notifications/cancelled", None, requestId=number).replace(b'"id":null,', b"")
        )
    refused = [talk.client(call(number))[0][0] == "client" for number in range(5)]
    assert refused == [False, False, True, True, True]


def test_where_nothing_is_refused_no_reply_is_attributed_to_two_requests_with_one_id() -> None:
    talk = Talk(mode="observe")
    talk.client(call(1, "first"))
    assert talk.client(request("ping", 1)) == [to_server(request("ping", 1))]
    assert talk.ends() == [("first", "CANCELLED"), ("(ping)", "CANCELLED")]
    assert "used again" in talk.events[-1]["error"]["message"]
    talk.client(call(1, "third"))
    for answer in (reply(1), reply(1), reply(1)):
        assert talk.server(answer) == [to_client(answer)]
    assert talk.ends()[2:] == [("third", "CANCELLED")]
    talk.client(call(1, "fourth"))
    talk.server(reply(1))
    assert talk.ends()[3:] == [("fourth", "OK")], "everything that was due has come"


def test_a_large_batch_of_replies_ends_every_call_in_it() -> None:
    talk = Talk()
    talk.client(batch(call(1), call(2, "bad"), call(3), request("ping", 4)))
    talk.server_large(batch(reply(1), reply(4), reply(3, {"isError": True, "content": []}), request("roots/list", 1)))
    assert sorted(talk.ends()) == [("bad", "ERROR"), ("echo", "ERROR"), ("echo", "OK")]
    assert talk.exchange.calls_open == 0


@pytest.mark.parametrize(
    "twice",
    [b'"taskId":"bad","taskId":"good"', b'"task\\u0049d":"bad","taskId":"good"', b'"TaskID":"bad","taskId":"good"'],
)
def test_a_poll_that_names_two_tasks_ends_neither(twice: bytes) -> None:
    talk = Talk()
    for number, task in enumerate(("good", "bad")):
        talk.client(call(number))
        talk.server(reply(number, {"task": {"taskId": task}}))
    talk.client(request("tasks/result", 7, taskId="good").replace(b'"taskId":"good"', twice))
    talk.server(reply(7, {"content": []}))
    assert talk.ends() == []


def test_a_request_of_the_server_with_the_same_id_is_not_taken_for_the_reply() -> None:
    talk = Talk()
    ask, answer = request("sampling/createMessage", 1), reply(1, {"role": "user"})
    talk.client(call(1))
    playbook(talk).when("server", ask).then(to_client(ask)).when("client", answer).then(to_server(answer))
    assert talk.ends() == []
    talk.server(reply(1))
    assert talk.ends() == [("echo", "OK")]


def test_a_cancelled_call_ends_at_once_and_a_late_reply_still_passes() -> None:
    talk = Talk()
    cancel = b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}'
    talk.client(call(1))
    playbook(talk).when("client", cancel).then(to_server(cancel)).when("server", reply(1)).then(to_client(reply(1)))
    assert talk.ends() == [("echo", "CANCELLED")]
    assert talk.exchange.calls_open == 0


def test_a_cancelled_request_of_another_kind_is_forgotten() -> None:
    talk = Talk()
    talk.client(
        request("resources/read", 5), b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":5}}'
    )
    assert talk.exchange.calls_open == 0


def test_a_call_without_an_id_is_judged_and_recorded() -> None:
    talk = Talk()
    good = call(None)
    playbook(talk).when("client", good).then(to_server(good)).when("client", call(None, "bad")).then()
    assert talk.actions() == ["ALLOW", "BLOCK"]
    assert talk.ends() == [("echo", "CANCELLED"), ("bad", "ERROR")]


# -- batches


def batch(*lines: bytes) -> bytes:
    return b"[" + b",".join(lines) + b"]"


def ids(line: bytes) -> list[Any]:
    return [message["id"] for message in json.loads(line)]


def test_a_batch_that_is_all_allowed_passes_unchanged() -> None:
    line = b" " + batch(call(1), request("ping", 2))
    playbook(Talk()).when("client", line).then(to_server(line))


def test_refusals_are_merged_into_the_servers_own_batch() -> None:
    talk = Talk()
    playbook(talk).when("client", batch(call(1), call(2, "bad"), call(3))).then(to_server(batch(call(1), call(3))))
    ((side, merged),) = talk.server(batch(reply(1), reply(3)) + b" ")
    assert (side, sorted(ids(merged))) == ("client", [1, 2, 3])
    assert sorted(talk.ends()) == [("bad", "ERROR"), ("echo", "OK"), ("echo", "OK")]


def test_a_batch_that_is_all_refused_is_answered_by_us_alone() -> None:
    ((side, answer),) = Talk().client(batch(call(1, "bad"), call(2, "bad"), call(None, "bad")))
    assert (side, ids(answer)) == ("client", [1, 2])


def test_a_refusal_beside_notifications_does_not_wait() -> None:
    note = b'{"jsonrpc":"2.0","method":"notifications/x"}'
    out = Talk().client(batch(note, call(2, "bad")))
    assert out[0] == to_server(batch(note))
    assert ids(out[1][1]) == [2]


def test_a_server_that_answers_a_batch_one_by_one_gets_the_refusals_out() -> None:
    talk = Talk()
    talk.client(batch(call(1), call(2, "bad"), call(3)))
    out = talk.server(reply(1))
    assert len(out) == 2
    assert {2} == {
        message["id"]
        for _, line in out
        for message in [json.loads(line)]
        if isinstance(message, list)
        for message in message
    }
    assert talk.server(reply(3)) == [to_client(reply(3))]


@pytest.mark.parametrize("lost", ["cancelled", "timed out", "the server died"])
def test_refusals_of_a_batch_do_not_wait_for_a_reply_that_will_not_come(lost: str) -> None:
    talk = Talk(timeout_ms=100)
    talk.client(batch(call(1), call(2, "bad")))
    if lost == "cancelled":
        out = talk.client(b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}')[1:]
    elif lost == "timed out":
        talk.wait(101)
        out = talk.tick()
    else:
        out = [("client", line) for line in talk.exchange.unanswered("gone")]
    assert ids(out[0][1]) == [2]


def test_ambiguous_elements_of_a_batch_are_refused_and_the_rest_goes_on() -> None:
    twice = call(2).replace(b'"name"', b'"name":"x","name"')
    out = Talk().client(batch(call(1), twice, batch(call(3))))
    assert out[0] == to_server(batch(call(1)))


# -- tasks and further legs


def test_a_task_of_2025_11_25_ends_when_its_result_is_fetched() -> None:
    talk = Talk()
    talk.client(call(1, task={"ttl": 1}))
    talk.server(reply(1, {"task": {"taskId": "t", "status": "working"}}))
    talk.client(request("tasks/get", 2, taskId="t"))
    talk.server(reply(2, {"taskId": "t", "status": "working"}))
    assert talk.ends() == []
    talk.client(request("tasks/result", 3, taskId="t"))
    talk.server(reply(3, {"content": [], "isError": False}))
    assert talk.ends() == [("echo", "OK")]


def test_a_task_of_the_extension_ends_by_its_status() -> None:
    talk = Talk()
    talk.client(call(1, _meta=ERA))
    talk.server(reply(1, {"resultType": "task", "taskId": "t"}))
    talk.client(request("tasks/get", 2, taskId="t"))
    talk.server(reply(2, {"taskId": "t", "status": "failed"}))
    assert talk.ends() == [("echo", "ERROR")]


def status(task: str, state: str) -> bytes:
    return json.dumps(
        {"jsonrpc": "2.0", "method": "notifications/tasks/status", "params": {"taskId": task, "status": state}}
    ).encode()


@pytest.mark.parametrize("early", [True, False])
def test_a_status_notification_ends_a_task_even_before_its_acknowledgement(early: bool) -> None:
    talk = Talk()
    talk.client(call(1))
    lines = [status("t", "completed"), reply(1, {"task": {"taskId": "t", "status": "working"}})]
    talk.server(*(lines if early else reversed(lines)))
    assert talk.ends() == [("echo", "OK")]


def test_a_task_that_is_never_asked_for_has_no_known_outcome() -> None:
    talk = Talk()
    talk.client(call(1))
    talk.server(reply(1, {"task": {"taskId": "t"}}))
    assert talk.exchange.calls_open == 1
    talk.abandon()
    talk.tick()
    assert talk.ends() == [("echo", "CANCELLED")]


def test_every_call_ends_in_the_record_even_if_a_server_reuses_or_invents_task_ids() -> None:
    talk = Talk()
    count = legs.MAX_TASKS + 10
    for number in range(count):
        talk.client(call(number))
        talk.server(reply(number, {"task": {"taskId": "same" if number < 5 else f"t{number}"}}))
    assert len(talk.calls.legs) <= legs.MAX_TASKS
    talk.abandon()
    talk.tick()
    assert len(talk.ends()) == count


def ask(id: Any, state: Any = "s1") -> bytes:
    return reply(id, {"resultType": "input_required", "inputRequests": {}, "requestState": state})


def test_a_continuation_is_one_call_and_time_spent_waiting_is_told_apart() -> None:
    talk = Talk()
    talk.client(call(1, args={"a": 1}, _meta=ERA))
    talk.wait(30)
    talk.server(ask(1))
    talk.wait(5000)
    talk.client(call(2, args={"a": 1}, _meta=ERA, requestState="s1", inputResponses={}))
    talk.wait(20)
    talk.server(reply(2, {"resultType": "complete", "content": []}))
    assert (talk.count("tool_call_start"), talk.count("tool_call_decision"), talk.count("tool_call_end")) == (1, 2, 1)
    end = talk.events[-1]
    assert (end["latency_ms"], end["waited_ms"]) == (50, 5000)


FORGED: dict[str, dict[str, Any]] = {
    "another state": {"requestState": "s2"},
    "no state": {"inputResponses": {}},
    "other arguments": {"requestState": "s1", "args": {"a": 2}},
    "another tool": {"requestState": "s1", "name": "other"},
}


@pytest.mark.parametrize("forged", FORGED.values(), ids=FORGED.keys())
def test_a_marker_that_continues_nothing_is_a_new_call(forged: dict[str, Any]) -> None:
    talk = Talk()
    talk.client(call(1, args={"a": 1}, _meta=ERA))
    talk.server(ask(1))
    talk.client(call(2, **{"args": {"a": 1}, "_meta": ERA, **forged}))
    assert talk.count("tool_call_start") == 2


def test_a_continuation_can_be_used_once() -> None:
    talk = Talk()
    talk.client(call(1, _meta=ERA))
    talk.server(ask(1))
    for number in (2, 3):
        talk.client(call(number, _meta=ERA, requestState="s1"))
    assert talk.count("tool_call_start") == 2


def legs_of(talk: Talk, count: int) -> list[str]:
    """Who got each request of a call that asks for input again and again: "server", or "client" for a refusal."""
    took = []
    for number in range(1, count + 1):
        more = {} if number == 1 else {"requestState": "s1"}
        took.append(talk.client(call(number, args={"a": 1}, _meta=ERA, **more))[0][0])
        talk.server(ask(number))
    return took


BUDGET = rule("b", "budget", tools("*"), scope="run", limit_calls=10, on_exceed="BLOCK")


def test_the_legs_of_a_call_are_bounded_and_charge_no_budget() -> None:
    talk = Talk(BUDGET)
    took = legs_of(talk, 33)
    assert took == ["server"] * 32 + ["client"]
    assert reasons(talk)[-1] == "LEGS_EXCEEDED"
    assert talk.ends() == [("echo", "ERROR")]
    assert legs_of(talk, 33 * 11).count("server") == 9 * 32, "each call of the budget has as many legs"


@pytest.mark.parametrize("rules", [(BUDGET,), ()], ids=["with a rule", "with none that matters"])
def test_a_policy_says_how_many_legs_a_call_may_have(rules: tuple[dict[str, Any], ...]) -> None:
    talk = Talk(*rules, defaults={"decision_on_error": "ALLOW", "max_legs": 2})
    assert legs_of(talk, 3) == ["server", "server", "client"]
    assert "may have 2 legs" in talk.events[-1]["error"]["message"]
    watching = Talk(*rules, mode="observe", defaults={"decision_on_error": "ALLOW", "max_legs": 2})
    assert legs_of(watching, 4) == ["server"] * 4
    decisions = [e["decision"] for e in watching.events if e["type"] == "tool_call_decision"]
    assert [d.get("would", {}).get("explain", {}).get("reason_code") for d in decisions] == [None, None] + [
        "LEGS_EXCEEDED"
    ] * 2


@pytest.mark.parametrize("spoilt", ["", "too many legs", "no policy"])
def test_a_leg_of_a_run_that_was_ended_is_on_record_as_that(spoilt: str) -> None:
    talk = Talk(BUDGET, defaults={"decision_on_error": "BLOCK", "max_legs": 1 if spoilt == "too many legs" else 32})
    talk.client(call(1, _meta=ERA))
    talk.server(ask(1))
    if spoilt == "no policy":
        talk.gate.refuse_all("no policy any more")
    talk.gate.state.commit([terminate_op("OPERATOR", "enough")])
    playbook(talk).when("client", call(2, _meta=ERA, requestState="s1")).then(Refused(2, -32084))
    assert talk.actions() == ["ALLOW", "TERMINATE_RUN"]
    assert talk.events[-1]["error"]["code"] == -32084


def test_policy_is_asked_on_every_leg() -> None:
    talk = Talk(rule("b", "budget", tools("*"), scope="run", limit_calls=1, on_exceed="BLOCK"))
    talk.client(call(1, _meta=ERA))
    talk.server(ask(1))
    talk.gate.refuse_all("no policy any more")
    playbook(talk).when("client", call(2, _meta=ERA, requestState="s1")).then(Refused(2))
    assert talk.ends() == [("echo", "ERROR")]


def test_identical_calls_that_wait_for_input_are_not_mixed_up() -> None:
    talk = Talk()
    talk.client(call(1, _meta=ERA), call(2, _meta=ERA))
    talk.server(ask(1, "one"), ask(2, "two"))
    talk.client(call(3, _meta=ERA, requestState="one"), call(4, _meta=ERA, requestState="two"))
    talk.server(reply(3), reply(4))
    assert talk.count("tool_call_start") == 2
    assert talk.ends() == [("echo", "OK")] * 2


def test_every_call_ends_even_where_nothing_tells_two_waiting_ones_apart() -> None:
    talk = Talk()
    talk.client(call(1, _meta=ERA), call(2, _meta=ERA), call(3), call(4))
    talk.server(ask(1), ask(2), ask(3), ask(4))
    talk.abandon()
    talk.tick()
    assert len(talk.ends()) == 4


# -- answers


def test_a_refusal_in_the_style_of_a_result_says_complete_in_the_2026_era_only() -> None:
    for params, expected in (({}, None), ({"_meta": ERA}, "complete")):
        talk = Talk(refusal_style="result")
        ((_, line),) = talk.client(call(1, "bad", **params))
        result = json.loads(line)["result"]
        assert result["isError"] is True
        assert result.get("resultType") == expected
        assert result["content"][0]["type"] == "text"
        assert result["_meta"]["subluminal"]["tool_name"] == "bad"


def test_a_reply_that_reports_an_error_is_an_error() -> None:
    talk = Talk()
    talk.client(call(1), call(2))
    talk.server(reply(1, {"content": [{"type": "text", "text": "broken\npipe"}], "isError": True}))
    talk.server(reply(2, error={"code": -32000, "message": "no"}))
    assert talk.ends() == [("echo", "ERROR")] * 2


def test_a_call_times_out_in_the_record_and_its_late_reply_still_passes() -> None:
    talk = Talk(timeout_ms=100)
    talk.client(call(1))
    talk.wait(99)
    talk.tick()
    assert talk.ends() == []
    talk.wait(2)
    talk.tick()
    assert talk.ends() == [("echo", "TIMEOUT")]
    assert talk.server(reply(1)) == [to_client(reply(1))]


def test_calls_time_out_each_at_its_time_whatever_else_is_open() -> None:
    talk = Talk(timeout_ms=100)
    talk.client(request("resources/list", 90), call(1), call(2))
    talk.wait(60)
    talk.client(call(3, "later"), request("resources/list", 91))
    talk.wait(50)
    talk.tick()
    assert talk.ends() == [("echo", "TIMEOUT")] * 2
    talk.wait(60)
    talk.tick()
    assert talk.ends() == [("echo", "TIMEOUT")] * 2 + [("later", "TIMEOUT")]


def test_looking_for_calls_that_are_due_costs_the_same_however_many_are_open() -> None:
    few, many = Talk(timeout_ms=60_000), Talk(timeout_ms=60_000)
    few.client(*(call(number) for number in range(10)))
    many.client(*(call(number) for number in range(5_000)))

    def look(talk: Talk) -> None:
        for _ in range(1_000):
            talk.exchange.expire(talk.at_ns)

    assert cpu_ratio(lambda: look(many), lambda: look(few), 3) < 3


def test_annotations_raise_the_risk_class_of_a_tool_and_never_lower_it() -> None:
    writes = rule("w", "deny", {"risk_class": ["write_like"]})
    talk = Talk(writes)
    talk.client(request("tools/list", 5))
    listed = [
        {"name": "plain"},
        {"name": "marked", "annotations": {"destructiveHint": True}},
        {"name": "delete_all", "annotations": {"readOnlyHint": True}},
    ]
    talk.server(reply(5, {"tools": listed}))
    talk.client(call(1, "plain"), call(2, "marked"), call(3, "delete_all"))
    assert talk.actions()[:2] == ["ALLOW", "BLOCK"]


WRITES = rule("w", "deny", {"risk_class": ["write_like"]})
LISTED = [
    {"name": "rm", "inputSchema": {"a": [{"name": "decoy"}]}, "annotations": {"destructiveHint": True, "title": "x"}},
    {"annotations": {"title": '"]}', "readOnlyHint": True}, "name": "l\u00e9\\"},
    {"name": "cat", "annotations": None},
]


def reasons(talk: Talk) -> list[str]:
    return [e["decision"]["explain"]["reason_code"] for e in talk.events if e["type"] == "tool_call_decision"]


def test_until_a_tool_is_listed_a_rule_that_asks_for_its_class_cannot_be_judged() -> None:
    talk = Talk(WRITES)
    talk.client(call(1, "rm"), call(2, "cat"))
    assert (talk.actions(), reasons(talk)) == (["BLOCK"] * 2, ["TOOL_NOT_LISTED"] * 2)
    talk.client(request("tools/list", 5))
    talk.server(reply(5, {"tools": LISTED}))
    talk.client(call(3, "rm"), call(4, "cat"), call(6, "another"))
    assert talk.actions()[2:] == ["BLOCK", "ALLOW", "BLOCK"]
    assert reasons(talk)[2:] == ["DENYLIST_MATCH", "DEFAULT_ALLOW", "TOOL_NOT_LISTED"]


@pytest.mark.parametrize("method", [b"tools\\/list", b"tools\\u002flist", b"\\u0074ools/list"])
@pytest.mark.parametrize("asked", ["held", "scanned"])
@pytest.mark.parametrize("listed", ["held", "scanned"])
def test_a_list_is_learned_from_however_it_is_spelled_and_however_large_it_is(
    method: bytes, asked: str, listed: str
) -> None:
    talk = Talk(WRITES)
    line = request("tools/list", 5).replace(b"tools/list", method)
    assert (talk.client(line) if asked == "held" else talk.client_large(line)) == [to_server(line)]
    answer = reply(5, {"nextCursor": "x", "tools": LISTED, "more": [1]})
    if listed == "held":
        talk.server(answer)
    else:
        talk.server_large(answer)
    talk.client(call(1, "rm"), call(2, "cat"), call(3, "l\u00e9\\"), call(4, "decoy"))
    assert reasons(talk) == ["DENYLIST_MATCH", "DEFAULT_ALLOW", "DEFAULT_ALLOW", "TOOL_NOT_LISTED"]


def test_a_list_that_was_not_asked_for_teaches_nothing() -> None:
    talk = Talk(WRITES)
    talk.client(request("ping", 5), request("tools/list", 6), request("tools/list", 5))
    talk.server(reply(5, {"tools": LISTED}), reply(7, {"tools": LISTED}))
    talk.client(call(1, "cat"))
    assert reasons(talk)[-1] == "TOOL_NOT_LISTED"


def test_a_large_list_with_more_tools_than_are_noted_is_still_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "MAX_TOOLS", 2)
    talk = Talk(WRITES)
    talk.client(request("tools/list", 5))
    answer = reply(5, {"tools": LISTED}).replace(b'{"jsonrpc":"2.0","id":5,', b"{")[:-1] + b',"id":5,"jsonrpc":"2.0"}'
    talk.server_large(answer)
    talk.client(call(1, "rm"), call(2, "cat"))
    assert reasons(talk) == ["DENYLIST_MATCH", "TOOL_NOT_LISTED"]


def test_ambiguous_messages_pass_in_observe_and_are_refused_under_guardrails() -> None:
    line = call(1).replace(b'"name"', b'"name":"x","name"')
    watching, guarding = Talk(mode="observe"), Talk()
    assert watching.client(line) == [to_server(line)]
    playbook(guarding).when("client", line).then(Refused(1))
    assert watching.events[0]["call"]["ambiguous"] == guarding.events[0]["call"]["ambiguous"] == "duplicate key name"


@pytest.mark.parametrize(
    "line", [b"", b"\r", b"garbage from the server", b"\xff\xfe\x00", b"[", b"[1,2", b'{"id":', b"[" * 3000]
)
def test_whatever_the_server_says_passes_untouched(line: bytes) -> None:
    talk = Talk()
    talk.client(call(1))
    assert talk.server(line) == [to_client(line)]
    assert talk.exchange.calls_open == 1


# -- what the run's state is needed for -------------------------------------------------------------------------


ERRORS = {"scope": "run", "error_threshold": 2, "window_ms": 60_000, "on_trip": "BLOCK"}
SLOW = {"scope": "run", "latency_threshold_ms": 100, "window_ms": 60_000, "on_trip": "BLOCK"}


def test_a_reply_in_which_nothing_says_of_an_error_needs_no_state() -> None:
    talk = Talk(rule("failing", "breaker", **ERRORS))
    assert not talk.exchange.needs_state(reply())
    talk.client(call())
    assert talk.exchange.is_watched
    assert not talk.exchange.needs_state(reply())
    assert talk.exchange.needs_state(reply(error={"code": 1, "message": "no"}))
    assert talk.exchange.needs_state(reply(result={"content": [], "isError": True}))
    assert talk.exchange.needs_state(reply().replace(b"result", b"\\u0065\\u0072ror"))
    talk.server(reply())
    assert not talk.exchange.needs_state(reply(error={"code": 1, "message": "no"}))


def test_where_slow_calls_trip_a_breaker_every_reply_may_need_the_state() -> None:
    talk = Talk(rule("slow", "breaker", **SLOW))
    talk.client(call())
    assert talk.exchange.needs_state(reply())
