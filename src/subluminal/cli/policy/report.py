"""Findings in the formats that editors and CI systems read: one function each."""

from __future__ import annotations

import re
from typing import Any

from subluminal import __version__
from subluminal.policy.lint.findings import ERROR, Finding


def as_json(findings: list[Finding], files: list[str]) -> dict[str, Any]:
    errors = sum(1 for finding in findings if finding.level == ERROR)
    return {
        "files": files,
        "findings": [finding.as_dict() for finding in findings],
        "errors": errors,
        "warnings": len(findings) - errors,
    }


def as_sarif(findings: list[Finding]) -> dict[str, Any]:
    """SARIF 2.1.0, as code scanning services take it."""
    codes = sorted({finding.code for finding in findings})
    driver = {
        "name": "sub policy lint",
        "version": __version__,
        "rules": [{"id": code, "shortDescription": {"text": code.replace("-", " ")}} for code in codes],
    }
    return {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "results": [_sarif_result(f, codes) for f in findings]}],
    }


def _sarif_result(finding: Finding, codes: list[str]) -> dict[str, Any]:
    rule = f'Rule "{finding.rule_id}": ' if finding.rule_id is not None else ""
    place = {
        "artifactLocation": {"uri": finding.file.replace("\\", "/")},
        "region": {"startLine": finding.line, "startColumn": finding.column},
    }
    return {
        "ruleId": finding.code,
        "ruleIndex": codes.index(finding.code),
        "level": finding.level,
        "message": {"text": f"{rule}{finding.message}. Fix: {finding.fix}"},
        "locations": [{"physicalLocation": place}],
    }


def as_github(finding: Finding) -> str:
    """A workflow command: GitHub shows it at the line of the pull request."""
    rule = f'rule "{finding.rule_id}": ' if finding.rule_id is not None else ""
    message = _escape(f"{rule}{finding.message}. Fix: {finding.fix}")
    place = f"file={_escape_property(finding.file)},line={finding.line},col={finding.column}"
    return f"::{finding.level} {place},title={_escape_property(finding.code)}::{message}"


def _escape(text: str) -> str:
    """Line breaks would let a hostile bundle issue workflow commands of its own."""
    return re.sub(r"[%\r\n]", lambda match: f"%{ord(match.group()):02X}", text)


def _escape_property(text: str) -> str:
    return _escape(text).replace(":", "%3A").replace(",", "%2C")
