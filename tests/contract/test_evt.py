"""EVT: the event stream, of any adapter; what only a shim has between two pipes, of a real shim."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from contract.conftest import Play
from harness.adapters.interface import ENVIRONMENT, TOOL_FAILURES, Adapter
from harness.fake_server import fake_server
from harness.shim import Shim
from harness.sink import EventPipe
from subluminal.contracts.vocabulary import ERROR_CLASSES, REQUIRED_EVENT_TYPES

TRACEBACK = (
    'Traceback (most recent call last):\n  File "/srv/app.py", line 3, in run\n    raise KeyError("x")\nKeyError'
)


@pytest.mark.contract("EVT-001")
def test_every_event_is_exactly_one_line_of_json(play: Play) -> None:
    text = "line one\nline two\r\n\u2028 \u0085 end\t\x00"
    raw = play("allow_all.yaml", ("talk", {"text": text}), failing={"talk": "a\nb\r\n\u2028c\u0085"}).events.raw()
    assert raw.endswith(b"\n")
    lines = raw.split(b"\n")[:-1]
    assert len(lines) >= len(REQUIRED_EVENT_TYPES)
    for line in lines:
        assert b"\r" not in line
        assert isinstance(json.loads(line), dict)


@pytest.mark.contract("EVT-001")
def test_events_arrive_whole_through_a_descriptor_too(tmp_path: Path) -> None:
    pipe = EventPipe()
    setup = Shim(tmp_path, "notes", fake_server(), events=pipe)
    with setup.start(pass_fds=[pipe.write_fd]) as agent:
        pipe.close_writer()
        agent.initialize()
        agent.call("echo", {"n": 1})
        agent.finish()
    pipe.wait_end()
    assert [kind for kind in pipe.types() if kind in REQUIRED_EVENT_TYPES] == list(REQUIRED_EVENT_TYPES)
    assert pipe.raw().endswith(b"\n")


@pytest.mark.contract("EVT-002")
def test_every_event_carries_the_whole_envelope(play: Play) -> None:
    events = play("deny_above_allow.yaml", ("echo", {"n": 1}), ("delete_all", {})).events.events()
    assert len(events) >= 8
    for event in events:
        for field in ("v", "type", "ts", "run_id", "agent_id", "client", "env"):
            assert isinstance(event[field], str) and event[field], (field, event)
        for field in ("host_id", "proc_id", "shim_id"):
            assert isinstance(event["source"][field], str) and event["source"][field], (field, event)
    assert {event["v"] for event in events} == {"0.2.0"}
    assert len({json.dumps({**event["source"], "seq": 0}) for event in events}) == 1
    assert [event["source"]["seq"] for event in events] == list(range(1, len(events) + 1))


@pytest.mark.contract("EVT-003")
def test_one_call_gives_the_five_events_in_order(play: Play) -> None:
    events = play("allow_all.yaml", ("echo", {"n": 1})).events.events_of(*REQUIRED_EVENT_TYPES)
    assert [event["type"] for event in events] == list(REQUIRED_EVENT_TYPES)
    assert len({event["call"]["call_id"] for event in events[1:4]}) == 1
    assert [event["ts"] for event in events] == sorted(event["ts"] for event in events)


@pytest.mark.contract("EVT-003")
def test_a_refused_call_is_complete_as_well(play: Play) -> None:
    events = play("deny_above_allow.yaml", ("delete_all", {})).events.events_of(*REQUIRED_EVENT_TYPES)
    assert [event["type"] for event in events] == list(REQUIRED_EVENT_TYPES)
    assert events[3]["status"] == "ERROR"
    assert events[3]["error"]["class"] == "policy_block"


@pytest.mark.contract("EVT-004")
def test_all_events_of_a_run_carry_its_run_id(adapter: Adapter, play: Play) -> None:
    adapter.need(ENVIRONMENT)
    calls = [("echo", {"n": number}) for number in (1, 2, 3)]
    events = play("allow_all.yaml", *calls, env={"SUB_RUN_ID": "run-7f3a", "SUB_AGENT_ID": "writer"}).events
    assert len(events.events_of("tool_call_start")) == 3
    assert {(event["run_id"], event["agent_id"]) for event in events.events()} == {("run-7f3a", "writer")}


@pytest.mark.contract("EVT-005")
def test_a_hundred_calls_have_distinct_ids_and_count_from_one(play: Play) -> None:
    events = play("allow_all.yaml", *[("echo", {"n": n}) for n in range(100)]).events
    calls = [event["call"] for event in events.events_of("tool_call_start")]
    assert len({call["call_id"] for call in calls}) == 100
    assert [call["seq"] for call in calls] == list(range(1, 101))


@pytest.mark.contract("EVT-005")
def test_a_hundred_calls_at_once_have_distinct_ids_too(tmp_path: Path) -> None:
    setup = Shim(tmp_path, "notes", fake_server())
    with setup.start() as agent:
        agent.initialize()
        agent.replies([agent.start_call("echo", {"n": n}, wait=False) for n in range(100)])
        agent.finish()
    setup.events.wait_type("run_end")
    calls = [event["call"] for event in setup.events.events_of("tool_call_start")]
    assert len({call["call_id"] for call in calls}) == 100
    assert [call["seq"] for call in calls] == list(range(1, 101))


@pytest.mark.contract("EVT-005")
def test_call_ids_stay_distinct_across_the_servers_of_one_run(tmp_path: Path) -> None:
    run = {"SUB_RUN_ID": "run-shared"}
    first = Shim(tmp_path, "one", fake_server(), env=run)
    second = Shim(tmp_path, "two", fake_server(), env=run)
    with first.start() as left, second.start() as right:
        for agent in (left, right):
            agent.initialize()
        for _ in range(5):
            left.call("echo")
            right.call("echo")
        left.finish()
        right.finish()
    for setup in (first, second):
        setup.events.wait_type("run_end")
    calls = [event["call"] for setup in (first, second) for event in setup.events.events_of("tool_call_start")]
    assert len({call["call_id"] for call in calls}) == 10
    assert sorted(call["seq"] for call in calls) == list(range(1, 11))


NAMES = ["linear_create_issue", "mcp__x__y", "Ünïcode/tool.name", "UPPER lower"]


@pytest.mark.contract("EVT-006")
def test_names_are_kept_exactly(play: Play) -> None:
    events = play("allow_all.yaml", *[(tool, {}) for tool in NAMES], server_name="Linear-Prod").events
    for kind in ("tool_call_start", "tool_call_decision", "tool_call_end"):
        told = [(event["call"]["server_name"], event["call"]["tool_name"]) for event in events.events_of(kind)]
        assert told == [("Linear-Prod", tool) for tool in NAMES], kind


@pytest.mark.contract("EVT-006")
def test_the_agent_lists_the_names_that_the_server_has(tmp_path: Path) -> None:
    setup = Shim(tmp_path, "Linear-Prod", fake_server(tools={name: {} for name in NAMES}))
    with setup.start() as agent:
        agent.initialize()
        assert [each["name"] for each in agent.request("tools/list")["result"]["tools"]] == NAMES
        agent.finish()


@pytest.mark.contract("EVT-007")
def test_latency_is_the_time_the_tool_took(tmp_path: Path) -> None:
    """At least what the server waits, at most what the agent waits."""
    setup = Shim(tmp_path, "notes", fake_server(tools={"slow": {"delay_ms": 200}, "quick": {}}))
    seen_ms = []
    with setup.start() as agent:
        agent.initialize()
        for tool in ("slow", "quick"):
            began = time.monotonic()
            agent.call(tool)
            seen_ms.append((time.monotonic() - began) * 1000)
        agent.finish()
    setup.events.wait_type("run_end")
    slow, quick = (event["latency_ms"] for event in setup.events.events_of("tool_call_end"))
    assert 200 <= slow <= seen_ms[0] + 1
    assert 0 <= quick <= seen_ms[1] + 1


@pytest.mark.contract("EVT-008")
def test_a_tool_that_fails_has_a_class_of_the_contract_and_no_stack_trace(adapter: Adapter, play: Play) -> None:
    adapter.need(TOOL_FAILURES)
    played = play("allow_all.yaml", ("refuse", {}), ("break", {}), failing={"refuse": "it says no", "break": TRACEBACK})
    assert [outcome.failed for outcome in played.outcomes] == [True, True]
    ends = played.events.events_of("tool_call_end")
    assert [(end["status"], end["error"]["class"]) for end in ends] == [("ERROR", "upstream_error")] * 2
    assert all(end["error"]["message"] for end in ends), "in the words that the host lets through"
    for word in ("Traceback", "app.py"):
        assert word not in ends[1]["error"].get("message", "")


@pytest.mark.contract("EVT-008")
def test_an_error_of_the_server_reaches_the_agent_unchanged_and_the_record_without_its_stack_trace(
    tmp_path: Path,
) -> None:
    error = {"code": -32000, "message": TRACEBACK, "data": {"trace": TRACEBACK}}
    setup = Shim(tmp_path, "notes", fake_server(tools={"fail": {"error": error}}))
    (reply,) = setup.run(("fail", {}))
    assert reply["error"] == error
    (end,) = setup.events.events_of("tool_call_end")
    assert (end["status"], end["error"]["class"], end["error"]["code"]) == ("ERROR", "upstream_error", -32000)
    assert end["error"]["class"] in ERROR_CLASSES
    assert "Traceback" not in end["error"].get("message", "")
    assert "app.py" not in end["error"].get("message", "")


@pytest.mark.contract("EVT-009")
def test_run_end_counts_what_happened(adapter: Adapter, play: Play) -> None:
    adapter.need(TOOL_FAILURES)
    calls = [("echo", {}), ("delete_all", {"n": 1}), ("echo", {}), ("delete_all", {"n": 2}), ("fail", {})]
    played = play("deny_above_allow.yaml", *calls, failing={"fail": "no"})
    assert played.actions == ["ALLOW", "BLOCK", "ALLOW", "BLOCK", "ALLOW"]
    summary = played.run_end["summary"]
    assert (summary["calls_total"], summary["calls_allowed"], summary["calls_blocked"]) == (5, 3, 2)
    assert (summary["calls_throttled"], summary["errors_total"]) == (0, 1)
    assert summary["duration_ms"] >= 0
    assert played.run_end["status"] == "SUCCEEDED"


@pytest.mark.contract("EVT-009")
def test_throttled_calls_are_counted_apart(play: Play) -> None:
    summary = play("throttle_two.yaml", *[("search", {"n": n}) for n in range(5)]).run_end["summary"]
    assert (summary["calls_total"], summary["calls_allowed"], summary["calls_throttled"]) == (5, 2, 3)
    assert summary["calls_blocked"] == 0


@pytest.mark.contract("EVT-008")
def test_an_error_says_whether_the_same_call_may_succeed_later(tmp_path: Path) -> None:
    tools: dict[str, dict[str, object]] = {
        "wrong": {"error": {"code": -32602, "message": "invalid params"}},
        "broken": {"error": {"code": -32603, "message": "internal error"}},
        "busy": {"error": {"code": 429, "message": "too many"}},
        "fails": {"is_error": "no such file"},
        "silent": {"never": True},
        "dies": {"crash": {"exit": 3, "when": "before"}},
    }
    setup = Shim(tmp_path, "notes", fake_server(tools=tools), env={"SUB_TIMEOUT_MS": "300"})
    with setup.start() as agent:
        agent.initialize()
        for tool in ("wrong", "broken", "busy", "fails"):
            agent.call(tool)
        agent.start_call("silent")
        setup.events.wait_for(lambda event: event["type"] == "tool_call_end" and event["status"] == "TIMEOUT")
        agent.start_call("dies")
        setup.events.wait_type("run_end")
    ends = {end["call"]["tool_name"]: end["error"] for end in setup.events.events_of("tool_call_end")}
    assert {tool: (error["class"], error["retryable"]) for tool, error in ends.items()} == {
        "wrong": ("upstream_error", False),
        "broken": ("upstream_error", True),
        "busy": ("upstream_error", True),
        "fails": ("upstream_error", False),
        "silent": ("timeout", True),
        "dies": ("transport", True),
    }


@pytest.mark.contract("EVT-002")
def test_a_call_says_its_timeout_where_there_is_one(tmp_path: Path) -> None:
    limited = Shim(tmp_path, "limited", fake_server(), env={"SUB_TIMEOUT_MS": "20000"})
    limited.run(("echo", {}))
    free = Shim(tmp_path, "free", fake_server())
    free.run(("echo", {}))
    assert [start["call"]["timeout_ms"] for start in limited.events.events_of("tool_call_start")] == [20_000]
    assert all("timeout_ms" not in start["call"] for start in free.events.events_of("tool_call_start"))
