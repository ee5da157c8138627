"""Each field of the match, through a real shim: it refuses one call and lets another pass, and would not if ignored.

One shim has the policy of all cases, a rule and a tool each; a second has the same without the field in question.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from harness.driver import Agent
from harness.fake_server import fake_server
from harness.shim import Shim

LARGE = "x" * 1_200_000


class Case(NamedTuple):
    """`path` leads to the field in the rule. Only the names of the tool are added to it."""

    name: str
    rule: dict[str, Any]
    path: tuple[Any, ...]
    refused: dict[str, Any]
    passed: dict[str, Any]
    reason_code: str = "DENYLIST_MATCH"

    @property
    def tool(self) -> str:
        return self.name.replace(" ", "_")


def deny(name: str, field: str, wanted: Any, refused: Any, passed: Any, **more: Any) -> Case:
    """A deny by one predicate."""
    return Case(f"deny {name}", {"match": {"args": {field: wanted}}}, ("match", "args", field), refused, passed, **more)


def allow(name: str, field: str, wanted: Any, refused: Any, passed: Any, **more: Any) -> Case:
    """An allow by one predicate, above a deny of everything."""
    rule = {"kind": "allow", "match": {"args": {field: wanted}}, "effect": {"action": "ALLOW"}}
    return Case(f"allow {name}", rule, ("match", "args", field), refused, passed, **more)


def both(name: str, field: str, wanted: Any, inside: Any, outside: Any) -> list[Case]:
    return [deny(name, field, wanted, inside, outside), allow(name, field, wanted, outside, inside)]


FORCE = {"args": {"key_equals": {"force": True}}}
DRY = {"args": {"key_equals": {"dry_run": True}}}

CASES = [
    *both("a key of an object", "key_equals", {"options.force": True}, {"options": {"force": True}}, {"options": {}}),
    *both(
        "a key of elements", "key_in", {"files[].mode": ["rw"]}, {"files": [{"mode": "rw"}]}, {"files": [{"mode": "r"}]}
    ),
    *both("a literal dot", "has_keys", [r"a\.b"], {"a.b": 1}, {"a": {"b": 1}}),
    *both("an unescaped dot", "has_keys", ["a.b"], {"a.b": 1}, {"a": {"c": 1}}),
    *both(
        "a nested number", "numeric_range", {"page.size": {"min": 100}}, {"page": {"size": 100}}, {"page": {"size": 9}}
    ),
    *both("missing_keys", "missing_keys", ["reason"], {}, {"reason": "x"}),
    *both("key_glob", "key_glob", {"path": ["/etc/*"]}, {"path": "/etc/ssl/x"}, {"path": "/srv/x"}),
    *both("key_regex", "key_regex", {"sql": ["(?i)drop +table"]}, {"sql": "x; DROP  TABLE y"}, {"sql": "SELECT 1"}),
    *both("key_contains", "key_contains", {"text": ["BEGIN KEY"]}, {"text": "a BEGIN KEY b"}, {"text": "a"}),
    *both("bytes", "bytes", {"min": 100}, {"k": "x" * 100}, {"k": "x"}),
    *both("path_within", "path_within", {"path": ["."]}, {"path": "./a/../b"}, {"path": "../b"}),
    *both(
        "host_in", "host_in", {"url": ["*.example.com"]}, {"url": "https://A.example.com./"}, {"url": "https://x.org"}
    ),
    *both("command", "command", {"line": {"programs": ["git"]}}, {"line": "git status"}, {"line": "ls"}),
    deny("the size of a large call", "bytes", {"min": 1_000_000}, {"k": LARGE}, {"k": "x"}),
    deny("any element", "key_glob", {"paths": ["/etc/*"]}, {"paths": ["/srv", "/etc/x"]}, {"paths": ["/srv"]}),
    allow("every element", "key_glob", {"paths": ["/srv*"]}, {"paths": ["/srv", "/etc/x"]}, {"paths": ["/srv"]}),
    deny("a list in a text", "key_glob", {"paths": ["/etc/*"]}, {"paths": '["/etc/x"]'}, {"paths": '["/srv"]'}),
    deny("an object in a text", "key_equals", {"o.force": True}, {"o": '{"force": true}'}, {"o": '{"force": false}'}),
    deny(
        "too many elements",
        "key_equals",
        {"ids[]": 7},
        {"ids": list(range(10, 1_020))},
        {"ids": [1, 2]},
        reason_code="UNJUDGED_ARGS",
    ),
    Case("any_of", {"match": {"any_of": [FORCE, DRY]}}, ("match", "any_of"), {"force": True}, {"force": False}),
    Case(
        "args of an alternative",
        {"match": {"any_of": [{"tool_name": {"glob": ["none"]}}, FORCE]}},
        ("match", "any_of", 1, "args"),
        {"force": True},
        {},
    ),
    Case("unless of a deny", {"match": {}, "unless": DRY}, ("unless",), {"dry_run": "true"}, {"dry_run": True}),
    Case(
        "unless of an allow",
        {"kind": "allow", "match": {}, "unless": FORCE, "effect": {"action": "ALLOW"}},
        ("unless",),
        {"force": "true"},
        {"force": False},
    ),
    Case(
        "any_of in unless",
        {"match": {}, "unless": {"any_of": [DRY, {"args": {"key_equals": {"who": "me"}}}]}},
        ("unless", "any_of"),
        {"who": "you"},
        {"who": "me"},
    ),
]
NAMES = [case.name for case in CASES]


def bundle(rules: list[dict[str, Any]]) -> dict[str, Any]:
    head = {"policy_id": "language", "version": "1", "mode": "guardrails", "selectors": {}}
    rest = {"rule_id": "rest", "kind": "deny", "match": {"tool_name": {"glob": ["*allow*"]}}}
    last = {**rest, "enabled": True, "severity": "warn", "effect": {"action": "BLOCK"}}
    return {**head, "defaults": {"decision_on_error": "BLOCK"}, "rules": [*rules, last]}


def ruled(case: Case, *, ignored: bool) -> dict[str, Any]:
    made = copy.deepcopy(case.rule)
    if ignored:
        at: Any = made
        for step in case.path[:-1]:
            at = at[step]
        del at[case.path[-1]]
    head = {"rule_id": case.tool, "kind": "deny", "enabled": True, "severity": "warn", "effect": {"action": "BLOCK"}}
    return {**head, **made, "match": {**made["match"], "tool_name": {"glob": [case.tool]}}}


def session(place: Path, *, ignored: bool) -> Iterator[Agent]:
    rules = [ruled(case, ignored=ignored) for case in CASES]
    if ignored:  # an alternative or an exception without any member is none, which no policy may say
        rules = [rule for rule in rules if rule.get("unless") != {}]
    server = fake_server(tools={case.tool: {} for case in CASES})
    shim = Shim(place, "files", server, policy=bundle(rules))
    with shim.start() as agent:
        agent.initialize()
        yield agent
        agent.finish()


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    yield from session(tmp_path_factory.mktemp("whole"), ignored=False)


@pytest.fixture(scope="module")
def ignoring(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    yield from session(tmp_path_factory.mktemp("ignored"), ignored=True)


def outcome(agent: Agent, case: Case, args: dict[str, Any]) -> str:
    reply = agent.call(case.tool, args)
    return "passed" if "result" in reply else str(reply["error"]["data"]["subluminal"]["reason_code"])


@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_a_field_of_the_match_refuses_and_lets_pass(shim: Agent, case: Case) -> None:
    assert outcome(shim, case, case.refused) == case.reason_code
    assert outcome(shim, case, case.passed) == "passed"


@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_the_case_above_would_fail_if_the_field_were_ignored(ignoring: Agent, case: Case) -> None:
    judged = outcome(ignoring, case, case.refused), outcome(ignoring, case, case.passed)
    assert judged != (case.reason_code, "passed")


def test_the_refused_agent_reads_what_could_not_be_judged(shim: Agent) -> None:
    case = next(case for case in CASES if case.reason_code == "UNJUDGED_ARGS")
    error = shim.call(case.tool, case.refused)["error"]
    assert "more than 1,000 elements" in error["message"]
    assert "several smaller calls" in error["message"]
