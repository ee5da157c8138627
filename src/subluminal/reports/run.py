"""What a run has to say in the formats of CI systems: its refused calls as SARIF, its tools as JUnit test cases."""

from __future__ import annotations

from typing import Any

from subluminal.contracts.digest import sha256_hex
from subluminal.host.home import REPOSITORY_TOOLS_LOCK
from subluminal.ledger.fold.drift import Drift
from subluminal.ledger.fold.run_facts import Refusal, RunFacts
from subluminal.reports.junit import ERROR, FAILURE, Case, Fault, Suite, count, junit_xml
from subluminal.reports.printable import printable
from subluminal.reports.sarif import message, place, result, sarif

_LEVELS = {"critical": "error", "warn": "warning", "info": "note"}
_NAMED_CALLS = 20
DRIFT_RULE = "tool-drift"
_DIFF_LINES = 100
# rule_id -> (address relative to the repository, line)
Places = dict[str, tuple[str, int]]


def run_sarif(facts: RunFacts, places: Places, problems: list[str]) -> dict[str, Any]:
    """One result for each refused call that is kept. `places` gives the rules whose text is in this repository."""
    rules = {_rule(refusal): f"Tool calls refused by {_rule(refusal)}" for refusal in facts.refusals}
    results = [_result(refusal, places) for refusal in facts.refusals]
    if facts.drifts:
        rules[DRIFT_RULE] = "What a server says of a tool differs from its pin"
        results += [_drifted(drift) for drift in facts.drifts.values()]
    invocation: dict[str, Any] = {"executionSuccessful": not problems}
    if facts.started_at:
        invocation["startTimeUtc"] = facts.started_at
    if facts.ended_at:
        invocation["endTimeUtc"] = facts.ended_at
    if problems:
        notes = [{"level": "error", "message": message(problem)} for problem in problems]
        invocation["toolExecutionNotifications"] = notes
    details = {"id": f"subluminal/{facts.agent_id or 'agent'}/{facts.run_id}"}
    about = {"automationDetails": details, "invocations": [invocation]}
    return sarif("subluminal", rules, results, about)


def _rule(refusal: Refusal) -> str:
    return refusal.rule_id or refusal.reason_code


def _result(refusal: Refusal, places: Places) -> dict[str, Any]:
    rule = _rule(refusal)
    name = f"{refusal.server_name}/{refusal.tool_name}"
    # Services refuse results without a file: what no rule of the repository refused points at the record beside this.
    uri, line = places.get(rule, ("events.jsonl", 1))
    logical = {"name": printable(refusal.tool_name), "fullyQualifiedName": printable(name), "kind": "function"}
    return result(
        rule,
        _LEVELS.get(refusal.severity, "warning"),
        f"{refusal.action}: {refusal.summary} {refusal.advice}".strip(),
        {"logicalLocations": [logical], **place(uri, startLine=line)},
        partialFingerprints={"call/v1": sha256_hex(f"{rule}\0{name}\0{refusal.reason_code}".encode())},
        properties={"call_id": refusal.call_id, "reason_code": refusal.reason_code, "ts": refusal.ts},
    )


def _drifted(drift: Drift) -> dict[str, Any]:
    logical = {"name": printable(drift.name), "fullyQualifiedName": printable(drift.title), "kind": "function"}
    return result(
        DRIFT_RULE,
        "error",
        "\n".join([f"{drift.title} differs from its pin.", *drift.diff[:_DIFF_LINES]]),
        {"logicalLocations": [logical], **place(REPOSITORY_TOOLS_LOCK, startLine=1)},
        partialFingerprints={"tool/v1": sha256_hex(drift.title.encode("utf-8", "replace"))},
    )


def run_junit(facts: RunFacts, exit_code: int | None, problems: list[str]) -> bytes:
    """One case for each tool that was called, failed if any of its calls was refused. Times are the calls' own.

    `problems`: what is wrong beside refused calls; they count as errors of the run itself.
    """
    seconds = sum(tool.latency_ms for tool in facts.tools.values()) / 1000
    cases = [*_tool_cases(facts), *map(_drift_case, facts.drifts.values())]
    cases.append(_case("sub.run", "the agent's run", 0.0, _run_fault(exit_code, problems)))
    attributes = {
        "name": f"subluminal {facts.agent_id or 'agent'}",
        "tests": str(len(cases)),
        "failures": count(cases, FAILURE),
        "errors": count(cases, ERROR),
        "skipped": "0",
        "time": f"{seconds:.3f}",
        "timestamp": (facts.started_at or "1970-01-01T00:00:00Z")[:19],
    }
    known = ("run_id", "env", "client", "status", "mode")
    properties = {name: str(getattr(facts, name) or "unknown") for name in known}
    return junit_xml([Suite(attributes, cases, properties)])


def _tool_cases(facts: RunFacts) -> list[Case]:
    by_tool: dict[tuple[str, str], list[Refusal]] = {}
    for refusal in facts.refusals:
        by_tool.setdefault((refusal.server_name, refusal.tool_name), []).append(refusal)
    cases = []
    for (server_name, tool_name), tool in facts.tools.items():
        fault = None
        if tool.counts.blocked:
            first = f"{tool.counts.blocked} of {tool.counts.total} calls refused: {tool.first_refusal}"
            lines = map(_line, by_tool.get((server_name, tool_name), [])[:_NAMED_CALLS])
            fault = Fault(FAILURE, {"message": first, "type": "refused"}, "\n".join(lines))
        cases.append(_case(f"mcp.{server_name}", tool_name, tool.latency_ms / 1000, fault))
    return cases


def _drift_case(drift: Drift) -> Case:
    message = f"differs from its pin: {', '.join(drift.fields) or 'its text'}"
    fault = Fault(FAILURE, {"message": message, "type": "drift"}, "\n".join(drift.diff[:_DIFF_LINES]))
    return _case(f"pin.{drift.server_name}", drift.name or drift.kind, 0.0, fault)


def _run_fault(exit_code: int | None, problems: list[str]) -> Fault | None:
    if problems:
        return Fault(ERROR, {"message": problems[0], "type": "record"}, "\n".join(problems))
    if exit_code:
        return Fault(FAILURE, {"message": f"the agent ended with exit code {exit_code}", "type": "exit"})
    return None


def _case(class_name: str, name: str, seconds: float, fault: Fault | None) -> Case:
    """Names are shown in lists, by which CI systems follow a case from run to run: one line, nothing invisible."""
    return Case({"classname": printable(class_name), "name": printable(name), "time": f"{seconds:.3f}"}, fault)


def _line(refusal: Refusal) -> str:
    return (
        f"{refusal.ts} {refusal.action} {refusal.call_id} rule {_rule(refusal)} ({refusal.severity}): {refusal.summary}"
    )
