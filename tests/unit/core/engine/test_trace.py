"""A trace tells what every predicate of a rule saw, where it stands, and what the value was read as."""

from __future__ import annotations

from typing import Any

from harness.engine import Run, compiled, rule, tools


def traced(*rules: dict[str, Any], args: Any = None, **call: Any) -> list[dict[str, Any]]:
    trace: list[dict[str, Any]] = []
    Run(compiled(*rules)).call("t", args, trace=trace, **call)
    return trace


def seen(record: dict[str, Any]) -> list[tuple[Any, ...]]:
    return [tuple(each[name] for name in ("place", "value", "matched", "read_as")) for each in record["predicates"]]


def test_each_predicate_tells_its_place_its_value_and_whether_it_matched() -> None:
    match = {"args": {"key_glob": {"path": ["/etc/*"]}, "key_equals": {"o.force": True}, "has_keys": ["x"]}}
    (record,) = traced(rule("d", "deny", match), args={"path": "/etc/passwd", "o": {"force": "yes"}})
    assert record["why"] == "arguments or time do not match"
    assert seen(record) == [
        ("args.has_keys.x", None, False, None),
        ("args.key_equals.o.force", '"yes"', True, "read as true"),
        ("args.key_glob.path", '"/etc/passwd"', True, None),
    ]


def test_the_value_that_decided_is_shown() -> None:
    deny = rule("d", "deny", {"args": {"key_glob": {"p": ["b*"]}}})
    allow = rule("a", "allow", {"args": {"key_glob": {"p": ["b*"]}}})
    stopped, let_through = traced(deny, allow, args={"p": ["ba", "x", "bb"]})
    assert seen(stopped) == [("args.key_glob.p", '"ba"', True, None)]
    assert seen(let_through) == [("args.key_glob.p", '"x"', False, None)]


def test_alternatives_and_exceptions_are_told_with_their_place() -> None:
    either = [{"tool_name": {"glob": ["u"]}}, {"args": {"bytes": {"min": 9}}, "risk_class": ["w"]}]
    made = {**rule("d", "deny", {**tools("t"), "any_of": either}), "unless": {"args": {"key_equals": {"dry": True}}}}
    (record,) = traced(made, args={"dry": True}, risk_classes=frozenset({"w"}))
    assert record["why"] == "excepted by unless"
    assert seen(record) == [
        ("any_of[0].tool_name", '"t"', False, None),
        ("any_of[1].risk_class", '["w"]', True, None),
        ("any_of[1].args.bytes", "13", True, None),
        ("unless.args.key_equals.dry", "true", True, None),
    ]
    (record,) = traced(made, args={"dry": "true"}, risk_classes=frozenset({"w"}))
    assert record["matched"]
    assert seen(record)[-1] == ("unless.args.key_equals.dry", '"true"', False, None)


def test_what_cannot_be_judged_is_told_with_its_reason() -> None:
    match = {"args": {"key_contains": {"k": ["x"]}}, "any_of": [{"risk_class": ["write_like"]}]}
    (record,) = traced(rule("d", "deny", match), args={"k": ["y"] * 1_001}, risk_classes=None)
    assert record["why"] == "cannot be judged: k has more than 1,000 elements"
    assert [each["matched"] for each in record["predicates"]] == [None, None]
    assert record["predicates"][0]["read_as"] == "k has more than 1,000 elements"
    assert record["predicates"][1]["read_as"] == "the server has not listed the tool"
    (record,) = traced(rule("d", "deny", match), uninspected=True)
    assert seen(record)[0] == ("args.key_contains.k", None, None, "the arguments were not inspected")


def test_long_values_are_cut() -> None:
    (record,) = traced(rule("d", "deny", {"args": {"key_contains": {"k": ["x"]}}}), args={"k": "x" * 5_000})
    assert len(record["predicates"][0]["value"]) == 200


def test_a_rule_that_names_another_tool_tells_nothing() -> None:
    (record,) = traced(rule("d", "deny", {**tools("u"), "args": {"has_keys": ["k"]}}))
    assert (record["matched"], record["predicates"]) == (False, [])


def test_readings_of_paths_are_told_as_those_of_keys() -> None:
    match = {"args": {"key_equals": {"o.force": True}, "numeric_range": {"n[]": {"min": 5}}}}
    (record,) = traced(rule("d", "deny", match), args={"o": {"force": "on"}, "n": [1, "7"]})
    assert record["readings"] == [
        {"key": "o.force", "value": '"on"', "read_as": "true"},
        {"key": "n[]", "value": '"7"', "read_as": "7"},
    ]
