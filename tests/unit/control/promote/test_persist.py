"""`sub promote --persist` as a person runs it: what is shown, what is written, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness.command_line import stored
from harness.ledger import EventMaker
from harness.promoting import Promoting, bundle
from subluminal.contracts.canonical import args_hash
from subluminal.contracts.errors import ConfigError
from subluminal.contracts.history import RecordedCall, RecordedRun
from subluminal.contracts.identity import Identity
from subluminal.control.promote.persisting import propose, write
from subluminal.control.promote.policies import Decided, refuse_organisation
from subluminal.control.promote.wish import CannotPromote, Recorded, Wish
from subluminal.policy.compile.bundle import compile_bundle
from subluminal.policy.edit.changes import Change, with_promotes

ON_MAIN = "{tool_name: {glob: [push]}, args: {key_equals: {branch: main}}}"
DENY = f"{{rule_id: no-main, kind: deny, match: {ON_MAIN}, effect: {{action: BLOCK}}}}"
BUDGET = "{rule_id: few, kind: budget, match: {}, effect: {budget: {scope: run, limit_calls: 3, on_exceed: BLOCK}}}"


Called = tuple[str, dict[str, Any], str]


def recorded_home(tmp_path: Path, policy: str, calls: list[Called], *, inspected: bool = True) -> Promoting:
    """A home whose ledger holds one run under this policy: (tool, arguments, what was decided)."""
    home = Promoting(tmp_path, policy)
    snapshot = compile_bundle(policy.encode(), "p.yaml")
    ref = {"policy_id": "mine", "policy_version": snapshot["version"], "policy_hash": snapshot["policy_hash"]}
    maker = EventMaker("run-a", "shim-a")
    lines = [maker.run_start(policy=ref)]
    for tool, args, rule_id in calls:
        start = json.loads(maker.start(tool, "store", preview=json.dumps(args)))
        maker.reference["args_hash"] = start["call"]["args_hash"] = args_hash(args) if inspected else ""
        if not inspected:
            start["call"]["preview"] = {"truncated": True}
        lines.append(json.dumps(start).encode())
        members: dict[str, Any] = {"policy": ref, "rule_id": rule_id or None}
        lines.append(maker.decision("BLOCK" if rule_id else "ALLOW", **members))
        error = {"error": {"class": "policy_block", "message": "refused"}} if rule_id else {}
        lines.append(maker.end("ERROR" if rule_id else "OK", **error))
    stored(tmp_path / "sub", [*lines, maker.run_end()])
    return home


CALLS: list[Called] = [
    ("push", {"branch": "main"}, "no-main"),
    ("push", {"branch": "mine"}, ""),
    ("push", {"branch": "main", "force": True}, "no-main"),
    ("pull", {}, ""),
]


def test_what_it_would_change_is_shown_and_only_then_written(tmp_path: Path) -> None:
    home = recorded_home(tmp_path, bundle(DENY), CALLS)
    before = home.policy.read_bytes()
    seen = home.promote("shim-a-1", "--persist", "--dry-run")
    assert home.policy.read_bytes() == before
    assert seen["rule"]["match"]["args"] == {"key_equals": {"branch": "main"}}
    assert seen["above"] == "no-main" and seen["tests"] == 0
    assert [change["rule_id"] for change in seen["diff"] if change["direction"] == "loosens"] == [
        seen["rule"]["rule_id"]
    ]
    past = seen["past"]
    assert (past["calls"], past["newly_allowed_total"], past["newly_refused_total"], past["unknown"]) == (4, 2, 0, 0)
    assert {example["call_id"] for group in past["newly_allowed"] for example in group["examples"]} == {
        "shim-a-1",
        "shim-a-3",
    }
    text = home.sub("promote", "shim-a-1", "--persist", "--dry-run").stdout
    for said in ("+  - rule_id: allow-store-push", "-version: '1.4'", "2 calls would have been let through", "loosens"):
        assert said in text, text
    asked = home.sub("promote", "shim-a-1", "--persist")
    assert asked.returncode == 2 and "Nobody can be asked" in asked.stderr
    assert home.policy.read_bytes() == before
    written = home.promote("shim-a-1", "--persist", "--yes", "--test")
    after = home.policy.read_text()
    assert "# Promoted by" in after and "version: '1.5'" in after and f"- {DENY}\n" in after
    assert written["rule"]["rule_id"] == "allow-store-push"
    tests = home.sub("policy", "test", str(home.policy))
    assert tests.returncode == 0 and "1 test: 1 passed" in tests.stderr, tests.stderr
    assert "lets the call through as it is now" in home.refused_promote("shim-a-1", "--persist", "--yes")
    show = home.sub("show", "run-a").stdout
    assert "promoted call shim-a-1" in show and str(home.policy) in show
    (run,) = (json.loads(line) for line in home.sub("runs", "--json").stdout.splitlines())
    assert run["status"] == "SUCCEEDED" and run["ended_at"] < "2024", "the run is not longer for it"


def test_a_limit_a_dedupe_and_a_deny_for_good(tmp_path: Path) -> None:
    home = recorded_home(tmp_path, bundle(BUDGET), [("push", {"n": n}, "few" if n > 3 else "") for n in range(1, 5)])
    assert home.promote("shim-a-4", "--persist", "--yes")["limits"] == {"limit_calls": 6}
    assert "limit_calls: 6" in home.policy.read_text()
    home.sub("query")  # the daemon has taken in what the first promotion recorded
    told = home.promote("shim-a-1", "--deny", "--persist", "--yes")
    assert told["past"]["newly_refused_total"] == 1
    rules = compile_bundle(home.policy.read_bytes(), "p.yaml")["rules"]
    assert [(rule["rule_id"], rule["kind"]) for rule in rules] == [("few", "budget"), ("refuse-store-push", "deny")]
    once = "{rule_id: once, kind: dedupe, match: {}, effect: {dedupe: {scope: run, window: 1h, on_duplicate: BLOCK}}}"
    (tmp_path / "more").mkdir()
    home = recorded_home(tmp_path / "more", bundle(once), [("push", {"n": 1}, ""), ("push", {"n": 1}, "once")])
    assert home.promote("shim-a-2", "--persist", "--yes")["rule"]["effect"]["override"] == ["dedupe"]


def test_arguments_that_were_not_inspected_are_not_guessed(tmp_path: Path) -> None:
    deny = "{rule_id: none, kind: deny, match: {}, effect: {action: BLOCK}}"
    home = recorded_home(tmp_path, bundle(deny), [("push", {}, "none")], inspected=False)
    told = home.refused_promote("shim-a-1", "--persist", "--yes")
    assert "the record has none of its arguments" in told and "--any-args" in told
    assert "args" not in home.promote("shim-a-1", "--persist", "--yes", "--any-args")["rule"]["match"]


def test_masked_and_long_values_are_not_compared_and_it_is_said(tmp_path: Path) -> None:
    deny = "{rule_id: none, kind: deny, match: {}, effect: {action: BLOCK}}"
    home = recorded_home(tmp_path, bundle(deny), [("push", {"to": "a", "text": "x" * 300}, "none")])
    told = home.promote("shim-a-1", "--persist", "--dry-run")
    assert told["rule"]["match"]["args"] == {"has_keys": ["text"], "key_equals": {"to": "a"}}
    assert told["notes"] == ["text is 300 characters long: any value of it passes"]


def recorded(args: dict[str, Any]) -> Recorded:
    call = RecordedCall(
        "c-1", "store", "push", args_hash(args), 1_000, 1, args_preview=json.dumps(args), action="BLOCK"
    )
    run = RecordedRun(Identity("run-a", "a", "claude", "dev", None, None), [call], frozenset())
    known = {"policy": {"policy_id": "mine", "policy_hash": "x"}, "rule_id": "no-main", "reason_code": "DENYLIST_MATCH"}
    return Recorded(run, call, known)


def test_a_policy_that_somebody_changed_meanwhile_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text(bundle(DENY))
    proposal = propose(recorded({"branch": "main"}), Wish(), str(path), add_test=True)
    path.write_text(bundle(DENY) + "# mine\n")
    with pytest.raises(ConfigError, match="changed by somebody else"):
        write(proposal)
    assert path.read_text() == bundle(DENY) + "# mine\n" and list(tmp_path.iterdir()) == [path]


def test_another_policy_than_the_one_that_decided_is_not_changed(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text(bundle(DENY).replace("policy_id: mine", "policy_id: other"))
    with pytest.raises(CannotPromote, match="is policy other; the call was decided by mine"):
        propose(recorded({"branch": "main"}), Wish(), str(path), add_test=False)


def test_an_organisations_policy_is_loosened_by_nobody_here() -> None:
    snapshot = {**compile_bundle(bundle(DENY).encode(), "p.yaml"), "owner": "security@example.com"}
    decided = Decided("organisation", snapshot, "/etc/subluminal/policy.yaml")
    with pytest.raises(CannotPromote, match=r"belongs to your organisation \(security@example.com\)"):
        refuse_organisation(decided, deny=False, persist=False)
    with pytest.raises(CannotPromote, match="is changed by its owner alone"):
        refuse_organisation(decided, deny=True, persist=True)
    rule = {"rule_id": "x", "kind": "allow", "match": {}, "effect": {"action": "ALLOW"}}
    promote = {"promote_id": "x", "policy_id": "mine", "summary": "s", "rule_id": "no-main", "rule": rule}
    for origin, rules in (("organisation", 1), ("user", 2)):
        (found,) = with_promotes([(origin, snapshot)], [promote])
        assert len(found["rules"]) == rules, "a shim believes no file that says otherwise"
    assert Change("x", "mine", "s", None, {**rule, "kind": "deny"}).tightens
