"""The engine's semantics: order, attempts, modes, failures, stacks, terminated runs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from harness.engine import Run, compiled, rule, tools
from subluminal.contracts.errors import CanonicalError
from subluminal.contracts.identity import Identity
from subluminal.contracts.toolcall import ToolCall
from subluminal.core.engine.plan import MAX_PLANS
from subluminal.core.engine.stack import Engine, Stack
from subluminal.core.engine.state import MARK, MAX_VALUES, RUN, WINDOW, LocalState, StateUnavailable

ALLOW = rule("everything", "allow")
DENY = rule("nothing", "deny", reason_code="CLOSED")
THREE = {"scope": "run", "limit_calls": 3, "on_exceed": "BLOCK"}
BUCKET = {"scope": "run", "capacity": 2, "refill_tokens": 1, "refill_period_ms": 1000, "on_limit": "THROTTLE"}
BUCKET["backoff_ms"] = 500
ONCE = {"scope": "tool", "window_ms": 1000, "on_duplicate": "BLOCK"}
LOOP = {"scope": "run", "repeat_threshold": 3, "repeat_window_ms": 1000, "on_trip": "BLOCK"}
NEEDS_KEY = {"args": {"has_keys": ["k"]}}


def refused(run: Run, *call: Any, **more: Any) -> tuple[str, str | None, str]:
    decision = run.call(*call, **more).decision
    return decision.action, decision.rule_id, decision.reason_code


# -- order ------------------------------------------------------------------------------------------------------


@pytest.mark.contract("POL-002")
def test_the_first_matching_access_rule_decides() -> None:
    assert refused(Run(compiled(DENY, ALLOW))) == ("BLOCK", "nothing", "CLOSED")
    assert refused(Run(compiled(ALLOW, DENY))) == ("ALLOW", "everything", "ALLOWLIST_MATCH")


def test_without_a_matching_rule_a_call_is_allowed_and_no_rule_is_cited() -> None:
    assert refused(Run(compiled(rule("d", "deny", tools("other"))))) == ("ALLOW", None, "DEFAULT_ALLOW")


@pytest.mark.contract("POL-003")
def test_a_budget_is_enforced_under_an_earlier_allow() -> None:
    run = Run(compiled(ALLOW, rule("b", "budget", **THREE)))
    assert [run.action() for _ in range(3)] == ["ALLOW"] * 3
    assert refused(run) == ("BLOCK", "b", "BUDGET_EXCEEDED")


def test_the_decision_is_the_first_in_order_of_the_deny_and_what_triggered() -> None:
    once = rule("b", "budget", scope="run", limit_calls=1, on_exceed="TERMINATE_RUN")
    spent_first = Run(compiled(once, rule("d", "deny", tools("bad"))))
    spent_first.call("good")
    assert spent_first.call("bad").decision.rule_id == "b"
    deny_first = Run(compiled(rule("d", "deny", tools("bad")), once))
    deny_first.call("good")
    assert deny_first.call("bad").decision.rule_id == "d"


@pytest.mark.contract("POL-007")
def test_a_tag_feeds_later_rules_only() -> None:
    tag = rule("g", "tag", tools("write*"), add_risk_class=["write_like"])
    deny = rule("d", "deny", {"risk_class": ["write_like"]})
    assert [Run(compiled(tag, deny)).action(tool) for tool in ("write_x", "read_x")] == ["BLOCK", "ALLOW"]
    assert Run(compiled(deny, tag)).action("write_x") == "ALLOW"
    assert Run(compiled(deny, tag)).call("write_x").tags == ["write_like"]


def test_a_tag_that_depends_on_the_arguments_feeds_later_rules_of_that_call() -> None:
    tag = rule("g", "tag", NEEDS_KEY, add_risk_class=["w"])
    deny = rule("d", "deny", {"risk_class": ["w"]})
    run = Run(compiled(tag, deny))
    assert [run.action("t", {}), run.action("t", {"k": 1}), run.action("t", {})] == ["ALLOW", "BLOCK", "ALLOW"]
    late = Run(compiled(tag, deny, rule("g2", "tag", add_risk_class=["w"])))
    assert late.action("t", {}) == "ALLOW", "a tag below the rule must not reach it"
    assert late.call("t", {}).tags == ["w"]


def test_tags_chain() -> None:
    first = rule("g1", "tag", tools("t"), add_risk_class=["a"])
    second = rule("g2", "tag", {"risk_class": ["a"]}, add_risk_class=["b"])
    verdict = Run(compiled(first, second, rule("d", "deny", {"risk_class": ["b"]}))).call("t")
    assert (verdict.decision.action, verdict.tags) == ("BLOCK", ["a", "b"])


def test_disabled_accumulators_count_nothing() -> None:
    run = Run(compiled({**rule("b", "budget", **THREE), "enabled": False}))
    assert [run.action() for _ in range(9)] == ["ALLOW"] * 9
    assert not run.state.pools[RUN]


# -- attempts ---------------------------------------------------------------------------------------------------


def test_a_refused_call_is_charged_to_a_budget() -> None:
    run = Run(compiled(rule("d", "deny", tools("bad")), rule("b", "budget", **THREE)))
    assert [run.action("bad") for _ in range(3)] == ["BLOCK"] * 3
    assert refused(run, "good") == ("BLOCK", "b", "BUDGET_EXCEEDED")


def test_a_budget_is_never_overshot_by_attempts() -> None:
    run = Run(compiled(rule("b", "budget", **THREE)))
    for _ in range(10):
        run.call()
    (counter,) = run.state.pools[RUN].values()
    assert counter[:2] == (3, 3)


@pytest.mark.contract("POL-004")
def test_a_refused_call_takes_no_tokens() -> None:
    run = Run(compiled(rule("r", "rate_limit", **BUCKET), rule("d", "deny", tools("bad"))))
    assert [run.action("bad") for _ in range(9)] == ["BLOCK"] * 9
    assert [run.action("good") for _ in range(3)] == ["ALLOW", "ALLOW", "THROTTLE"]


def test_a_call_that_another_bundle_refuses_takes_no_tokens_either() -> None:
    limited = compiled(rule("r", "rate_limit", **BUCKET))
    closed = compiled(rule("d", "deny", tools("bad")), policy_id="q")
    run = Run(limited, closed)
    assert [run.action("bad") for _ in range(5)] == ["BLOCK"] * 5
    assert [run.action("good") for _ in range(3)] == ["ALLOW", "ALLOW", "THROTTLE"]


@pytest.mark.contract("POL-005")
def test_a_refused_call_counts_as_a_repeat() -> None:
    run = Run(compiled(rule("d", "deny", tools("bad")), rule("loop", "breaker", tools("bad"), **LOOP)))
    verdicts = [run.call("bad") for _ in range(4)]
    assert [len(verdict.trips) for verdict in verdicts] == [0, 0, 1, 0]
    assert verdicts[2].trips[0] == {
        "rule_id": "loop",
        "reason_code": "BREAKER_REPEAT",
        "scope": "run",
        "threshold": 3,
        "window_ms": 1000,
    }


@pytest.mark.contract("POL-006")
def test_a_refused_duplicate_does_not_renew_its_window() -> None:
    run = Run(compiled(rule("once", "dedupe", **ONCE)))
    seen = []
    for wait in (0, 600, 300, 100):
        run.at += wait
        seen.append(run.action("write", {"x": 1}))
    assert seen == ["ALLOW", "BLOCK", "BLOCK", "ALLOW"]


@pytest.mark.contract("POL-006")
def test_a_denied_call_is_not_remembered_as_made() -> None:
    run = Run(compiled(rule("d", "deny", NEEDS_KEY), rule("once", "dedupe", **ONCE)))
    digest = {"k": 1}
    assert refused(run, "t", digest)[1] == "d"
    assert not run.state.pools[MARK]


def test_a_continuation_is_no_duplicate_no_repeat_and_no_second_charge() -> None:
    rules = [rule("b", "budget", **{**THREE, "limit_calls": 1}), rule("once", "dedupe", **ONCE)]
    rules += [rule("loop", "breaker", **{**LOOP, "repeat_threshold": 2}), rule("r", "rate_limit", **BUCKET)]
    run = Run(compiled(*rules))
    assert run.action("t", {"x": 1}) == "ALLOW"
    before = [dict(pool) for pool in run.state.pools]
    assert [run.action("t", {"x": 1}, continues="call-1") for _ in range(5)] == ["ALLOW"] * 5
    assert run.state.pools == before
    assert run.action("t", {"x": 1}) == "BLOCK"


def test_a_continuation_is_judged_for_access() -> None:
    assert Run(compiled(DENY)).action(continues="call-1") == "BLOCK"


# -- buckets and breakers -----------------------------------------------------------------------------------------


@pytest.mark.contract("POL-004")
def test_five_rapid_calls_on_a_bucket_of_two() -> None:
    run = Run(compiled(rule("r", "rate_limit", **BUCKET)))
    decisions = [run.call().decision for _ in range(5)]
    assert [decision.action for decision in decisions] == ["ALLOW", "ALLOW", "THROTTLE", "THROTTLE", "THROTTLE"]
    assert decisions[4].backoff_ms == 500
    assert decisions[4].retry_advice


def test_a_bucket_does_not_drift() -> None:
    """Seven tokens per second, asked for every millisecond for 100 s: exactly capacity + 700."""
    spec = {**BUCKET, "capacity": 5, "refill_tokens": 7, "refill_period_ms": 1000}
    run = Run(compiled(rule("r", "rate_limit", **spec)))
    allowed = 0
    for _ in range(10_000):
        allowed += run.action() == "ALLOW"
        run.at += 10
    assert allowed == 5 + 699


def test_a_bucket_never_holds_more_than_its_capacity() -> None:
    run = Run(compiled(rule("r", "rate_limit", **BUCKET)))
    run.call()
    run.at += 1_000_000
    assert [run.action() for _ in range(3)] == ["ALLOW", "ALLOW", "THROTTLE"]


def test_a_clock_that_goes_back_neither_fills_a_bucket_nor_blocks_for_ever() -> None:
    run = Run(compiled(rule("r", "rate_limit", **BUCKET), rule("once", "dedupe", **ONCE)))
    assert run.action("t", {"n": 1}) == "ALLOW"
    run.at = 10
    assert run.action("t", {"n": 1}) == "ALLOW", "a mark from the far future is void"
    assert run.action("t", {"n": 2}) == "THROTTLE"
    run.at += 1000
    assert run.action("t", {"n": 3}) == "ALLOW"


@pytest.mark.contract("POL-005")
def test_errors_open_a_breaker_until_the_window_has_passed() -> None:
    spec = {"scope": "run", "error_threshold": 2, "window_ms": 1000, "on_trip": "BLOCK"}
    run = Run(compiled(rule("err", "breaker", **spec)))
    first, second = run.call(), run.call()
    assert run.end(first, ok=False) == []
    assert [trip["reason_code"] for trip in run.end(second, ok=False)] == ["BREAKER_ERRORS"]
    assert refused(run) == ("BLOCK", "err", "BREAKER_ERRORS")
    assert run.call().watch is None
    run.at += 1000
    assert run.action() == "ALLOW"


def test_successes_do_not_touch_the_state_and_unwatched_calls_have_no_watch() -> None:
    spec = {"scope": "run", "error_threshold": 2, "window_ms": 1000, "on_trip": "BLOCK"}
    run = Run(compiled(rule("err", "breaker", tools("a"), **spec)))
    assert run.call("b").watch is None
    verdict = run.call("a")
    assert verdict.watch is not None
    assert run.end(verdict, ok=True) == []
    assert not run.state.pools[WINDOW]


@pytest.mark.contract("POL-005")
def test_a_breaker_that_terminates_does_so_when_the_failing_call_has_ended() -> None:
    spec = {"scope": "tool", "error_threshold": 1, "window_ms": 10, "on_trip": "TERMINATE_RUN", "terminate_code": "E"}
    run = Run(compiled(rule("err", "breaker", **spec)))
    run.end(run.call("t"), ok=False)
    assert run.state.terminated is not None
    assert run.state.terminated[0] == "E"
    run.at += 10_000
    assert refused(run, "another") == ("TERMINATE_RUN", "err", "RUN_TERMINATED")


def test_thresholds_of_thousands_count_to_the_last_call() -> None:
    spec = {**LOOP, "repeat_threshold": 4_100, "repeat_window_ms": 10**9}
    run = Run(compiled(rule("loop", "breaker", **spec)))
    seen = [run.action() for _ in range(4_200)]
    assert seen.index("BLOCK") == 4_099
    assert max(map(len, run.state.pools[WINDOW].values())) <= MAX_VALUES


# -- modes ------------------------------------------------------------------------------------------------------


@pytest.mark.contract("POL-001")
def test_observe_allows_and_says_what_enforcement_would_have_done() -> None:
    run = Run(compiled(rule("b", "budget", **{**THREE, "on_exceed": "TERMINATE_RUN"}), mode="observe"))
    assert [run.call().decision.would for _ in range(3)] == [None] * 3
    decision = run.call().decision
    assert decision.action == "ALLOW"
    assert decision.would is not None
    assert (decision.would.action, decision.would.rule_id) == ("TERMINATE_RUN", "b")
    assert run.state.terminated is None


def test_control_turns_a_block_into_a_hint() -> None:
    decision = Run(compiled(rule("d", "deny", message="No deletion here"), mode="control")).call("rm").decision
    assert decision.action == "REJECT_WITH_HINT"
    assert decision.hint is not None
    assert (decision.hint.hint_kind, "No deletion here" in decision.hint.hint_text) == ("SAFETY", True)
    assert decision.hint.retry_advice


@pytest.mark.parametrize("mode", ["guardrails", "control"])
def test_an_ambiguous_message_is_blocked_whatever_the_rules_say(mode: str) -> None:
    run = Run(compiled(ALLOW, rule("b", "budget", **THREE), mode=mode))
    assert refused(run, ambiguous="duplicate_key") == ("BLOCK", None, "AMBIGUOUS_MESSAGE")
    assert not run.state.pools[RUN]


def test_an_ambiguous_message_passes_under_observe_and_the_decision_says_so() -> None:
    decision = Run(compiled(ALLOW, mode="observe")).call(ambiguous="duplicate_key").decision
    assert decision.action == "ALLOW"
    assert decision.would is not None
    assert (decision.would.action, decision.would.reason_code) == ("BLOCK", "AMBIGUOUS_MESSAGE")


@pytest.mark.parametrize("mode", ["observe", "guardrails", "control"])
def test_a_terminated_run_is_refused_in_every_mode(mode: str) -> None:
    run = Run(compiled(ALLOW, mode=mode))
    run.state.terminate("OPERATOR", "Stopped by an operator")
    decision = run.call().decision
    assert (decision.action, decision.reason_code) == ("TERMINATE_RUN", "RUN_TERMINATED")
    assert decision.terminate == ("OPERATOR", "Stopped by an operator")


def test_a_run_that_a_rule_terminates_stays_terminated_for_every_tool() -> None:
    run = Run(compiled(rule("b", "budget", tools("a"), scope="run", limit_calls=0, on_exceed="TERMINATE_RUN")))
    assert refused(run, "b") == ("ALLOW", None, "DEFAULT_ALLOW")
    assert refused(run, "a") == ("TERMINATE_RUN", "b", "BUDGET_EXCEEDED")
    assert refused(run, "b") == ("TERMINATE_RUN", "b", "RUN_TERMINATED")


# -- failures ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("on_error", "action"), [("BLOCK", "BLOCK"), ("ALLOW", "ALLOW")])
def test_a_predicate_on_uninspected_arguments_falls_to_decision_on_error(on_error: str, action: str) -> None:
    run = Run(compiled(rule("d", "deny", NEEDS_KEY), on_error=on_error))
    assert refused(run, uninspected=True) == (action, "d", "UNINSPECTED_ARGS")


def test_uninspected_arguments_matter_only_to_rules_that_look_at_them() -> None:
    assert Run(compiled(ALLOW, rule("b", "budget", **THREE))).action(uninspected=True) == "ALLOW"
    for kind, spec in (("dedupe", ONCE), ("breaker", LOOP)):
        assert refused(Run(compiled(rule("x", kind, **spec))), uninspected=True)[2] == "UNINSPECTED_ARGS"


def test_failing_open_does_not_hide_another_rules_refusal() -> None:
    run = Run(compiled(rule("d", "deny", NEEDS_KEY), DENY, on_error="ALLOW"))
    assert refused(run, uninspected=True) == ("BLOCK", "nothing", "CLOSED")


def test_a_refusal_above_the_failing_rule_stands() -> None:
    run = Run(compiled(DENY, rule("once", "dedupe", **ONCE)))
    assert refused(run, uninspected=True) == ("BLOCK", "nothing", "CLOSED")


def test_fail_open_for_read_tools_takes_the_policys_word_and_not_the_servers() -> None:
    defaults = {"decision_on_error": "BLOCK", "fail_open_read_tools": True}
    deny = rule("d", "deny", NEEDS_KEY)
    tagged = Run(compiled(rule("g", "tag", tools("get*"), add_risk_class=["read_like"]), deny, defaults=defaults))
    assert tagged.action("get_x", uninspected=True) == "ALLOW"
    assert tagged.action("put_x", uninspected=True) == "BLOCK"
    claimed = Run(compiled(deny, defaults=defaults))
    assert claimed.action("put_x", uninspected=True, risk_classes=frozenset({"read_like"})) == "BLOCK"


def test_arguments_that_cannot_be_read_are_an_evaluation_error() -> None:
    def broken() -> Any:
        raise CanonicalError("too deep", kind="too_deep")

    stack = Stack([Engine(compiled(rule("d", "deny", NEEDS_KEY)), Identity("run"))])
    verdict = stack.judge(ToolCall("s", "t", b"[", 1), broken, broken, LocalState(), 0, 0)
    assert (verdict.decision.action, verdict.decision.reason_code) == ("BLOCK", "EVALUATION_ERROR")


@pytest.mark.parametrize("args", [[], "text", 7])
def test_arguments_that_are_no_object_cannot_satisfy_or_dodge_a_predicate(args: Any) -> None:
    assert refused(Run(compiled(rule("d", "deny", NEEDS_KEY))), "t", args) == ("BLOCK", "d", "EVALUATION_ERROR")


class StuckState(LocalState):
    __slots__ = ()

    def begin(self, wide: bool = False) -> None:
        raise StateUnavailable("held by a stopped process")


@pytest.mark.parametrize(("on_error", "action"), [("BLOCK", "BLOCK"), ("ALLOW", "ALLOW")])
def test_a_state_that_cannot_be_had_falls_to_decision_on_error(on_error: str, action: str) -> None:
    run = Run(compiled(rule("b", "budget", **THREE), on_error=on_error), state=StuckState())
    assert refused(run) == (action, None, "EVALUATION_ERROR")
    assert run.call().seq == 2


def test_calls_that_need_no_state_go_on_when_it_cannot_be_had() -> None:
    assert Run(compiled(ALLOW), state=StuckState()).action() == "ALLOW"


def test_arguments_and_hash_are_not_asked_for_unless_a_rule_needs_them() -> None:
    def unwanted() -> Any:
        raise AssertionError("asked for")

    stack = Stack(
        [Engine(compiled(ALLOW, rule("b", "budget", **THREE), rule("r", "rate_limit", **BUCKET)), Identity("r"))]
    )
    assert stack.judge(ToolCall("s", "t", b"{}", 2), unwanted, unwanted, LocalState(), 0, 0).decision.action == "ALLOW"


# -- stacks -----------------------------------------------------------------------------------------------------


def test_the_strictest_bundle_wins_and_is_named() -> None:
    throttling = compiled(rule("r", "rate_limit", **{**BUCKET, "capacity": 1}), policy_id="user")
    hinting = compiled(rule("h", "deny", tools("x"), action="REJECT_WITH_HINT"), policy_id="repo")
    run = Run(throttling, hinting)
    run.call("y")
    assert run.call("y").decision.policy.policy_id == "user"
    decision = run.call("x").decision
    assert (decision.action, decision.policy.policy_id) == ("REJECT_WITH_HINT", "repo")


def test_a_bundle_can_tighten_another_but_never_loosen_it() -> None:
    strict, loose = compiled(DENY, policy_id="org"), compiled(ALLOW, policy_id="repo")
    for snapshots in ((strict, loose), (loose, strict)):
        assert Run(*snapshots).call().decision.policy.policy_id == "org"


def test_the_first_of_equal_decisions_is_cited() -> None:
    one, two = compiled(DENY, policy_id="one"), compiled(DENY, policy_id="two")
    assert Run(one, two).call().decision.policy.policy_id == "one"


def test_an_observing_bundle_in_a_stack_still_tells_what_it_would_do() -> None:
    run = Run(compiled(ALLOW, policy_id="org"), compiled(DENY, policy_id="trial", mode="observe"))
    decision = run.call().decision
    assert (decision.action, decision.policy.policy_id) == ("ALLOW", "org")
    assert decision.would is not None
    assert (decision.would.action, decision.would.policy.policy_id) == ("BLOCK", "trial")


def test_bundles_with_the_same_policy_id_keep_separate_counts() -> None:
    run = Run(compiled(rule("b", "budget", **THREE)), compiled(rule("b", "budget", **{**THREE, "limit_calls": 5})))
    for _ in range(3):
        run.call()
    assert sorted(values[0] for values in run.state.pools[RUN].values()) == [3, 3]


def test_a_stack_without_a_bundle_that_applies_allows() -> None:
    run = Run(compiled(DENY, selectors={"env": ["prod"]}))
    decision = run.call().decision
    assert (decision.action, decision.policy.policy_id, run.stack.mode) == ("ALLOW", "none", "observe")
    assert [policy.policy_id for policy in run.stack.policies] == ["none"]


# -- plans ------------------------------------------------------------------------------------------------------


def test_invented_tool_names_do_not_fill_memory() -> None:
    run = Run(compiled(rule("d", "deny", tools("bad*"))))
    for number in range(3 * MAX_PLANS):
        run.call(f"tool{number}")
    run.call("x" * 100_000)
    assert len(run.stack._plans) <= MAX_PLANS


def test_call_numbers_count_every_call_from_one() -> None:
    run = Run(compiled(rule("b", "budget", tools("a"), **THREE), rule("d", "deny", tools("c"))))
    verdicts = [run.call("a"), run.call("b"), run.call("c"), run.call("a", ambiguous="x")]
    assert [verdict.seq for verdict in verdicts] == [1, 2, 3, 4]


# -- traces -----------------------------------------------------------------------------------------------------


def test_a_trace_tells_every_rule_and_changes_nothing_in_the_decision() -> None:
    snapshot = compiled(
        rule("s", "deny", {"server_name": {"glob": ["x"]}}),
        rule("n", "deny", tools("x")),
        rule("c", "deny", {"risk_class": ["w"]}),
        rule("k", "deny", NEEDS_KEY),
        rule("g", "tag", add_risk_class=["w"]),
        ALLOW,
        rule("b", "budget", **THREE),
        DENY,
    )
    traced, plain = Run(snapshot), Run(snapshot)
    trace: list[dict[str, Any]] = []
    verdict, untraced = traced.call(trace=trace), plain.call()
    assert verdict.decision.as_dict() == untraced.decision.as_dict()
    assert verdict.tags == untraced.tags
    assert traced.state.pools == plain.state.pools
    assert [(entry["rule_id"], entry["matched"], entry["why"]) for entry in trace] == [
        ("s", False, "server_name does not match"),
        ("n", False, "tool_name does not match"),
        ("c", False, "risk_class does not match"),
        ("k", False, "arguments or time do not match"),
        ("g", True, "matches"),
        ("everything", True, "matches"),
        ("b", True, "matches"),
        ("nothing", False, "access was already decided"),
    ]
    assert (trace[6]["state_before"], trace[6]["state_after"]) == (
        {"calls": 0, "cost_units": 0},
        {"calls": 1, "cost_units": 1},
    )
    json.dumps(trace)


def test_a_trace_shows_which_rule_asked_for_what() -> None:
    run = Run(compiled(rule("r", "rate_limit", **{**BUCKET, "capacity": 1}), rule("once", "dedupe", **ONCE)))
    run.call()
    trace: list[dict[str, Any]] = []
    run.call(trace=trace)
    assert [(entry["decision"], entry["reason_code"]) for entry in trace] == [
        ("THROTTLE", "RATE_LIMITED"),
        ("BLOCK", "DUPLICATE_CALL"),
    ]
    assert trace[0]["state_before"] == trace[0]["state_after"] == {"tokens": 0}
    assert trace[1]["state_before"] == {"last_ms_ago": 0}


# -- tools whose server has not listed them


def unlisted(*rules: dict[str, Any], **members: Any) -> tuple[str, str]:
    run = Run(compiled(*rules, **members))
    decision = run.call("rm", {"force": True}, risk_classes=None).decision
    return decision.action, decision.reason_code


BY_CLASS = rule("w", "deny", {"risk_class": ["write_like"]})


def test_a_rule_by_a_class_of_the_server_cannot_be_judged_before_the_tool_is_listed() -> None:
    assert unlisted(BY_CLASS) == ("BLOCK", "TOOL_NOT_LISTED")
    assert unlisted(BY_CLASS, on_error="ALLOW") == ("ALLOW", "TOOL_NOT_LISTED")
    assert unlisted(BY_CLASS, mode="control") == ("REJECT_WITH_HINT", "TOOL_NOT_LISTED")
    assert unlisted(
        rule("b", "budget", {"risk_class": ["network_like"]}, scope="run", limit_calls=9, on_exceed="BLOCK")
    ) == ("BLOCK", "TOOL_NOT_LISTED")


def test_a_tag_settles_what_the_server_has_not_said() -> None:
    tag = rule("t", "tag", tools("rm"), add_risk_class=["write_like"])
    assert unlisted(tag, BY_CLASS) == ("BLOCK", "DENYLIST_MATCH")
    forced = rule("t", "tag", {"args": {"key_equals": {"force": True}}}, add_risk_class=["write_like"])
    assert unlisted(forced, BY_CLASS) == ("BLOCK", "DENYLIST_MATCH")
    gently = rule("t", "tag", {"args": {"key_equals": {"force": False}}}, add_risk_class=["write_like"])
    assert unlisted(gently, BY_CLASS) == ("BLOCK", "TOOL_NOT_LISTED")


def test_a_rule_that_cannot_match_anyway_needs_no_list() -> None:
    other_args = rule("w", "deny", {"risk_class": ["write_like"], "args": {"has_keys": ["path"]}})
    of_a_tag = rule("p", "deny", {"risk_class": ["paid"]})
    behind = [rule("ok", "allow", tools("rm")), BY_CLASS]
    assert unlisted(other_args) == unlisted(of_a_tag) == ("ALLOW", "DEFAULT_ALLOW")
    assert unlisted(*behind) == ("ALLOW", "ALLOWLIST_MATCH")


def test_a_tag_by_a_class_of_the_server_cannot_be_judged_either() -> None:
    chained = rule("t", "tag", {"risk_class": ["write_like"]}, add_risk_class=["danger"])
    assert unlisted(chained, rule("d", "deny", {"risk_class": ["danger"]})) == ("BLOCK", "TOOL_NOT_LISTED")
