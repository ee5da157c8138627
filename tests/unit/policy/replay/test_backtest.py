"""`policy.backtest`: recorded calls judged again, with state, and never guessed."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest

from harness.engine import compiled, rule, tools
from harness.matching import knows_exceptions
from subluminal.contracts.history import RecordedCall, RecordedRun
from subluminal.contracts.identity import Identity
from subluminal.core.engine.stack import Engine, Stack
from subluminal.policy.replay.backtest import Backtest
from subluminal.policy.replay.sight import looks_at_args


class History:
    """A run in the making: each call a second after the one before, unless told otherwise."""

    def __init__(self, **identity: Any) -> None:
        self.identity = Identity("run-1", **identity)
        self.calls: list[RecordedCall] = []
        self.at = 1_700_000_000_000

    def call(self, tool: str = "read", args: Any = None, *, after_ms: int = 1_000, **members: Any) -> History:
        self.at += after_ms
        text = json.dumps(args or {}, separators=(",", ":"), sort_keys=True)
        facts: dict[str, Any] = {
            "action": "ALLOW",
            "reason_code": "DEFAULT_ALLOW",
            "status": "OK",
            "latency_ms": 5,
            "ended_ms": self.at + 5,
            "args_preview": text,
            **members,
        }
        number = len(self.calls) + 1
        args_hash = facts.pop("args_hash", hashlib.sha256(text.encode()).hexdigest())
        self.calls.append(RecordedCall(f"c{number}", "fs", tool, args_hash, self.at, number, **facts))
        return self

    def under(self, snapshot: dict[str, Any], policy_tags: frozenset[str] | None = frozenset()) -> Backtest:
        backtest = Backtest(snapshot)
        backtest.replay(RecordedRun(self.identity, self.calls, policy_tags))
        return backtest


def refused(tool: str, history: History, **members: Any) -> History:
    facts = {"action": "BLOCK", "rule_id": "old", "reason_code": "DENYLIST_MATCH", "status": "ERROR", **members}
    return history.call(tool, **facts)


def test_the_same_decisions_are_unchanged() -> None:
    history = refused("delete", History().call("read"))
    backtest = history.under(compiled(rule("old", "deny", tools("delete"))))
    assert (backtest.still_allowed, backtest.still_refused) == (1, 1)
    assert backtest.newly_refused.count() == backtest.newly_allowed.count() == backtest.refused_otherwise.count() == 0


def test_new_refusals_and_new_permissions_are_grouped_by_rule_with_examples() -> None:
    history = refused("delete", History().call("write").call("write").call("write").call("write"))
    backtest = history.under(compiled(rule("no-writes", "deny", tools("write"))))
    (group,) = backtest.newly_refused.ordered()
    assert (group.rule_id, group.action, group.count, len(group.examples)) == ("no-writes", "BLOCK", 4, 3)
    assert group.examples[0]["call_id"] == "c1" and group.examples[0]["tool_name"] == "write"
    (allowed,) = backtest.newly_allowed.ordered()
    assert (allowed.rule_id, allowed.count) == ("old", 1)
    assert backtest.new_blocks == 4


def test_a_budget_is_charged_call_by_call_and_anew_for_each_run() -> None:
    policy = compiled(rule("b", "budget", tools("*"), scope="run", limit_calls=2, on_exceed="BLOCK"))
    backtest = Backtest(policy)
    for _ in range(2):
        history = History().call().call().call()
        backtest.replay(RecordedRun(history.identity, history.calls, frozenset()))
    assert backtest.new_blocks == 2 and backtest.still_allowed == 4


def test_a_bucket_refills_on_the_recorded_times_and_throttling_is_no_new_block() -> None:
    limit = {"capacity": 1, "refill_tokens": 1, "refill_period_ms": 1_000, "on_limit": "THROTTLE", "backoff_ms": 10}
    policy = compiled(rule("r", "rate_limit", tools("*"), scope="run", **limit))
    backtest = History().call().call(after_ms=1_000).call(after_ms=10).under(policy)
    assert backtest.still_allowed == 2
    assert [group.action for group in backtest.newly_refused.ordered()] == ["THROTTLE"]
    assert backtest.new_blocks == 0


def test_recorded_statuses_feed_the_breaker_when_the_calls_ended() -> None:
    policy = compiled(
        rule("br", "breaker", tools("*"), scope="run", error_threshold=2, window_ms=60_000, on_trip="BLOCK")
    )
    history = History().call(status="ERROR").call(status="ERROR").call()
    assert history.under(policy).new_blocks == 1
    # The second error comes in only after the third call was decided.
    history = History().call(status="ERROR").call(status="ERROR", ended_ms=1_700_000_010_000).call()
    assert history.under(policy).new_blocks == 0


def test_dedupe_goes_by_the_recorded_hash() -> None:
    policy = compiled(rule("d", "dedupe", tools("*"), scope="tool", window_ms=5_000, on_duplicate="BLOCK"))
    unseen = {"args_preview": None, "args_hash": "a" * 64}
    assert History().call(**unseen).call(**unseen).call(args={"x": 1}).under(policy).new_blocks == 1


def test_predicates_see_arguments_that_the_hash_proves() -> None:
    late = {"args": {"numeric_range": {"n": {"min": 10}}}, **tools("write")}
    backtest = History().call("write", {"n": 3}).call("write", {"n": 12}).under(compiled(rule("late", "deny", late)))
    assert (backtest.still_allowed, backtest.new_blocks, backtest.unknown.count()) == (1, 1, 0)


def test_arguments_that_are_cut_or_masked_are_unknown_and_never_guessed() -> None:
    has = {"args": {"has_keys": ["token"]}}
    policy = compiled(rule("has", "deny", has), on_error="ALLOW")
    masked = History().call(args_preview='{"token":"[REDACTED:x]"}', args_hash="b" * 64)
    cut = History().call(args_preview='{"token":"abc', args_hash="b" * 64)
    absent = History().call(args_preview=None, args_hash="b" * 64)
    for history in (masked, cut, absent):
        backtest = history.under(policy)
        assert backtest.unknown.count() == 1
        assert (backtest.still_allowed, backtest.new_blocks) == (0, 0)
        assert backtest.unknown.ordered()[0].rule_id == "has"


def test_a_rule_before_the_unknown_one_settles_the_call() -> None:
    has = {"args": {"has_keys": ["token"]}}
    unseen = {"args_preview": None, "args_hash": "b" * 64}
    first_deny = compiled(rule("no", "deny", tools("*")), rule("has", "deny", has))
    assert History().call(**unseen).under(first_deny).new_blocks == 1
    first_unknown = compiled(rule("has", "allow", has), rule("no", "deny", tools("*")))
    assert History().call(**unseen).under(first_unknown).unknown.count() == 1


def test_an_unknown_call_that_went_through_still_fills_the_state() -> None:
    has = {"args": {"has_keys": ["token"]}}
    budget = rule("b", "budget", tools("*"), scope="run", limit_calls=1, on_exceed="BLOCK")
    policy = compiled(rule("has", "deny", has), budget)
    backtest = History().call(args_preview=None, args_hash="b" * 64).call(args={"x": 1}).under(policy)
    assert backtest.unknown.count() == 1
    assert [group.rule_id for group in backtest.newly_refused.ordered()] == ["b"]


def test_arguments_that_were_never_hashed_fall_to_decision_on_error_as_they_do_in_the_shim() -> None:
    has = rule("has", "deny", {"args": {"has_keys": ["token"]}})
    history = History().call(args_preview="[TRUNCATED]", args_hash="")
    assert history.under(compiled(has, on_error="BLOCK")).new_blocks == 1
    assert history.under(compiled(has, on_error="ALLOW")).still_allowed == 1


def test_a_run_that_the_selectors_do_not_match_is_left_out() -> None:
    policy = compiled(rule("no", "deny", tools("*")), selectors={"env": ["prod"]})
    backtest = History(env="ci").call().under(policy)
    assert (backtest.runs, backtest.runs_selected, backtest.calls) == (1, 0, 0)


def test_what_an_operator_stopped_is_no_policys_doing() -> None:
    stopped = {"action": "TERMINATE_RUN", "reason_code": "RUN_TERMINATED", "rule_id": None}
    backtest = History().call().call(**stopped).under(compiled())
    assert (backtest.calls, backtest.skipped, backtest.newly_allowed.count()) == (1, 1, 0)


def test_a_policy_that_ends_the_run_refuses_all_that_follows() -> None:
    policy = compiled(rule("b", "budget", tools("*"), scope="run", limit_calls=1, on_exceed="TERMINATE_RUN"))
    backtest = History().call().call().call().under(policy)
    assert backtest.new_blocks == 2
    assert {group.action for group in backtest.newly_refused.ordered()} == {"TERMINATE_RUN"}


def test_observe_mode_refuses_nothing_and_counts_what_it_would() -> None:
    backtest = History().call("write").under(compiled(rule("no", "deny", tools("write")), mode="observe"))
    assert (backtest.new_blocks, backtest.would_refuse, backtest.still_allowed) == (0, 1, 1)


def test_a_call_that_several_doors_saw_is_charged_once_as_it_was() -> None:
    history = History()
    for name in ("toolu_1", "toolu_2", "toolu_3"):
        for door in ("messages_api", "hook", "mcp_stdio"):
            history.call("read", after_ms=1, transport=door, tool_use_id=name)
    few = compiled(rule("few", "budget", tools("*"), scope="run", limit_calls=2, on_exceed="BLOCK"))
    backtest = history.under(few)
    assert (backtest.still_allowed, backtest.newly_refused.count()) == (6, 3)


def test_what_was_only_observed_is_charged_and_never_newly_refused() -> None:
    history = History().call("web_search", observed=True).call("web_search", observed=True).call("read")
    few = compiled(rule("few", "budget", tools("*"), scope="run", limit_calls=1, on_exceed="TERMINATE_RUN"))
    backtest = history.under(few)
    assert (backtest.still_allowed, backtest.would_refuse, backtest.newly_refused.count()) == (2, 1, 1)


def test_an_ambiguous_message_stays_refused() -> None:
    ambiguous = {"ambiguous": "duplicate_key", "action": "BLOCK", "reason_code": "AMBIGUOUS_MESSAGE"}
    backtest = History().call(**ambiguous).under(compiled(rule("a", "allow", tools("*"))))
    assert (backtest.still_refused, backtest.newly_allowed.count()) == (1, 0)


def test_risk_classes_of_the_old_policy_are_not_taken_for_the_servers() -> None:
    policy = compiled(rule("no", "deny", {"risk_class": ["write_like"]}))
    history = History().call("write", tags=frozenset({"write_like"}))
    assert history.under(policy, policy_tags=frozenset()).new_blocks == 1  # only the server can have said it
    for doubt in (frozenset({"write_like"}), None):
        backtest = history.under(policy, policy_tags=doubt)
        assert (backtest.unknown.count(), backtest.new_blocks) == (1, 0)
    # A policy that does not ask does not care.
    assert history.under(compiled(), policy_tags=None).still_allowed == 1


def test_a_clock_that_was_set_back_does_not_turn_time_round() -> None:
    policy = compiled(rule("d", "dedupe", tools("*"), scope="tool", window_ms=5_000, on_duplicate="BLOCK"))
    backtest = History().call().call(after_ms=-3_600_000).under(policy)
    assert backtest.new_blocks == 1


UNSEEN = {"args_preview": None, "args_hash": "b" * 64}


def test_a_rule_that_looks_at_arguments_anywhere_is_unknown_without_them() -> None:
    has = {"args": {"has_keys": ["token"]}}
    matches = {
        "unless": {**rule("r", "deny", tools("*")), "unless": has},
        "any_of": rule("r", "deny", {"any_of": [has, {"args": {"path_within": {"p": ["/etc"]}}}]}),
    }
    for place, looking in matches.items():
        assert looks_at_args(looking), place
    priced = {"scope": "run", "limit_cost_units": 1, "on_exceed": "BLOCK", "cost_units_from": {"arg": "n", "per": 1}}
    keyed = {"scope": "run", "window_ms": 1, "on_duplicate": "BLOCK", "key": "custom", "key_args": ["a"]}
    assert looks_at_args(rule("r", "budget", **priced))
    assert looks_at_args(rule("r", "dedupe", **keyed))
    assert not looks_at_args(rule("r", "deny", {"args": {"bytes": {"min": 1}}, **tools("x")}))
    assert not looks_at_args(rule("r", "dedupe", scope="run", window_ms=1, on_duplicate="BLOCK", key="args_hash"))


@pytest.mark.skipif(not knows_exceptions(), reason="the engine does not know the language of 0.2 yet")
def test_an_exception_that_looks_at_unseen_arguments_leaves_the_call_unknown() -> None:
    excepted = {**rule("r", "deny", tools("write")), "unless": {"args": {"has_keys": ["token"]}}}
    history = (
        History().call("write", **UNSEEN).call("read", **UNSEEN).call("write", {"token": 1}).call("write", {"a": 1})
    )
    backtest = history.under(compiled(excepted))
    assert (backtest.unknown.count(), backtest.still_allowed, backtest.new_blocks) == (1, 2, 1)
    assert backtest.unknown.ordered()[0].as_dict()["reason_code"] == "ARGUMENTS"


@pytest.mark.skipif(not knows_exceptions(), reason="the engine does not know the language of 0.2 yet")
def test_a_path_whose_place_cannot_be_told_is_unknown_and_no_new_block() -> None:
    policy = compiled(rule("r", "deny", {"args": {"path_within": {"p": ["/etc"]}}}))
    backtest = Backtest(policy)
    backtest._real, backtest._closed, backtest._open = (
        Stack([Engine({**policy, "defaults": defaults}, Identity("backtest"))])
        for defaults in (policy["defaults"], {"decision_on_error": "BLOCK"}, {"decision_on_error": "ALLOW"})
    )
    history = History().call("write", {"p": "/etc/hosts"}).call("write", {"q": 1})
    backtest.replay(RecordedRun(history.identity, history.calls, frozenset()))
    assert (backtest.unknown.count(), backtest.still_allowed, backtest.new_blocks) == (1, 1, 0)
    assert backtest.unknown.ordered()[0].as_dict()["reason_code"] == "PATH"
