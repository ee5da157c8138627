"""Findings and results of tests in the formats that editors and CI systems read: one function each."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from subluminal.policy.lint.findings import ERROR, NOTE, WARNING, Finding
from subluminal.reports.junit import FAILURE, Case, Fault, Suite, count, junit_xml
from subluminal.reports.printable import printable
from subluminal.reports.sarif import place, result, sarif

if TYPE_CHECKING:
    from subluminal.policy.replay.testing import FileResult


def as_json(findings: list[Finding], files: list[str]) -> dict[str, Any]:
    return {
        "files": files,
        "findings": [finding.as_dict() for finding in findings],
        "errors": sum(finding.level == ERROR for finding in findings),
        "warnings": sum(finding.level == WARNING for finding in findings),
        "notes": sum(finding.level == NOTE for finding in findings),
    }


def as_sarif(findings: list[Finding]) -> dict[str, Any]:
    rules = {code: code.replace("-", " ") for code in sorted({finding.code for finding in findings})}
    return sarif("sub policy lint", rules, [_sarif_result(finding) for finding in findings])


def _sarif_result(finding: Finding) -> dict[str, Any]:
    rule = f'Rule "{finding.rule_id}": ' if finding.rule_id is not None else ""
    where = place(finding.file.replace("\\", "/"), startLine=finding.line, startColumn=finding.column)
    return result(finding.code, finding.level, f"{rule}{finding.message}. Fix: {finding.fix}", where)


def as_junit(files: list[FileResult]) -> bytes:
    return junit_xml(map(_junit_suite, files))


def _junit_suite(file: FileResult) -> Suite:
    cases = []
    for test in file.results:
        failure = test.failure
        fault = Fault(FAILURE, {"message": failure.text()}, failure.summary) if failure else None
        cases.append(Case({"name": test.name, "classname": file.policy, "time": f"{test.seconds:.6f}"}, fault))
    seconds = sum(test.seconds for test in file.results)
    attributes = {"name": file.path, "tests": str(len(cases)), "failures": count(cases, FAILURE)}
    return Suite({**attributes, "time": f"{seconds:.6f}"}, cases, {})


def as_github(finding: Finding) -> str:
    """A workflow command: GitHub shows it at the line of the pull request."""
    rule = f'rule "{finding.rule_id}": ' if finding.rule_id is not None else ""
    message = _escape(f"{rule}{finding.message}. Fix: {finding.fix}")
    place = f"file={_escape_property(finding.file)},line={finding.line},col={finding.column}"
    command = "notice" if finding.level == NOTE else finding.level
    return f"::{command} {place},title={_escape_property(finding.code)}::{message}"


def _escape(text: str) -> str:
    """Line breaks would let a hostile bundle issue workflow commands of its own."""
    return re.sub(r"[%\r\n]", lambda match: f"%{ord(match.group()):02X}", printable(text, keep="\r\n"))


def _escape_property(text: str) -> str:
    return _escape(text).replace(":", "%3A").replace(",", "%2C")
