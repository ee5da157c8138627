"""`sub promote --session` on real shims: the run obeys at once, no other run does, and every decision says so."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from harness.promoting import Promoting, bundle, refusal, wait_until_let_through
from harness.waiting import wait_for

ON_MAIN = "{tool_name: {glob: [push]}, args: {key_equals: {branch: main}}}"
DENY = f"{{rule_id: no-main, kind: deny, match: {ON_MAIN}, effect: {{action: BLOCK}}}}"


def test_the_repeated_call_goes_through_in_its_run_and_in_no_other(tmp_path: Path) -> None:
    home = Promoting(tmp_path, bundle(DENY))
    main = {"branch": "main", "note": "a"}
    with home.agent("run-a") as one, home.agent("run-b") as other, home.agent("run-a", server="second") as sibling:
        for agent in (one, other, sibling):
            agent.initialize()
        refused = refusal(one.call("push", main))
        assert refusal(other.call("push", main))["rule_id"] == "no-main"
        told = home.promote(refused["call_id"])
        assert (told["scope"], told["above"], told["policy_id"]) == ("session", "no-main", "mine")
        assert told["rule"]["match"]["args"] == {"key_equals": {"branch": "main"}}
        wait_until_let_through(one, "push", {"branch": "main", "note": "b"})
        assert refusal(other.call("push", main))["rule_id"] == "no-main"
        # The rule names the server of the call: another one is not meant.
        assert refusal(sibling.call("push", main))["rule_id"] == "no-main"
        for agent in (one, other, sibling):
            agent.finish()
    through = [row for row in home.calls("run-a") if row["decision"] == "ALLOW"]
    assert {(row["rule_id"], row["reason_code"]) for row in through} == {(told["promote_id"], "PROMOTED")}
    assert refused["call_id"] in through[0]["summary"] and "no-main is set aside" in through[0]["summary"]
    assert home.policy.read_text() == bundle(DENY)
    show = home.sub("show", "run-a").stdout
    assert f"promoted call {refused['call_id']}" in show
    (rule,) = (json.loads(line) for line in home.sub("hints", "--json").stdout.splitlines())
    assert rule["outcomes"]["promoted"] >= 1 and rule["recovery_rate"] in (None, 0.0)
    assert home.sub("verify", "--all").returncode == 0


def test_it_can_be_widened_on_request_only(tmp_path: Path) -> None:
    home = Promoting(tmp_path, bundle("{rule_id: none, kind: deny, match: {}, effect: {action: BLOCK}}"))
    with home.agent("run-a") as agent:
        agent.initialize()
        call_id = refusal(agent.call("push", {"branch": "main", "force": True}))["call_id"]
        narrow = home.promote(call_id, "--dry-run")
        assert narrow["rule"]["match"]["args"] == {"key_equals": {"branch": "main", "force": True}}
        assert "args" not in home.promote(call_id, "--dry-run", "--any-args")["rule"]["match"]
        assert home.promote(call_id, "--dry-run", "--tool", "p*")["rule"]["match"]["tool_name"] == {"glob": ["p*"]}
        assert "does not match push" in home.refused_promote(call_id, "--tool", "log*")
        assert "error" in agent.call("push", {"branch": "main", "force": True}), "a dry run changes nothing"
        home.promote(call_id)
        wait_until_let_through(agent, "push", {"branch": "main", "force": True})
        assert "error" in agent.call("push", {"branch": "main", "force": False})
        home.promote(call_id, "--any-args")
        wait_until_let_through(agent, "push", {"branch": "other"})
        assert "error" in agent.call("pull", {})
        agent.finish()


@pytest.mark.parametrize(
    ("rule", "limits", "let_through"),
    [
        ("{rule_id: r, kind: budget, match: {}, effect: {budget: {scope: run, limit_calls: 2, on_exceed: BLOCK}}}",
         {"limit_calls": 4}, 1),
        ("{rule_id: r, kind: rate_limit, match: {}, effect: {rate_limit: {scope: run, capacity: 2, refill_tokens: 1,"
         " refill_period: 1h, on_limit: THROTTLE, backoff: 1h}}}", {"capacity": 4, "refill_tokens": 2}, 3),
        ("{rule_id: r, kind: breaker, match: {}, effect: {breaker: {scope: run, repeat_threshold: 3, repeat_window: 1h,"
         " on_trip: BLOCK}}}", {"repeat_threshold": 6}, 1),
    ],
    ids=["budget", "rate", "breaker"],
)  # fmt: skip
def test_a_limit_is_raised_and_says_so(tmp_path: Path, rule: str, limits: dict[str, int], let_through: int) -> None:
    home = Promoting(tmp_path, bundle(rule))
    with home.agent("run-a") as agent:
        agent.initialize()
        assert all("result" in agent.call("push", {"n": 1}) for _ in range(2))
        call_id = refusal(agent.call("push", {"n": 1}))["call_id"]
        told = home.promote(call_id)
        assert (told["rule"], told["limits"]) == (None, limits)
        wait_until_let_through(agent, "push", {"n": 1})
        for _ in range(let_through):
            agent.call("push", {"n": 1})
        for _ in range(8):
            last = agent.call("push", {"n": 1})
        refused = refusal(last)
        assert refused["rule_id"] == "r" and "raised rule r" in refused["summary"]
        agent.finish()
    promoted = [row for row in home.calls("run-a") if row["reason_code"] == "PROMOTED"]
    assert promoted and all(row["rule_id"] == told["promote_id"] for row in promoted)


def test_a_limit_is_raised_to_what_was_asked_for(tmp_path: Path) -> None:
    rule = "{rule_id: r, kind: budget, match: {}, effect: {budget: {scope: run, limit_calls: 2, on_exceed: BLOCK}}}"
    home = Promoting(tmp_path, bundle(rule))
    with home.agent("run-a") as agent:
        agent.initialize()
        for _ in range(2):
            agent.call("push")
        call_id = refusal(agent.call("push"))["call_id"]
        assert home.promote(call_id, "--limit", "7", "--dry-run")["limits"] == {"limit_calls": 7}
        assert "does not raise limit_calls" in home.refused_promote(call_id, "--limit", "2")
        agent.finish()


def test_of_a_dedupe_exactly_this_call_is_let_through_again(tmp_path: Path) -> None:
    rule = "{rule_id: once, kind: dedupe, match: {}, effect: {dedupe: {scope: run, window: 1h, on_duplicate: BLOCK}}}"
    home = Promoting(tmp_path, bundle(rule))
    with home.agent("run-a") as agent:
        agent.initialize()
        for number in (1, 2):
            assert "result" in agent.call("push", {"n": number})
        call_id = refusal(agent.call("push", {"n": 1}))["call_id"]
        told = home.promote(call_id)
        assert told["rule"]["effect"]["override"] == ["dedupe"]
        wait_until_let_through(agent, "push", {"n": 1})
        assert refusal(agent.call("push", {"n": 2}))["rule_id"] == "once"
        agent.finish()


def test_a_call_that_was_let_through_can_be_refused_from_now_on(tmp_path: Path) -> None:
    allow = "{rule_id: fine, kind: allow, match: {}, effect: {action: ALLOW}}"
    home = Promoting(tmp_path, bundle(allow))
    with home.agent("run-a") as agent:
        agent.initialize()
        agent.call("push", {"branch": "main"})
        (row,) = home.calls("run-a")
        assert "was let through" in home.refused_promote(row["call_id"])
        told = home.promote(row["call_id"], "--deny")
        assert told["above"] == "fine"
        wait_for(lambda: "error" in agent.call("push", {"branch": "main"}), meanwhile=agent.settle)
        assert "result" in agent.call("push", {"branch": "other"})
        agent.finish()


def test_agents_do_not_approve_themselves(tmp_path: Path) -> None:
    home = Promoting(tmp_path, bundle(DENY))
    with home.agent("run-a") as agent:
        agent.initialize()
        call_id = refusal(agent.call("push", {"branch": "main"}))["call_id"]
        told = home.refused_promote(call_id, SUB_RUN_ID="run-b")
        assert "belongs to run run-b" in told and "A person does that" in told
        assert "belongs to run" in home.refused_promote(call_id, "--persist", "--yes", SUB_RUN_ID="run-b")
        # Without the variable, by the process above it.
        asked = [sys.executable, "-m", "subluminal", "promote", call_id]
        inside = home.sub("run", "--", "env", "-u", "SUB_RUN_ID", *asked)
        assert inside.returncode == 1 and "an agent cannot promote calls" in inside.stderr
        assert refusal(agent.call("push", {"branch": "main"}))["rule_id"] == "no-main"
        agent.finish()


def test_what_cannot_be_promoted_is_said(tmp_path: Path) -> None:
    home = Promoting(tmp_path, bundle(DENY))
    assert "There is no ledger" in home.refused_promote("nothing", code=2)
    with home.agent("run-a") as agent:
        agent.initialize()
        call_id = refusal(agent.call("push", {"branch": "main"}))["call_id"]
        assert "There is no call" in home.refused_promote("nothing", code=2)
        home.sub("kill", "run-a")
        killed = refusal(agent.call("push", {"branch": "main"}))["call_id"]
        assert "its run had been stopped" in home.refused_promote(killed)
        assert "was terminated" in home.refused_promote(call_id)
        agent.finish()


def test_a_promote_that_somebody_has_broken_by_hand_breaks_no_shim(tmp_path: Path) -> None:
    home = Promoting(tmp_path, bundle(DENY))
    with home.agent("run-a") as agent:
        agent.initialize()
        call_id = refusal(agent.call("push", {"branch": "main"}))["call_id"]
        home.promote(call_id)
        (file,) = (tmp_path / "sub" / "run").glob("*.promotes")
        broken = {
            "promote_id": "x",
            "policy_id": "mine",
            "summary": "s",
            "rule_id": "no-main",
            "rule": {"kind": "nonsense"},
        }
        limits = {"promote_id": "y", "policy_id": "mine", "summary": "s", "rule_id": "no-main", "limits": {"a": 1}}
        file.write_text(f"garbage\n{json.dumps(broken)}\n{json.dumps(limits)}\n[1]\n" + file.read_text())
        wait_until_let_through(agent, "push", {"branch": "main"})
        agent.finish()
