"""`any_of`, `unless`, the size of the arguments, and what becomes of what cannot be judged."""

from __future__ import annotations

import gc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.engine import Run, compiled, rule, tools
from subluminal.contracts.identity import Identity
from subluminal.contracts.toolcall import ToolCall
from subluminal.core.engine.certainty import decided, decided_among
from subluminal.core.engine.faults import Unavailable

A, B = "ALLOW", "BLOCK"
MANY = [0] * 2_000  # cannot be judged by a predicate on its elements


def snapshot(*rules: dict[str, Any], **members: Any) -> dict[str, Any]:
    """As the compiler would make it, where it already has the words for it."""
    head = {"snapshot_format": 1, "policy_id": "p", "version": "1", "mode": "guardrails", "policy_hash": "0" * 64}
    defaults = {"decision_on_error": "BLOCK", "fail_open_read_tools": False}
    return {**head, "defaults": defaults, "selectors": {}, "rules": list(rules), **members}


def deny(match: dict[str, Any], unless: dict[str, Any] | None = None, rule_id: str = "d") -> dict[str, Any]:
    made = rule(rule_id, "deny", match)
    return made if unless is None else {**made, "unless": unless}


def allow(match: dict[str, Any], unless: dict[str, Any] | None = None, rule_id: str = "a") -> dict[str, Any]:
    made = rule(rule_id, "allow", match)
    return made if unless is None else {**made, "unless": unless}


def equals(**wanted: Any) -> dict[str, Any]:
    return {"args": {"key_equals": wanted}}


def reason(run: Run, *call: Any, **more: Any) -> str:
    return run.call(*call, **more).decision.reason_code


# -- three answers ------------------------------------------------------------------------------------------------

ANSWERS = st.lists(st.sampled_from([True, False, None]), max_size=5)


def answering(answer: bool | None) -> bool:
    if answer is None:
        raise Unavailable("UNJUDGED_ARGS", "why")
    return answer


@given(ANSWERS, st.booleans())
def test_what_is_certain_decides_and_else_what_cannot_be_told_stands(answers: list[bool | None], by: bool) -> None:
    expected = by if by in answers else None if None in answers else not by
    judged: list[bool | None] = []
    for ask in (
        lambda: decided([lambda answer=answer: answering(answer) for answer in answers], by),
        lambda: decided_among(answers, by, answering, None),
    ):
        try:
            judged.append(ask())
        except Unavailable:
            judged.append(None)
    assert judged == [expected, expected]


NESTED = st.fixed_dictionaries({"own": ANSWERS, "any_of": st.lists(ANSWERS, max_size=3), "unless": st.none() | ANSWERS})


def conjunction(answers: list[bool | None]) -> bool | None:
    return False if False in answers else None if None in answers else True


def condition(answers: list[bool | None]) -> dict[str, Any]:
    """All of these: True is `yes` equals 1, False that it equals 2, None what cannot be judged."""
    wanted: dict[str, Any] = {}
    for answer in answers:
        name, value = ("key_in", [2]) if answer is False else ("key_equals", 1)
        wanted.setdefault(name, {})["yes" if answer is not None else "many"] = value if answer is not None else 7
    return {"args": wanted} if wanted else {}


@given(NESTED, st.sampled_from(["deny", "allow"]))
def test_a_rule_is_its_match_and_not_its_unless_with_three_answers(parts: dict[str, Any], kind: str) -> None:
    """Strictly a list equals nothing, so there what cannot be judged is certainly false."""
    generous = kind == "deny"

    def seen(answers: list[bool | None], generously: bool) -> bool | None:
        return conjunction([answer if generously or answer is not None else False for answer in answers])

    match = condition(parts["own"])
    if parts["any_of"]:
        match["any_of"] = [condition(answers) for answers in parts["any_of"]]
    made = deny(match) if generous else allow(match)
    answers = [seen(parts["own"], generous)]
    if parts["any_of"]:
        alternatives = [seen(each, generous) for each in parts["any_of"]]
        answers.append(True if True in alternatives else None if None in alternatives else False)
    if parts["unless"] is not None:
        made["unless"] = condition(parts["unless"])
        excepted = seen(parts["unless"], not generous)
        answers.append(None if excepted is None else not excepted)
    expected = {True: (A, "ALLOWLIST_MATCH"), False: (B, "DENYLIST_MATCH"), None: (B, "UNJUDGED_ARGS")}
    rules = [made, deny({}, rule_id="rest")] if kind == "allow" else [made]
    if generous:
        expected = {True: (B, "DENYLIST_MATCH"), False: (A, "DEFAULT_ALLOW"), None: (B, "UNJUDGED_ARGS")}
    judged = Run(snapshot(*rules)).call("t", {"yes": 1, "many": MANY}).decision
    assert (judged.action, judged.reason_code) == expected[conjunction(answers)]


def test_an_exception_that_was_kept_leaves_no_cycle_behind() -> None:
    """Shims collect no garbage."""
    run = Run(snapshot(deny({"any_of": [equals(many=7)], **equals(many=8)}, equals(yes=2))))
    args = {"yes": 1, "many": MANY}
    assert reason(run, "t", args) == "UNJUDGED_ARGS"
    gc.collect()
    gc.disable()
    try:
        for _ in range(200):
            run.call("t", args)
        assert gc.collect() < 200, "each call would leave some; what other tests left is less"
    finally:
        gc.enable()


# -- any_of -------------------------------------------------------------------------------------------------------


def test_alternatives_are_beside_the_rest_of_the_match() -> None:
    either = [{"tool_name": {"glob": ["rm*"]}}, {"args": {"key_contains": {"line": ["rm "]}}}]
    run = Run(snapshot(deny({"server_name": {"glob": ["sh"]}, "any_of": either})))
    assert run.action("rmdir", server="sh") == B
    assert run.action("run", {"line": "rm -rf /"}, server="sh") == B
    assert run.action("run", {"line": "ls"}, server="sh") == A
    assert run.action("rmdir", server="other") == A


def test_every_field_of_an_alternative_counts() -> None:
    hour = 1_700_000_000_000 // 3_600_000 % 24
    for yes, no in (
        ({"tool_name": {"glob": ["t"]}}, {"tool_name": {"regex": ["^u"]}}),
        ({"server_name": {"glob": ["s"]}}, {"server_name": {"glob": ["x"]}}),
        ({"time": {"utc_hours": [hour]}}, {"time": {"utc_hours": [(hour + 1) % 24]}}),
        ({"risk_class": ["write_like"]}, {"risk_class": ["other"]}),
        (equals(k=1), equals(k=2)),
        ({"args": {"bytes": {"max": 50}}}, {"args": {"bytes": {"min": 51}}}),
    ):
        call: dict[str, Any] = {"args": {"k": 1}, "risk_classes": frozenset({"write_like"})}
        assert Run(snapshot(deny({"any_of": [no, yes]}))).action("t", **call) == B
        assert Run(snapshot(deny({"any_of": [no, no]}))).action("t", **call) == A
        assert Run(snapshot(deny({"any_of": [{**yes, **equals(k=3)}]}))).action("t", **call) == A
        assert Run(snapshot(deny({}, yes))).action("t", **call) == A
        assert Run(snapshot(deny({}, no))).action("t", **call) == B


def test_a_rule_with_alternatives_does_not_settle_access_by_its_names() -> None:
    """A plan leaves out what stands behind an unconditional rule; this one is none, whatever it asks."""
    rules = [allow({**tools("t"), "any_of": [{"server_name": {"glob": ["x"]}}]}), deny(tools("t"))]
    run = Run(snapshot(*rules))
    assert run.action("t") == B
    assert run.action("t", server="x") == A
    rules = [allow(tools("t"), {"server_name": {"glob": ["x"]}}), deny(tools("t"))]
    run = Run(snapshot(*rules))
    assert run.action("t") == A
    assert run.action("t", server="x") == B


# -- unless -------------------------------------------------------------------------------------------------------


def test_what_stops_has_a_strict_exception_and_what_lets_through_a_generous_one() -> None:
    run = Run(snapshot(deny({}, equals(dry_run=True))))
    assert run.action("t", {"dry_run": True}) == A
    assert run.action("t", {"dry_run": "true"}) == B
    assert run.action("t") == B
    run = Run(snapshot(allow({}, equals(force=True)), deny({})))
    assert run.action("t") == A
    assert run.action("t", {"force": True}) == B
    assert run.action("t", {"force": "true"}) == B


@pytest.mark.parametrize(
    ("kind", "effect"),
    [
        ("budget", {"scope": "run", "limit_calls": 0, "on_exceed": B}),
        ("breaker", {"scope": "run", "repeat_threshold": 1, "repeat_window_ms": 1000, "on_trip": B}),
    ],
)
def test_a_counter_has_a_strict_exception(kind: str, effect: dict[str, Any]) -> None:
    run = Run(snapshot({**rule("x", kind, **effect), "unless": equals(dry_run=True)}))
    assert run.action("t", {"dry_run": True}) == A
    assert run.action("t", {"dry_run": "yes"}) == B


def test_a_class_that_may_be_excepted_lets_nothing_through() -> None:
    tag = {**rule("g", "tag", add_risk_class=["safe"]), "unless": equals(force=True)}
    run = Run(snapshot(tag, allow({"risk_class": ["safe"]}), deny({})))
    assert run.action("t", {"force": False}) == A
    assert run.action("t", {"force": True}) == B
    assert run.action("t", {"force": "true"}) == B, "generously it is excepted"
    run = Run(snapshot(tag, deny({"risk_class": ["safe"]})))
    assert run.action("t", {"force": True}) == A
    assert run.action("t", {"force": "true"}) == B, "strictly it is not"


def test_a_tag_that_holds_generously_and_cannot_be_judged_strictly_is_suspected() -> None:
    paths = {"args": {"key_contains": {"paths": ["x"]}}}
    tag = rule("g", "tag", paths, add_risk_class=["safe"])
    args = {"paths": ["x"] * 2_000}
    assert Run(snapshot(tag, deny({"risk_class": ["safe"]}))).action("t", args) == B
    run = Run(snapshot(tag, allow({"risk_class": ["safe"]}), deny({}, rule_id="rest")))
    assert run.call("t", args).decision.rule_id == "rest"


@pytest.mark.parametrize("place", ["any_of", "unless"])
def test_a_class_of_a_tool_that_was_not_listed_is_not_known_here_either(place: str) -> None:
    wanted = {"risk_class": ["write_like"]}
    made = deny({"any_of": [wanted]}) if place == "any_of" else deny({}, wanted)
    assert reason(Run(snapshot(made)), "t", risk_classes=None) == "TOOL_NOT_LISTED"
    own = {"risk_class": ["mine"]}
    made = deny({"any_of": [own]}) if place == "any_of" else deny({}, own)
    assert reason(Run(snapshot(made)), "t", risk_classes=None) == (
        "DEFAULT_ALLOW" if place == "any_of" else "DENYLIST_MATCH"
    )
    tagged = rule("g", "tag", add_risk_class=["write_like"])
    made = deny({"any_of": [wanted]}) if place == "any_of" else deny({}, wanted)
    known = reason(Run(snapshot(tagged, made)), "t", risk_classes=None)
    assert known == ("DENYLIST_MATCH" if place == "any_of" else "DEFAULT_ALLOW")


def test_an_exception_by_class_takes_no_class_that_was_given_by_a_reading() -> None:
    tag = rule("g", "tag", equals(dry_run=True), add_risk_class=["safe"])
    run = Run(snapshot(tag, deny({}, {"risk_class": ["safe"]})))
    assert run.action("t", {"dry_run": True}) == A
    assert run.action("t", {"dry_run": "true"}) == B


# -- the size of the arguments ------------------------------------------------------------------------------------


def sized(kind: str, limits: dict[str, int], size: int, *, held: bool) -> str:
    rules = [rule("x", kind, {"args": {"bytes": limits}}), *([] if kind == "deny" else [deny({})])]
    run = Run(snapshot(*rules))
    call = ToolCall("s", "t", b" " * size if held else None, size if not held else size + 100)
    return run.stack.judge(call, lambda: None, lambda: "", run.state, run.wall, run.at).decision.reason_code


@pytest.mark.parametrize(
    ("limits", "size", "inside"),
    [
        ({"min": 10}, 10, True),
        ({"min": 10}, 9, False),
        ({"max": 10}, 10, True),
        ({"max": 10}, 11, False),
        ({"min": 5, "max": 10}, 7, True),
        ({"min": 5, "max": 10}, 4, False),
        ({"min": 0}, 2, True),
    ],
)
def test_the_size_is_that_of_the_arguments_as_they_were_sent(limits: dict[str, int], size: int, inside: bool) -> None:
    assert sized("deny", limits, size, held=True) == ("DENYLIST_MATCH" if inside else "DEFAULT_ALLOW")
    assert sized("allow", limits, size, held=True) == ("ALLOWLIST_MATCH" if inside else "DENYLIST_MATCH")


@pytest.mark.parametrize(
    ("limits", "stopped", "let_through"),
    [
        ({"min": 1_000_000}, "DENYLIST_MATCH", "UNINSPECTED_ARGS"),
        ({"min": 3_000_000}, "DEFAULT_ALLOW", "DENYLIST_MATCH"),
        ({"max": 3_000_000}, "DENYLIST_MATCH", "ALLOWLIST_MATCH"),
        ({"max": 1_000_000}, "UNINSPECTED_ARGS", "UNINSPECTED_ARGS"),
    ],
)
def test_arguments_that_were_not_held_are_judged_by_their_message(
    limits: dict[str, int], stopped: str, let_through: str
) -> None:
    assert sized("deny", limits, 2_000_000, held=False) == stopped
    assert sized("allow", limits, 2_000_000, held=False) == let_through


def test_only_predicates_on_unseen_values_cannot_be_judged() -> None:
    size, text = {"bytes": {"min": 3_000_000}}, {"key_contains": {"k": ["x"]}}
    large: dict[str, Any] = {"uninspected": True, "bytes_in": 2_000_000}
    assert reason(Run(snapshot(deny({"args": {**size, **text}}))), "t", **large) == "DEFAULT_ALLOW"
    assert reason(Run(snapshot(deny({"args": text}))), "t", **large) == "UNINSPECTED_ARGS"
    either = [{"args": text}, {"args": {"bytes": {"min": 1_000_000}}}]
    assert reason(Run(snapshot(deny({"any_of": either}))), "t", **large) == "DENYLIST_MATCH"


# -- what the refused agent reads ---------------------------------------------------------------------------------


def test_a_refusal_says_what_could_not_be_judged_and_what_to_do() -> None:
    judged = Run(snapshot(deny(equals(many=7)), mode="control")).call("t", {"many": MANY}).decision
    assert (judged.action, judged.reason_code) == ("REJECT_WITH_HINT", "UNJUDGED_ARGS")
    assert "a list has more than 1,000 elements" in judged.summary
    assert "several smaller calls" in judged.summary
    assert judged.hint is not None
    assert judged.hint.hint_kind == "OTHER"
    assert "1,000 elements" in judged.hint.hint_text


def test_decision_on_error_holds_for_what_cannot_be_judged() -> None:
    fails_open = {"decision_on_error": "ALLOW"}
    assert Run(snapshot(deny(equals(many=7)), defaults=fails_open)).action("t", {"many": MANY}) == A
    reads = rule("g", "tag", add_risk_class=["read_like"])
    fails_open = {"decision_on_error": "BLOCK", "fail_open_read_tools": True}
    assert Run(snapshot(reads, deny(equals(many=7)), defaults=fails_open)).action("t", {"many": MANY}) == A


def test_snapshots_of_old_work_unchanged() -> None:
    old = compiled(deny({**tools("t"), **equals(k=1)}))
    assert "unless" not in old["rules"][0]
    run = Run(old, identity=Identity("r"))
    assert (run.action("t", {"k": 1}), run.action("t", {"k": 2})) == (B, A)
