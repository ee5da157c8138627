"""What a refused agent reads: useful, bounded, and free of what it sent."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.engine import Run, compiled, rule
from subluminal.contracts.decision import refusal_message
from subluminal.core.engine.hints import MAX_HINT_CHARS, MAX_SUMMARY_CHARS, duration, fill, show_name, suggest

R = "REJECT_WITH_HINT"
BUDGET = {"scope": "tool", "limit_calls": 1, "on_exceed": R}
RATE = {"scope": "run", "capacity": 1, "refill_tokens": 1, "refill_period_ms": 1000, "on_limit": R}
LOOP = {"scope": "run", "repeat_threshold": 2, "repeat_window_ms": 60_000, "on_trip": R}
ONCE = {"scope": "run", "window_ms": 60_000, "on_duplicate": R}
LONG = [(3_600_000, "1 h"), (86_400_000, "24 h"), (604_800_000, "7 days"), (5_400_000, "90 min")]


def second(kind: str, spec: dict[str, Any], **bundle: Any) -> Any:
    run = Run(compiled(rule("the-rule", kind, **spec), **bundle))
    run.call("push", {"force": True, "token": "hunter2"}, server="git")
    return run.call("push", {"force": True, "token": "hunter2"}, server="git").decision


@pytest.mark.parametrize(
    ("kind", "spec", "hint_kind"),
    [
        ("budget", BUDGET, "BUDGET"),
        ("rate_limit", RATE, "RATE"),
        ("deny", {"action": R}, "SAFETY"),
        ("deny", {"action": R, "suggested_args": {"force": None}}, "ARG_FIX"),
        ("breaker", LOOP, "OTHER"),
        ("dedupe", ONCE, "OTHER"),
    ],
)
def test_each_kind_of_rule_gives_its_kind_of_hint(kind: str, spec: dict[str, Any], hint_kind: str) -> None:
    decision = second(kind, spec)
    assert decision.hint.hint_kind == hint_kind
    assert decision.hint.hint_text
    assert decision.hint.retry_advice


def test_a_rule_with_words_of_its_own_says_once_that_the_call_is_not_to_be_made_again() -> None:
    decision = second("deny", {"action": R, "message": "Files stay.", "hint_text": "Move it to ./trash."})
    told = refusal_message(decision)
    assert told.endswith("(rule the-rule): Files stay. Do not retry the same call. Move it to ./trash.")
    assert decision.hint.retry_advice == "Do not retry the same call."


@pytest.mark.parametrize("kind_spec", [("budget", BUDGET), ("rate_limit", RATE), ("deny", {}), ("breaker", LOOP)])
@pytest.mark.parametrize("mode", ["guardrails", "control"])
def test_a_summary_says_what_why_and_what_next_but_no_argument_value(kind_spec: Any, mode: str) -> None:
    decision = second(*kind_spec, mode=mode)
    assert "push" in decision.summary
    assert "git" in decision.summary
    assert "the-rule" in decision.summary
    assert decision.summary.count(". ") >= 1
    assert decision.summary.endswith(".")
    assert "hunter2" not in decision.summary
    assert mode == "guardrails" or decision.action in ("REJECT_WITH_HINT", "THROTTLE", "TERMINATE_RUN")
    assert (decision.hint is not None) == (decision.action == "REJECT_WITH_HINT")
    assert decision.hint is None or "hunter2" not in decision.hint.hint_text


def test_a_hint_text_is_filled_with_the_numbers_of_the_case() -> None:
    text = "{used}/{limit} calls of {tool} on {server}, rule {rule_id} of {policy_id} ({scope}, {reason_code})"
    decision = second("budget", {**BUDGET, "hint_text": text})
    assert decision.hint.hint_text == "1/1 calls of push on git, rule the-rule of p (tool, BUDGET_EXCEEDED)"
    text = "wait {backoff_ms}"
    assert second("rate_limit", {**RATE, "backoff_ms": 700, "hint_text": text}).hint.hint_text == "wait 700"
    text = "{count} of {threshold} in {window_ms}"
    assert second("breaker", {**LOOP, "hint_text": text}).hint.hint_text == "2 of 2 in 60000"


@pytest.mark.parametrize("text", ["{", "}", "{}", "{x}", "{tool", "{{tool}", "{0}", "{tool.__class__}", "%s {limit!r}"])
def test_any_other_brace_stays_as_it_is(text: str) -> None:
    assert fill(text, {"tool": "T"}) == text.replace("{tool}", "T")


@given(st.text("{}tol %", max_size=30))
def test_filling_never_raises_and_never_reads_what_it_filled_in(text: str) -> None:
    assert fill(text, {"tool": "{limit}", "limit": 9}) == text.replace("{tool}", "{limit}")


def test_suggested_arguments_are_the_calls_own_with_the_rules_changes() -> None:
    decision = second("deny", {"action": R, "suggested_args": {"force": None, "branch": "wip/{tool}"}})
    assert decision.hint.suggested_args == {"token": "hunter2", "branch": "wip/push"}
    assert decision.hint.retry_advice == "Retry with suggested_args."


def test_suggestions_merge_in_depth_and_do_not_touch_the_arguments() -> None:
    args = {"a": {"b": 1, "c": 2}, "d": [1]}
    assert suggest({"a": {"c": None, "e": 3}, "d": [2]}, args, 10, {}) == {"a": {"b": 1, "e": 3}, "d": [2]}
    assert args == {"a": {"b": 1, "c": 2}, "d": [1]}


def test_large_or_unread_arguments_are_not_repeated() -> None:
    assert suggest({"a": 1}, {"b": "x" * 100_000}, 100_000, {}) == {"a": 1}
    assert suggest({"a": 1}, None, 10, {}) == {"a": 1}


def test_names_and_texts_from_outside_are_bounded_and_printable() -> None:
    assert show_name("evil\x1b[2J\nname") == "evil�[2J�name"
    decision = Run(compiled(rule("d", "deny", message="m" * 5_000, action=R))).call("t" * 10_000).decision
    assert len(decision.summary) <= MAX_SUMMARY_CHARS
    assert decision.hint is not None
    assert len(decision.hint.hint_text) <= MAX_HINT_CHARS


def test_a_run_is_terminated_with_the_policys_code_and_words() -> None:
    spec = {**LOOP, "on_trip": "TERMINATE_RUN", "terminate_code": "LOOP", "hint_text": "{tool} loops"}
    assert second("breaker", spec).terminate == ("LOOP", "push loops")
    plain = second("budget", {**BUDGET, "on_exceed": "TERMINATE_RUN"})
    assert plain.terminate == ("BUDGET_EXCEEDED", plain.summary)


@pytest.mark.parametrize(
    ("ms", "text"),
    [(1, "1 ms"), (1500, "1500 ms"), (2000, "2 s"), (60_000, "1 min"), (90_000, "90 s"), (10_500, "10.5 s"), *LONG],
)
def test_durations_read_well(ms: int, text: str) -> None:
    assert duration(ms) == text
