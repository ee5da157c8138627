"""Run a policy's test files against the real engine, and count which rules they exercised."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import msgspec
from msgspec import UNSET, Struct

from subluminal.contracts.decision import Decision
from subluminal.contracts.identity import Identity
from subluminal.contracts.moments import epoch_ms
from subluminal.contracts.toolcall import ToolCall
from subluminal.core.engine.stack import Verdict
from subluminal.core.engine.trace import Matched
from subluminal.policy.compile.bundle import compile_bundle
from subluminal.policy.compile.snapshot import read_source
from subluminal.policy.lint.findings import shown
from subluminal.policy.replay.cases import Call, CaseFile, Expect, Test, Who, load_cases, policy_of
from subluminal.policy.replay.simulate import Simulation, read_once

_HOUR_MS = 3_600_000


class Failure(NamedTuple):
    """The first call of a test that was decided otherwise; the rest of the run would only repeat it."""

    call: int
    repeat: int
    differences: list[str]
    summary: str
    trace: list[dict[str, Any]]

    def text(self) -> str:
        nth = f", repeat {self.repeat}" if self.repeat > 1 else ""
        return f"call {self.call}{nth}: " + "; ".join(self.differences)

    def as_dict(self) -> dict[str, Any]:
        return dict(sorted(self._asdict().items()))


class TestResult(NamedTuple):
    name: str
    failure: Failure | None
    seconds: float


class FileResult(Struct, eq=False):
    """One test file. `covered` maps each enabled rule to whether any call matched it."""

    path: str
    policy: str
    covered: dict[str, bool]
    results: list[TestResult] = []

    def as_dict(self) -> dict[str, Any]:
        return {
            "file": self.path,
            "policy": self.policy,
            "tests": [
                {
                    "name": result.name,
                    "ok": result.failure is None,
                    "failure": result.failure.as_dict() if result.failure else None,
                }
                for result in self.results
            ],
            "coverage": {
                "rules": len(self.covered),
                "covered": sum(self.covered.values()),
                "missed": [rule_id for rule_id, hit in self.covered.items() if not hit],
            },
        }


def run_file(path: str, pattern: str | None = None, snapshot: dict[str, Any] | None = None) -> FileResult:
    """Run the tests of one file whose name contains `pattern`; raises PolicyError if a file is broken.

    `snapshot`: not the policy that the file is about, but this one."""
    cases = load_cases(path)
    policy = policy_of(path, cases)
    snapshot = compile_bundle(read_source(policy), policy) if snapshot is None else snapshot
    results: list[TestResult] = []
    matched = Matched()
    simulations: dict[bytes, Simulation] = {}
    for test in _selected(cases, pattern):
        started = time.perf_counter()
        simulation = _of_identity(test.identity, snapshot, simulations)
        failure = run_test(test, simulation, matched)
        results.append(TestResult(test.name, failure, time.perf_counter() - started))
    rule_ids = [rule["rule_id"] for rule in snapshot["rules"] if rule["enabled"]]
    return FileResult(path, policy, {rule_id: rule_id in matched.rule_ids for rule_id in rule_ids}, results)


def _selected(cases: CaseFile, pattern: str | None) -> list[Test]:
    return [test for test in cases.tests if pattern is None or pattern.lower() in test.name.lower()]


def _of_identity(who: Who, snapshot: dict[str, Any], known: dict[bytes, Simulation]) -> Simulation:
    """One engine for all tests of an identity: what it prepares for a tool costs more than to judge a call."""
    key = msgspec.json.encode(who)
    if key not in known:
        workload = None if who.workload is UNSET else who.workload
        known[key] = Simulation(snapshot, Identity("test", who.agent_id, who.client, who.env, None, workload))
    return known[key]


def run_test(
    test: Test, simulation: Simulation, matched: Matched, traced: tuple[int, int] | None = None
) -> Failure | None:
    """Which rules match is looked at for the first and the last of a call that is repeated, and for one in each hour of
    the clock: it depends on nothing else. `traced`: a call that has failed, to be told of rule by rule."""
    start_ms = epoch_ms(test.at)
    simulation.begin(start_ms)
    at_ms = 0
    for number, call in enumerate(test.calls, 1):
        at_ms = at_ms if call.at_ms is UNSET else call.at_ms
        raw = msgspec.json.encode(call.args)
        read, hour = read_once(raw), -1
        made = ToolCall(call.server_name, call.tool_name, raw, len(raw), risk_classes=frozenset(call.risk_class))
        met: Decision | None = None  # the decision that meets what is expected, and its tags
        tags: list[str] = []
        for repeat in range(1, call.repeat + 1):
            at_ms += call.every_ms if repeat > 1 else 0
            before, hour = hour, (start_ms + at_ms) // _HOUR_MS
            trace: list[dict[str, Any]] | None = None
            if (number, repeat) == traced:
                verdict, trace = simulation.judge(made, *read, at_ms)
                matched.rule_ids.update(record["rule_id"] for record in trace if record["matched"])
            else:
                looks = hour != before or repeat == call.repeat
                verdict = simulation.decide(made, *read, at_ms, matched if looks else None)
            if verdict.decision is not met or verdict.tags != tags:
                differences = compare(call.expect, verdict)
                if differences and trace is None:
                    return run_test(test, simulation, matched, (number, repeat))
                if differences:
                    return Failure(number, repeat, differences, verdict.decision.summary, trace or [])
                met, tags = verdict.decision, verdict.tags
            if verdict.decision.action == "ALLOW":
                _settle(simulation, verdict, call, at_ms)
    return None


def _settle(simulation: Simulation, verdict: Verdict, call: Call, at_ms: int) -> None:
    simulation.settle(verdict, ok=call.status == "OK", latency_ms=call.latency_ms, at_ms=at_ms + call.latency_ms)


def compare(expect: Expect | str, verdict: Verdict) -> list[str]:
    """Every member of the expectation that the decision does not meet."""
    wanted = Expect(action=expect) if isinstance(expect, str) else expect  # type: ignore[arg-type]
    decision = verdict.decision
    hint, would = decision.hint, decision.would
    facts: dict[str, Any] = {
        "action": decision.action,
        "rule_id": decision.rule_id,
        "reason_code": decision.reason_code,
        "severity": decision.severity,
        "backoff_ms": decision.backoff_ms,
        "hint_kind": hint.hint_kind if hint else None,
        "suggested_args": hint.suggested_args if hint else None,
        "terminate_code": decision.terminate[0] if decision.terminate else None,
        "tags": verdict.tags,
    }
    differences = _differences(wanted, facts, "")
    if wanted.would is not UNSET:
        facts = {name: getattr(would, name, None) for name in ("action", "rule_id", "reason_code")}
        differences += _differences(wanted.would, facts, "would.")
    return differences


def _differences(wanted: Any, facts: dict[str, Any], prefix: str) -> list[str]:
    found = []
    for field, actual in facts.items():
        value = getattr(wanted, field)
        value = sorted(value) if field == "tags" and value is not UNSET else value
        if value is not UNSET and value != actual:
            found.append(f"expected {prefix}{field} {_word(value)}, got {_word(actual)}")
    return found


def _word(value: Any) -> str:
    return shown(value) if isinstance(value, str) else msgspec.json.encode(value).decode()
