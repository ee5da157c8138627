"""How wide a promote is: what the rule that it makes compares, and what it says of the rest."""

from __future__ import annotations

import json
from typing import Any

import pytest

from harness.promoting import bundle
from subluminal.contracts.canonical import args_hash
from subluminal.contracts.history import RecordedCall, RecordedRun
from subluminal.contracts.identity import Identity
from subluminal.control.promote.making import Made, make
from subluminal.control.promote.wish import CannotPromote, Recorded, Wish
from subluminal.policy.compile.bundle import compile_bundle
from subluminal.policy.edit.changes import with_promotes

ALL = "{rule_id: none, kind: deny, match: {}, effect: {action: BLOCK}}"
FEW = "{rule_id: few, kind: budget, match: {}, effect: {budget: {scope: run, limit_calls: 1, on_exceed: BLOCK}}}"


def made(args: dict[str, Any], *rules: str, wish: Wish | None = None, preview: str | None = None) -> Made:
    """A promote of a call that the first of these rules refused."""
    snapshot = compile_bundle(bundle(*rules).encode(), "p.yaml")
    call = RecordedCall(
        "c-1", "store", "push", args_hash(args), 1_000, 1, args_preview=preview or json.dumps(args), action="BLOCK"
    )
    run = RecordedRun(Identity("run-a", "a", "claude", "dev", None, None), [call], frozenset())
    known = {"rule_id": snapshot["rules"][0]["rule_id"], "reason_code": "DENYLIST_MATCH"}
    return make(Recorded(run, call, known), wish or Wish(), snapshot, "promote-1", {})


@pytest.mark.parametrize("args", [{}, {"a": None}, {"a": []}, {"a": {}}, {"a": [["x"]]}], ids=json.dumps)
def test_where_nothing_can_be_compared_any_arguments_pass_on_request_only(args: dict[str, Any]) -> None:
    with pytest.raises(CannotPromote, match="no arguments that a rule could compare") as refused:
        made(args, ALL)
    assert "--any-args" in (refused.value.hint or "")
    rule = made(args, ALL, wish=Wish(any_args=True)).change.rule
    assert rule is not None and "args" not in rule["match"]


def test_what_is_empty_beside_what_is_compared_is_said_to_pass() -> None:
    promote = made({"to": "a", "note": None, "list": [], "deep": {"er": [["x"]]}}, ALL)
    assert promote.change.rule is not None
    assert promote.change.rule["match"]["args"] == {"key_equals": {"to": "a"}}
    said = "is null, empty, or a list in a list: any value of it passes"
    assert promote.notes == [f"{path} {said}" for path in ("note", "list", "deep.er")]


def test_denies_below_the_one_that_refused_are_not_passed_by_with_other_arguments() -> None:
    etc = "{rule_id: etc, kind: deny, match: {args: {key_glob: {path: ['/etc/*']}}}, effect: {action: BLOCK}}"
    rm = "{rule_id: rm, kind: deny, match: {args: {key_contains: {text: [rm]}}}, effect: {action: BLOCK}}"
    forced = "{rule_id: forced, kind: deny, match: {args: {key_equals: {force: true}}}, effect: {action: BLOCK}}"
    pulled = "{rule_id: pulled, kind: deny, match: {tool_name: {glob: [pull]}}, effect: {action: BLOCK}}"
    promote = made({"path": "/etc/motd", "text": "hello", "as": "me"}, etc, rm, forced, pulled)
    assert promote.change.rule is not None
    assert promote.change.rule["match"]["args"] == {
        "missing_keys": ["force"],
        "key_equals": {"path": "/etc/motd", "text": "hello"},
    }
    assert promote.notes == ["what it lets through is not asked about by the denies below it: rm, forced"]


def test_a_masked_value_is_never_compared_whatever_its_key_is_called() -> None:
    args = {"api.key": "sk-secret", "to": "a"}
    promote = made(args, ALL, preview='{"api.key":"[REDACTED:key]","to":"a"}')
    assert promote.change.rule is not None
    assert promote.change.rule["match"]["args"] == {"has_keys": ["api\\.key"], "key_equals": {"to": "a"}}
    assert promote.notes == ["api.key is masked in the record: any value of it passes"]


def test_a_limit_that_no_state_could_hold_is_refused() -> None:
    with pytest.raises(CannotPromote, match="does not raise limit_calls") as refused:
        made({"n": 1}, FEW, wish=Wish(limit=10**30))
    assert "Limits go up to" in (refused.value.hint or "")


def test_a_repository_with_the_id_of_the_users_policy_does_not_have_that_one_loosened() -> None:
    users, repositorys = (compile_bundle(bundle(FEW).encode(), "p.yaml") for _ in range(2))
    promote = {"promote_id": "p", "policy_id": "mine", "summary": "s", "rule_id": "few", "limits": {"limit_calls": 9}}
    policies = [("user", users), ("repository", repositorys)]
    for origin in ("user", "repository"):
        found = with_promotes(policies, [{**promote, "origin": origin}])
        limits = [each["rules"][0]["effect"]["budget"]["limit_calls"] for each in found]
        assert limits == [9 if origin == other else 1 for other, _ in policies]
