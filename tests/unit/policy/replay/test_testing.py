"""`sub policy test` and `explain` against the real engine."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import msgspec
import pytest

from harness import places
from harness.matching import knows_exceptions
from subluminal.cli.policy.report import as_junit
from subluminal.contracts.identity import Identity
from subluminal.contracts.moments import epoch_ms
from subluminal.contracts.toolcall import ToolCall
from subluminal.core.engine.trace import Matched
from subluminal.policy.compile.bundle import compile_bundle
from subluminal.policy.lint.findings import NOTE, InvalidPolicy
from subluminal.policy.lint.load import load_bundle
from subluminal.policy.replay import testing
from subluminal.policy.replay.cases import find_case_files, load_cases, policy_of
from subluminal.policy.replay.explain import explain_call
from subluminal.policy.replay.simulate import Simulation, decision_dict, read_once
from subluminal.policy.replay.testing import FileResult, run_file

EXAMPLES = places.FIXTURES / "policies" / "examples"

POLICY = """policy_id: p
version: "1"
mode: {mode}
defaults: {{decision_on_error: BLOCK}}
selectors: {{env: [ci]}}
rules:
  - &rule
    rule_id: tag
    kind: tag
    enabled: true
    severity: warn
    match: {{tool_name: {{glob: ["w*"]}}}}
    effect: {{tag: {{add_risk_class: [write_like]}}}}
  - {{<<: *rule, rule_id: night, kind: deny, match: {{time: {{utc_hours: ["22-5"]}}}}, effect: {{action: BLOCK}}}}
  - {{<<: *rule, rule_id: "off", enabled: false, kind: deny, match: {{}}, effect: {{action: BLOCK}}}}
  - <<: *rule
    rule_id: cap
    kind: budget
    match: {{risk_class: [write_like]}}
    effect: {{budget: {{scope: run, limit_calls: 2, on_exceed: BLOCK}}}}
"""

CI = "identity: {env: ci}"


def run(tmp_path: Path, tests: str, mode: str = "guardrails", pattern: str | None = None) -> FileResult:
    (tmp_path / "p.yaml").write_text(POLICY.format(mode=mode))
    (tmp_path / "p.test.yaml").write_text(f"tests:\n{tests}")
    return run_file(str(tmp_path / "p.test.yaml"), pattern)


def failures(result: FileResult) -> list[str | None]:
    return [test.failure.text() if test.failure else None for test in result.results]


@pytest.mark.parametrize("tests", find_case_files(str(EXAMPLES)), ids=lambda path: Path(path).name)
def test_the_examples_lint_clean_and_their_tests_pass_and_cover_every_rule(tests: str) -> None:
    result = run_file(tests)
    findings = load_bundle(Path(result.policy).read_bytes(), result.policy).findings
    assert [finding for finding in findings if finding.level != NOTE] == []
    assert set(failures(result)) == {None}
    assert all(result.covered.values())


@pytest.mark.parametrize("tests", find_case_files(str(EXAMPLES)), ids=lambda path: Path(path).name)
def test_the_rules_that_match_are_those_of_which_a_trace_says_so(tests: str) -> None:
    cases = load_cases(tests)
    policy = policy_of(tests, cases)
    snapshot, calls = compile_bundle(Path(policy).read_bytes(), policy), 0
    for test in cases.tests:
        who = Identity("test", test.identity.agent_id, test.identity.client, test.identity.env)
        told, counted = (Simulation(snapshot, who, epoch_ms(test.at)) for _ in range(2))
        for call in [each for each in test.calls for _ in range(min(each.repeat, 50))]:
            raw = msgspec.json.encode(call.args)
            made = ToolCall(call.server_name, call.tool_name, raw, len(raw), risk_classes=frozenset(call.risk_class))
            matched = Matched()
            verdict, trace = told.judge(made, *read_once(raw), calls)
            again = counted.decide(made, *read_once(raw), calls, matched)
            assert matched.rule_ids == {record["rule_id"] for record in trace if record["matched"]}
            assert (decision_dict(again.decision), again.tags) == (decision_dict(verdict.decision), verdict.tags)
            for simulation, each in ((told, verdict), (counted, again)):
                simulation.settle(each, ok=call.status == "OK", latency_ms=call.latency_ms, at_ms=calls)
            calls += 1
    assert calls


def test_tests_of_one_identity_share_an_engine_and_nothing_that_it_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Identity] = []

    class Counted(testing.Simulation):
        def __init__(self, snapshot: dict[str, Any], identity: Identity) -> None:
            made.append(identity)
            super().__init__(snapshot, identity)

    monkeypatch.setattr(testing, "Simulation", Counted)
    twice = "calls: [{server_name: s, tool_name: write, repeat: 2, expect: ALLOW}]"
    who = ["{env: ci}", "{env: ci}", "{env: prod}", "{env: ci, workload: {repo: a}}"]
    tests = "".join(f"  - {{name: t{n}, identity: {each}, {twice}}}\n" for n, each in enumerate(who))
    assert failures(run(tmp_path, tests)) == [None] * 4
    assert [(each.env, each.workload) for each in made] == [("ci", None), ("prod", None), ("ci", {"repo": "a"})]


def test_there_are_examples() -> None:
    assert len(find_case_files(str(EXAMPLES))) >= 4


def test_calls_share_state_and_time_passes_as_written(tmp_path: Path) -> None:
    result = run(
        tmp_path,
        f"""
  - name: budget
    {CI}
    calls:
      - {{server_name: s, tool_name: write, args: {{a: 1}}, repeat: 2, expect: {{action: ALLOW, tags: [write_like]}}}}
      - {{server_name: s, tool_name: write, expect: {{action: BLOCK, rule_id: cap, reason_code: BUDGET_EXCEEDED}}}}
      - {{server_name: s, tool_name: read, expect: {{action: ALLOW, rule_id: null}}}}
  - name: a fresh run has a fresh budget
    {CI}
    calls: [{{server_name: s, tool_name: write, expect: ALLOW}}]
  - name: the clock runs on
    {CI}
    at: "2026-01-01T21:59:59Z"
    calls:
      - {{server_name: s, tool_name: read, expect: ALLOW}}
      - {{server_name: s, tool_name: read, at_ms: 1000, expect: {{action: BLOCK, rule_id: night}}}}
  - name: the selectors leave others out
    calls: [{{server_name: s, tool_name: write, repeat: 9, expect: ALLOW}}]
""",
    )
    assert failures(result) == [None] * 4
    assert result.covered == {"tag": True, "night": True, "cap": True}


def test_a_failing_test_says_which_call_and_what_it_met(tmp_path: Path) -> None:
    result = run(
        tmp_path,
        f"""
  - name: wrong
    {CI}
    calls:
      - {{server_name: s, tool_name: read, expect: ALLOW}}
      - {{server_name: s, tool_name: write, repeat: 5, expect: {{action: ALLOW, severity: info}}}}
""",
    )
    assert failures(result) == [
        'call 2, repeat 3: expected action "ALLOW", got "BLOCK"; expected severity "info", got "warn"'
    ]


def test_an_observing_policy_is_tested_by_what_it_would_do(tmp_path: Path) -> None:
    tests = f"""
  - name: would
    {CI}
    calls:
      - {{server_name: s, tool_name: write, repeat: 2, expect: ALLOW}}
      - {{server_name: s, tool_name: write, expect: {{action: ALLOW, would: {{action: %s, rule_id: cap}}}}}}
"""
    assert failures(run(tmp_path, tests % "BLOCK", "observe")) == [None]
    assert failures(run(tmp_path, tests % "THROTTLE", "observe")) == [
        'call 2: expected would.action "THROTTLE", got "BLOCK"'
    ]


def test_only_the_named_tests_run(tmp_path: Path) -> None:
    one = "calls: [{server_name: s, tool_name: t, expect: ALLOW}]"
    result = run(tmp_path, f"  - {{name: Budget one, {one}}}\n  - {{name: other, {one}}}\n", pattern="budget")
    assert [test.name for test in result.results] == ["Budget one"]
    assert not any(result.covered.values())


def test_a_broken_test_file_is_described_like_a_broken_policy(tmp_path: Path) -> None:
    (tmp_path / "p.test.yaml").write_text(
        "tests:\n"
        "  - name: x\n"
        "    calls:\n"
        "      - {server: s, tool_name: t, expect: ALOW}\n"
        "      - {server_name: s, tool_name: t, expect: {action: BLOK, rule: x}}\n"
    )
    with pytest.raises(InvalidPolicy) as raised:
        load_cases(str(tmp_path / "p.test.yaml"))
    found = {(f.line, f.code, f.fix) for f in raised.value.findings}
    assert (4, "unknown-field", 'did you mean "server_name"?') in found
    assert (4, "bad-value", 'did you mean "ALLOW"?') in found
    assert (5, "bad-value", 'did you mean "BLOCK"?') in found
    assert (5, "unknown-field", 'did you mean "rule_id"?') in found


def test_a_test_at_a_moment_that_does_not_exist_is_a_broken_test(tmp_path: Path) -> None:
    calls = "calls: [{server_name: s, tool_name: t, expect: ALLOW}]"
    (tmp_path / "p.test.yaml").write_text(f'tests:\n  - {{name: x, at: "2026-02-30T00:00:00Z", {calls}}}\n')
    with pytest.raises(InvalidPolicy, match="2026-02-30T00:00:00Z is not in the calendar"):
        load_cases(str(tmp_path / "p.test.yaml"))


def test_junit_counts_failures_and_survives_hostile_names(tmp_path: Path) -> None:
    result = run(
        tmp_path,
        '  - {name: "<&\\u0001]]>", calls: [{server_name: s, tool_name: t, expect: BLOCK}]}\n'
        "  - {name: fine, calls: [{server_name: s, tool_name: t, expect: ALLOW}]}\n",
    )
    suite = ET.fromstring(as_junit([result]))[0]
    assert (suite.get("tests"), suite.get("failures")) == ("2", "1")
    assert suite[0].get("name") == "<&\\x01]]>"
    failure = suite[0].find("failure")
    assert failure is not None
    assert "expected action" in str(failure.get("message"))


def explain(mode: str = "guardrails", tool: str = "write", repeat: int = 1, env: str = "ci") -> dict[str, object]:
    snapshot = compile_bundle(POLICY.format(mode=mode).encode(), "p.yaml")
    identity = Identity("x", env=env)
    return explain_call(snapshot, identity, "s", tool, b'{"a": 1}', wall_ms=12 * 3_600_000, repeat=repeat).as_dict()


def test_an_explanation_names_every_rule_in_order_and_why() -> None:
    trace = explain(repeat=3)["trace"]
    assert isinstance(trace, list)
    assert [(record["rule_id"], record["matched"]) for record in trace] == [
        ("tag", True),
        ("night", False),
        ("off", False),
        ("cap", True),
    ]
    assert trace[2]["why"] == "disabled"
    assert trace[3]["decision"] == "BLOCK"


@pytest.mark.contract("POL-001")
def test_an_observing_policy_allows_and_says_what_it_would_have_done() -> None:
    decision = explain("observe", repeat=3)["decision"]
    assert isinstance(decision, dict)
    assert decision["action"] == "ALLOW"
    assert decision["would"]["rule_id"] == "cap"


def test_a_policy_for_others_says_so() -> None:
    snapshot = compile_bundle(POLICY.format(mode="guardrails").encode(), "p.yaml")
    explanation = explain_call(snapshot, Identity("x", env="dev"), "s", "write", b"{}", wall_ms=0)
    assert explanation.left_out == 'selectors.env asks for "ci", and this run has "dev"'
    assert explanation.as_dict()["policy"]["applies"] is False
    assert explanation.decision["action"] == "ALLOW"


EXCEPTED = """policy_id: p
version: "1"
mode: guardrails
defaults: {decision_on_error: BLOCK}
selectors: {}
rules:
  - rule_id: notes
    kind: deny
    match: {any_of: [{tool_name: {glob: ["w*"]}}, {args: {key_contains: {text: [secret]}}}]}
    unless: {args: {key_glob: {path: ["*.md"]}}}
    effect: {action: BLOCK}
"""


@pytest.mark.skipif(not knows_exceptions(), reason="the engine does not know the language of 0.2 yet")
def test_a_rule_is_covered_by_a_call_to_which_it_applies_and_not_by_one_it_excepts(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(EXCEPTED)
    excepted = "{server_name: s, tool_name: write, args: {path: a.md}, expect: ALLOW}"
    refused = "{server_name: s, tool_name: say, args: {text: a secret}, expect: {action: BLOCK, rule_id: notes}}"
    for calls, covered in ((excepted, False), (f"{excepted}, {refused}", True)):
        (tmp_path / "p.test.yaml").write_text(f"tests:\n  - {{name: x, calls: [{calls}]}}\n")
        result = run_file(str(tmp_path / "p.test.yaml"))
        assert failures(result) == [None]
        assert result.covered == {"notes": covered}
