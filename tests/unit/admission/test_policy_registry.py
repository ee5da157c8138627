"""A compiled policy as a registry: the decisions, state and events of the gate, through the tool-lock stage."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import pytest

from harness import places
from harness.in_process import isolate
from harness.shim import FIXTURE_POLICIES, write_policy
from harness.sink import EventFile
from harness.waiting import wait_for
from subluminal.adapters.tool_lock import (
    MiddlewareRequest,
    ToolAdmissionDeniedError,
    ToolLockAdapterOptions,
    create_tool_lock_adapter,
)
from subluminal.admission import (
    PolicyRegistry,
    ReadOnlyState,
    RuleVersionMismatch,
    SubluminalDecision,
    bind_call,
    parse_denial_reason,
    registry_from_policy,
    serialize_denial_reason,
)
from subluminal.policy.compile.snapshot import load_snapshot

EXAMPLE = places.ROOT / "examples" / "policy.yaml"


@pytest.fixture
def events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> EventFile:
    return isolate(tmp_path, monkeypatch)


def rules(*given: dict[str, Any], mode: str = "guardrails") -> dict[str, Any]:
    defaults = {"decision_on_error": "BLOCK"}
    whole = [{"enabled": True, "severity": "warn", **each} for each in given]
    return {"policy_id": "p", "version": "1", "mode": mode, "defaults": defaults, "selectors": {}, "rules": whole}


def request(tool: str, args: bytes | None = b"{}", **more: Any) -> MiddlewareRequest:
    return MiddlewareRequest("ada", tool, None, bind_call(server_name="post", args=args), **more)


def call(registry: PolicyRegistry, tool: str, args: bytes | None = b"{}", result: Any = "done", **more: Any) -> Any:
    async def rest() -> Any:
        if isinstance(result, BaseException):
            raise result
        return result

    stage = create_tool_lock_adapter(registry)

    async def run() -> Any:
        return await stage(request(tool, args, **more), registry.watched(rest))

    return asyncio.run(run())


def refusal(registry: PolicyRegistry, tool: str, args: bytes | None = b"{}", **more: Any) -> SubluminalDecision:
    with pytest.raises(ToolAdmissionDeniedError) as caught:
        call(registry, tool, args, **more)
    assert isinstance(caught.value.reason, SubluminalDecision)
    return caught.value.reason


def test_a_policy_decides_and_the_gate_records(events: EventFile) -> None:
    registry = registry_from_policy(FIXTURE_POLICIES / "deny_above_allow.yaml")
    assert call(registry, "send", b'{"to":"Ada"}') == "done"
    reason = refusal(registry, "delete_letters")
    registry.close()

    assert (reason.action, reason.code, reason.rule_id, reason.reason_code) == (
        "BLOCK",
        -32081,
        "no-deletes",
        "DESTRUCTIVE",
    )
    assert "Deleting is not allowed" in reason.message
    data = json.loads(reason.data)["subluminal"]
    assert (data["run_id"], data["tool_name"], data["server_name"]) == ("run-1", "delete_letters", "post")
    assert parse_denial_reason(serialize_denial_reason(reason)) == reason
    assert events.types() == [
        *("run_start", "policy_loaded"),
        *("tool_call_start", "tool_call_decision", "tool_call_end"),
        *("tool_call_start", "tool_call_decision", "tool_call_end"),
        "run_end",
    ]
    starts = events.events_of("tool_call_start")
    assert {start["call"]["transport"] for start in starts} == {"in_process"}
    assert json.loads(starts[0]["call"]["preview"]["args_preview"]) == {"to": "Ada"}
    assert [end["status"] for end in events.events_of("tool_call_end")] == ["OK", "ERROR"]
    (summary,) = (event["run"]["summary"] for event in events.events_of("run_end"))
    assert (summary["calls_total"], summary["calls_allowed"], summary["calls_blocked"]) == (2, 1, 1)


def test_the_version_hash_is_the_policys_and_pins_it(events: EventFile, tmp_path: Path) -> None:
    path = FIXTURE_POLICIES / "allow_all.yaml"
    registry = registry_from_policy(path)
    expected = "sha256:" + load_snapshot(str(path))["policy_hash"]
    assert registry.version_hash == registry.compute_version_hash() == expected
    assert call(registry, "send", rule_version=expected) == "done"
    with pytest.raises(ToolAdmissionDeniedError) as caught:
        call(registry, "send", rule_version="sha256:" + "0" * 64)
    assert caught.value.reason == RuleVersionMismatch(expected, "sha256:" + "0" * 64)
    from_snapshot = registry_from_policy(load_snapshot(str(path)))
    assert from_snapshot.version_hash == expected
    registry.close()
    from_snapshot.close()


def test_every_action_of_the_core_travels_in_the_denial(events: EventFile) -> None:
    registry = registry_from_policy(EXAMPLE)
    for tool in ("search", "search", "add_note", "add_note", "export_all"):
        call(registry, tool)
    throttled = refusal(registry, "search")
    assert (throttled.action, throttled.code) == ("THROTTLE", -32082)
    assert json.loads(throttled.data)["subluminal"]["backoff_ms"] == 500
    hinted = refusal(registry, "add_note")
    assert (hinted.action, hinted.code) == ("REJECT_WITH_HINT", -32083)
    assert json.loads(hinted.data)["subluminal"]["hint"]["hint_text"] == "Put the rest into one note."
    ended = refusal(registry, "export_all")
    assert (ended.action, ended.code) == ("TERMINATE_RUN", -32084)
    assert refusal(registry, "search").reason_code == "RUN_TERMINATED"
    registry.close()
    assert events.events_of("run_end")[0]["run"]["status"] == "TERMINATED"


def test_arguments_that_are_not_known_fall_to_decision_on_error(events: EventFile) -> None:
    by_args = {
        "rule_id": "no-root",
        "kind": "deny",
        "match": {"args": {"has_keys": ["force"]}},
        "effect": {"action": "BLOCK"},
    }
    registry = registry_from_policy(write_policy(Path.cwd(), rules(by_args)))
    assert call(registry, "rm", b'{"path":"/tmp"}') == "done"
    assert refusal(registry, "rm", b'{"force":true}').rule_id == "no-root"
    assert refusal(registry, "rm", None).reason_code == "UNINSPECTED_ARGS"
    assert refusal(registry, "rm", b'{"a":1,"a":2}').reason_code == "AMBIGUOUS_MESSAGE"
    with pytest.raises(ToolAdmissionDeniedError):
        unbound = MiddlewareRequest("ada", "rm", {"path": "/tmp"}, ReadOnlyState())
        asyncio.run(create_tool_lock_adapter(registry)(unbound, lambda: asyncio.sleep(0)))  # type: ignore[arg-type]
    registry.close()


def test_how_a_call_ended_is_recorded_when_its_next_is_watched(events: EventFile) -> None:
    registry = registry_from_policy(FIXTURE_POLICIES / "allow_all.yaml")
    call(registry, "good")
    with pytest.raises(LookupError):
        call(registry, "bad", result=LookupError("no such letter"))
    with pytest.raises(asyncio.CancelledError):
        call(registry, "stopped", result=asyncio.CancelledError())

    def broken() -> Awaitable[Any]:
        raise ValueError("before it began")

    with pytest.raises(ValueError):
        create_tool_lock_adapter(registry)(request("early"), registry.watched(broken))
    create_tool_lock_adapter(registry)(request("forgotten"), lambda: asyncio.sleep(0)).close()  # type: ignore[attr-defined]
    registry.close()
    ends = {event["call"]["tool_name"]: event for event in events.events_of("tool_call_end")}
    assert {tool: end["status"] for tool, end in ends.items()} == {
        "good": "OK",
        "bad": "ERROR",
        "stopped": "CANCELLED",
        "early": "ERROR",
        "forgotten": "CANCELLED",
    }
    assert ends["bad"]["error"]["message"] == "no such letter"
    assert ends["forgotten"]["error"]["message"] == "its outcome was not watched"


def test_a_changed_policy_is_in_force_and_a_broken_one_is_not(events: EventFile, capsys: Any) -> None:
    path = Path.cwd() / "policy.json"
    path.write_text(json.dumps(rules()))
    registry = registry_from_policy(path)
    assert call(registry, "delete_it") == "done"
    first = registry.version_hash
    deny = {
        "rule_id": "no",
        "kind": "deny",
        "match": {"tool_name": {"glob": ["delete_*"]}},
        "effect": {"action": "BLOCK"},
    }
    path.write_text(json.dumps(rules(deny)))
    wait_for(lambda: registry.version_hash != first, what="the new policy")
    assert refusal(registry, "delete_it").rule_id == "no"
    second = registry.version_hash
    path.write_text("{")
    wait_for(
        lambda: registry.version_hash == second and len(events.events_of("policy_loaded")) == 3,
        what="the third loading",
    )
    assert refusal(registry, "delete_it").rule_id == "no", "the last good policy stays in force"
    assert "policy.json" in capsys.readouterr().err
    registry.close()
    assert [event["load"]["ok"] for event in events.events_of("policy_loaded")] == [True, True, False]


def test_a_policy_that_never_loaded_refuses_everything(events: EventFile) -> None:
    path = Path.cwd() / "policy.json"
    path.write_text("{")
    registry = registry_from_policy(path)
    assert refusal(registry, "read").reason_code == "POLICY_INVALID"
    registry.close()


def test_budgets_are_exact_with_many_threads(events: EventFile) -> None:
    budget = {
        "rule_id": "fifty",
        "kind": "budget",
        "match": {},
        "effect": {"budget": {"scope": "run", "limit_calls": 50, "on_exceed": "BLOCK"}},
    }
    registry = registry_from_policy(write_policy(Path.cwd(), rules(budget)))
    seen: list[int] = []
    options = ToolLockAdapterOptions(on_event=lambda event: seen.append(event.at))
    stage = create_tool_lock_adapter(registry, options)
    admitted: list[int] = []

    def many() -> None:
        for _ in range(25):
            stage(request("t"), lambda: admitted.append(1))  # type: ignore[arg-type,return-value]

    threads = [threading.Thread(target=many) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    registry.close()
    assert len(admitted) == 50
    assert sorted(seen) == list(range(1, 151))
    numbers = [event["source"]["seq"] for event in events.events()]
    assert numbers == list(range(1, len(numbers) + 1)), "one producer, one order"


def test_a_forked_process_is_a_producer_of_its_own(events: EventFile) -> None:
    program = (
        "import os, sys\n"
        "from subluminal.admission import AdmissionRequest, bind_call, evaluate_admission, registry_from_policy\n"
        "registry = registry_from_policy(sys.argv[1])\n"
        "def judge():\n"
        "    state = bind_call(server_name='post', args=b'{}')\n"
        "    request = AdmissionRequest('a', 'search', 'normal', state, registry.version_hash)\n"
        "    return evaluate_admission(request, registry).admitted\n"
        "assert judge()\n"
        "sink = registry._runtime._producer.sink\n"
        "pid = os.fork()\n"
        "assert (sink.fd == -1) == (pid == 0), 'the child let go of the journal'\n"
        "admitted = [judge(), judge()]\n"
        "if pid == 0:\n"
        "    registry.close(); os._exit(0)\n"
        "os.waitpid(pid, 0)\n"
        "assert not judge(), 'the budget is shared with the child'\n"
    )
    policy = str(FIXTURE_POLICIES / "budget_three_calls.yaml")
    subprocess.run([sys.executable, "-c", program, policy], check=True, timeout=60)
    producers = {event["source"]["shim_id"] for event in events.events()}
    assert len(producers) == 2
    numbers = [(event["source"]["shim_id"], event["source"]["seq"]) for event in events.events()]
    assert len(set(numbers)) == len(numbers), "the child does not speak in its parent's name"
    assert events.types().count("run_start") == events.types().count("run_end") == 2
    decisions = [event["decision"]["action"] for event in events.events_of("tool_call_decision")]
    assert sorted(decisions) == ["ALLOW"] * 3 + ["BLOCK"] * 3


def test_the_end_of_the_process_ends_the_run(events: EventFile) -> None:
    program = (
        "import sys\n"
        "from subluminal.admission import AdmissionRequest, bind_call, evaluate_admission, registry_from_policy\n"
        "registry = registry_from_policy(sys.argv[1])\n"
        "evaluate_admission(AdmissionRequest('a', 't', 'normal', bind_call(server_name='s', args=b'{}'),"
        " registry.version_hash), registry)\n"
    )
    subprocess.run([sys.executable, "-c", program, str(FIXTURE_POLICIES / "allow_all.yaml")], check=True, timeout=60)
    assert events.types()[-1] == "run_end"
