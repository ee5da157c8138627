"""Refusals in the words of HTTP, policies that change, runs that end, and secrets that stay here."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.adapters.in_process import as_its_own_process
from harness.http_api import TRACKER, HttpProxy, http_proxy
from harness.shim import load_policy
from harness.state_holder import holding
from harness.tracker_server import Tracker, tracker_server
from harness.waiting import wait_for

TOKEN = "tok-5e5e5e5e5e5e5e5e5e5e5e"
KEY = "key-7a7a7a7a7a7a7a7a7a7a7a"


@pytest.fixture
def tracker() -> Iterator[Tracker]:
    with tracker_server() as server:
        yield server


def policy(*rules: dict[str, Any]) -> dict[str, Any]:
    top = {"policy_id": "p", "version": "1.0.0", "mode": "guardrails"}
    return {**top, "defaults": {"decision_on_error": "BLOCK"}, "selectors": {}, "rules": list(rules)}


def deny(tool: str, **effect: Any) -> dict[str, Any]:
    told = {"action": "BLOCK", "reason_code": "NOT_HERE", "message": f"{tool} is not for you."}
    match = {"tool_name": {"glob": [tool]}}
    return {"rule_id": "no", "kind": "deny", "match": match, "effect": {**told, **effect}}


def test_throttled_is_429_with_the_seconds_to_wait(tmp_path: Path, tracker: Tracker) -> None:
    bundle = load_policy("throttle_two.yaml")
    bundle["rules"][0]["match"]["tool_name"]["glob"] = ["get_*"]
    bundle["rules"][0]["effect"]["rate_limit"]["backoff_ms"] = 2_001
    with http_proxy(tmp_path, TRACKER, bundle, upstream=tracker.url) as door:
        answers = [door.ask("GET", "/user") for _ in range(3)]
    assert [answer.status for answer in answers] == [200, 200, 429]
    refused = answers[2]
    assert refused.header("retry-after") == "3"
    assert refused.header("content-type") == "application/json"
    told = refused.json()
    assert (told["error"]["code"], told["subluminal"]["backoff_ms"]) == (-32082, 2_001)
    assert len(tracker.heard) == 2


def test_a_hint_is_403_and_says_what_to_do(tmp_path: Path, tracker: Tracker) -> None:
    rule = deny("delete_repo", action="REJECT_WITH_HINT", hint_text="Archive it.", suggested_args={"archived": True})
    with http_proxy(tmp_path, TRACKER, policy(rule), upstream=tracker.url) as door:
        answer = door.ask("DELETE", "/repos/ada/engine")
        head = door.ask("HEAD", "/repos/ada/engine")
    assert answer.status == 403 and answer.json()["error"]["code"] == -32083
    assert answer.json()["subluminal"]["hint"]["suggested_args"]["archived"] is True
    assert "Archive it." in answer.json()["error"]["message"]
    assert head.status == 200


def test_a_terminated_run_is_over_for_every_operation(tmp_path: Path, tracker: Tracker) -> None:
    budget = {"scope": "run", "limit_calls": 1, "on_exceed": "TERMINATE_RUN"}
    rule = {"rule_id": "one", "kind": "budget", "match": {}, "effect": {"budget": budget}}
    with http_proxy(tmp_path, TRACKER, policy(rule), upstream=tracker.url) as door:
        door.headers = {"Subluminal-Run-Id": "run-1"}
        statuses = [door.ask("GET", target).status for target in ("/user", "/user", "/repos/ada/engine", "/nowhere")]
        last = door.ask("GET", "/user").json()
        door.headers = {"Subluminal-Run-Id": "run-2"}
        assert door.ask("GET", "/user").status == 200, "another run has its own"
    assert statuses == [200, 403, 403, 403]
    assert last["error"]["code"] == -32084 and last["subluminal"]["action"] == "TERMINATE_RUN"
    ends = {event["run_id"]: event["run"]["status"] for event in door.events.events_of("run_end")}
    assert ends == {"run-1": "TERMINATED", "run-2": "SUCCEEDED"}
    assert len(tracker.heard) == 2


def test_a_policy_that_changes_holds_from_then_on(tmp_path: Path, tracker: Tracker) -> None:
    with http_proxy(tmp_path, TRACKER, policy(), upstream=tracker.url) as door:
        assert door.ask("GET", "/user").status == 200
        (tmp_path / "policy.json").write_text(json.dumps(policy(deny("get_me"))))
        wait_for(lambda: door.ask("GET", "/user").status, enough=lambda status: status == 403, what="the new policy")
        (tmp_path / "policy.json").write_text("{")
        wait_for(lambda: [e for e in door.events.events_of("policy_loaded") if not e["load"]["ok"]] or _ask(door))
        assert door.ask("GET", "/user").status == 403, "one that does not load is not no policy"


def _ask(door: HttpProxy) -> None:
    door.ask("GET", "/user")


def test_the_breaker_counts_what_the_server_refuses(tmp_path: Path, tracker: Tracker) -> None:
    breaker = {"scope": "tool", "error_threshold": 2, "window_ms": 600_000, "on_trip": "BLOCK"}
    rule = {"rule_id": "b", "kind": "breaker", "match": {}, "effect": {"breaker": breaker}}
    with http_proxy(tmp_path, TRACKER, policy(rule), upstream=tracker.url) as door:
        statuses = [door.ask("GET", f"/repos/ada/engine/issues/{number}").status for number in (97, 98, 99, 1)]
    assert statuses == [404, 404, 403, 403]
    error = door.events.events_of("tool_call_end")[0]["error"]
    assert (error["class"], error["code"], error["retryable"]) == ("upstream_error", 404, False)


def test_a_run_whose_state_another_process_holds_does_not_hold_up_the_others(tmp_path: Path, tracker: Tracker) -> None:
    budget = {"scope": "run", "limit_calls": 10, "on_exceed": "BLOCK"}
    rule = {"rule_id": "ten", "kind": "budget", "match": {}, "effect": {"budget": budget}}
    with http_proxy(tmp_path, TRACKER, policy(rule), upstream=tracker.url) as door:
        door.headers = {"Subluminal-Run-Id": "held"}
        assert door.ask("GET", "/user").status == 200
        with as_its_own_process(tmp_path, {}), holding("held") as holder:
            waiting = door.connect()
            waiting.send(
                f"GET /user HTTP/1.1\r\nHost: 127.0.0.1:{door.port}\r\nSubluminal-Run-Id: held\r\n\r\n".encode()
            )
            door.headers = {"Subluminal-Run-Id": "free"}
            assert door.ask("GET", "/repos/ada/engine").status == 200
            assert [target for _, target, _, _ in tracker.heard] == ["/api/v3/user", "/api/v3/repos/ada/engine"]
            holder.let_go()
            assert waiting.answer().status == 200
            waiting.close()


def test_what_is_injected_is_seen_by_the_server_and_by_nobody_else(tmp_path: Path, tracker: Tracker) -> None:
    env = {"TRACKER_TOKEN": TOKEN, "TRACKER_KEY": KEY}
    options = ("--bearer-env", "TRACKER_TOKEN", "--header-env", "X-Api-Key=TRACKER_KEY")
    with http_proxy(
        tmp_path, TRACKER, "allow_all.yaml", upstream=tracker.url, options=options, env=env, stderr=subprocess.PIPE
    ) as door:
        answer = door.ask("GET", "/user", Authorization="Bearer of-the-client", X_API_KEY="mine", X_Test_Answer="echo")
        door.ask("GET", f"/repos/ada/{TOKEN}")
        door.ask("GET", "/nowhere", X_Test_Answer="echo")
    _, _, headers, _ = tracker.heard[0]
    assert (headers["authorization"], headers["x-api-key"]) == (f"Bearer {TOKEN}", KEY)
    assert "x-said" not in answer.headers, "a header that repeats it goes no further"
    assert door.process.stderr is not None
    said = door.process.stderr.read()
    for secret in (TOKEN, KEY):
        assert secret.encode() not in door.events.raw()
        assert secret.encode() not in said


def test_a_binding_of_the_servers_name_is_injected_where_it_was_confirmed(tmp_path: Path, tracker: Tracker) -> None:
    home = tmp_path / "sub"
    home.mkdir(mode=0o700)
    binding = '{ inject_as = "header:X-Api-Key", secret_ref = "TRACKER_KEY", source = "env" }'
    settings = f'[servers.tracker]\nsecret_bindings = [{binding}]\nconfirmed = [{{ url = "{tracker.url}" }}]\n'
    (home / "config.toml").write_text(settings)
    with http_proxy(tmp_path, TRACKER, "allow_all.yaml", upstream=tracker.url, env={"TRACKER_KEY": KEY}) as door:
        assert door.ask("GET", "/user").status == 200
    assert tracker.heard[0][2]["x-api-key"] == KEY
    (noted,) = door.events.events_of("secret_injection")
    assert noted["secret"]["success"] and KEY.encode() not in door.events.raw()


def test_another_user_needs_the_token(tmp_path: Path, tracker: Tracker) -> None:
    options, env = ("--token-env", "DOOR_TOKEN"), {"DOOR_TOKEN": "d" * 32}
    with http_proxy(tmp_path, TRACKER, "allow_all.yaml", upstream=tracker.url, options=options, env=env) as door:
        assert door.ask("GET", "/user").status == 403
        assert door.ask("GET", "/user", Subluminal_Token="d" * 32).status == 200
    ((_, _, headers, _),) = tracker.heard
    assert "subluminal-token" not in headers
