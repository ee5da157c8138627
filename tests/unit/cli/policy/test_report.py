"""What `sub policy lint` and `sub policy test` write for machines is golden, whatever a bundle's author wrote."""

from __future__ import annotations

import json
import os

import jsonschema

from harness import places
from subluminal import __version__
from subluminal.cli.policy.report import as_junit, as_sarif
from subluminal.policy.lint.findings import ERROR, WARNING, Finding
from subluminal.policy.replay.testing import Failure, FileResult
from subluminal.policy.replay.testing import TestResult as Result

HOSTILE = '<&"\x01\n::error::]]>é\u202e'
FINDINGS = [
    Finding(ERROR, "unknown-field", "unknown field", "did you mean x?", "a\\b.yaml", 3, 5, HOSTILE),
    Finding(WARNING, "never-fires", f"the rule {HOSTILE} never fires", "remove it", "p.yaml", 1, 1),
    Finding(ERROR, "unknown-field", "another", "the same", "p.yaml", 7, 2, "rule"),
]


def golden(name: str, text: str) -> str:
    path = places.FIXTURES / "reports" / name
    if os.environ.get("SUB_UPDATE_GOLDEN"):
        path.write_text(text, encoding="utf-8")
    return path.read_text(encoding="utf-8")


def test_findings_as_sarif_are_the_golden_ones_and_valid() -> None:
    report = as_sarif(FINDINGS)
    text = json.dumps(report, indent=2, ensure_ascii=False).replace(f'"{__version__}"', '"VERSION"') + "\n"
    assert text == golden("lint.sarif", text)
    schema = json.loads((places.FIXTURES / "bundles" / "sarif.schema.json").read_text())
    jsonschema.Draft202012Validator(schema).validate(report)


def test_results_of_tests_as_junit_are_the_golden_ones() -> None:
    good, bad = FileResult("a.test.yaml", "a.yaml", {}), FileResult(HOSTILE, "b.yaml", {})
    good.results = [Result("reads", None, 0.0012345)]
    failure = Failure(2, 3, ["expected action ALLOW", HOSTILE], f"refused {HOSTILE}", [])
    bad.results = [Result(HOSTILE, failure, 0.5), Result("fine", None, 1.25)]
    text = as_junit([good, bad]).decode()
    assert text == golden("policy.junit.xml", text)
    assert as_junit([]).decode() == "<?xml version='1.0' encoding='utf-8'?>\n<testsuites />\n"
