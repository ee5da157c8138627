"""A run as JUnit XML: one test case for each tool that was called, failed if any of its calls was refused.

Times are the calls' own. Names come from agents and servers: what XML cannot hold is replaced.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

from subluminal.ledger.fold.run_facts import Refusal, RunFacts

# XML 1.0 has no way at all to write these, not even escaped.
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_NAMED_CALLS = 20


def junit_xml(facts: RunFacts, exit_code: int | None, problems: list[str]) -> bytes:
    """`problems`: what is wrong beside refused calls; they count as errors of the run itself."""
    cases: list[ET.Element] = []
    by_tool: dict[tuple[str, str], list[Refusal]] = {}
    for refusal in facts.refusals:
        by_tool.setdefault((refusal.server_name, refusal.tool_name), []).append(refusal)
    for (server_name, tool_name), tool in facts.tools.items():
        case = _case(f"mcp.{server_name}", tool_name, tool.latency_ms / 1000)
        if tool.counts.blocked:
            first = f"{tool.counts.blocked} of {tool.counts.total} calls refused: {tool.first_refusal}"
            failure = ET.SubElement(case, "failure", message=_text(first), type="refused")
            failure.text = _text("\n".join(map(_line, by_tool.get((server_name, tool_name), [])[:_NAMED_CALLS])))
        cases.append(case)
    cases.append(_run_case(exit_code, problems))
    suite = ET.Element(
        "testsuite",
        name=_text(f"subluminal {facts.agent_id or 'agent'}"),
        tests=str(len(cases)),
        failures=str(sum(case.find("failure") is not None for case in cases)),
        errors=str(sum(case.find("error") is not None for case in cases)),
        skipped="0",
        time=f"{sum(float(case.get('time') or 0) for case in cases):.3f}",
        timestamp=(facts.started_at or "1970-01-01T00:00:00Z")[:19],
    )
    properties = ET.SubElement(suite, "properties")
    for name in ("run_id", "env", "client", "status", "mode"):
        ET.SubElement(properties, "property", name=name, value=_text(str(getattr(facts, name) or "unknown")))
    suite.extend(cases)
    root = ET.Element("testsuites")
    root.append(suite)
    ET.indent(root)
    return bytes(ET.tostring(root, encoding="utf-8", xml_declaration=True)) + b"\n"


def _run_case(exit_code: int | None, problems: list[str]) -> ET.Element:
    case = _case("sub.run", "the agent's run", 0.0)
    if problems:
        error = ET.SubElement(case, "error", message=_text(problems[0]), type="record")
        error.text = _text("\n".join(problems))
    elif exit_code:
        ET.SubElement(case, "failure", message=f"the agent ended with exit code {exit_code}", type="exit")
    return case


def _case(class_name: str, name: str, seconds: float) -> ET.Element:
    return ET.Element("testcase", classname=_name(class_name), name=_name(name), time=f"{seconds:.3f}")


def _line(refusal: Refusal) -> str:
    rule = refusal.rule_id or refusal.reason_code
    return f"{refusal.ts} {refusal.action} {refusal.call_id} rule {rule} ({refusal.severity}): {refusal.summary}"


def _name(text: str) -> str:
    """Names are shown in lists, by which CI systems follow a case from run to run: one line, nothing invisible."""
    return "".join(c if c.isprintable() else "�" for c in text)


def _text(text: str) -> str:
    return _NOT_XML.sub("�", text)
