"""What is known of a change before it is written: findings, the verdict of the diff, the policy's tests, the past."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec import Struct

from subluminal.contracts.history import RecordedRun
from subluminal.policy.compile.bundle import snapshot_of
from subluminal.policy.diff.change import Change as Difference
from subluminal.policy.diff.snapshots import diff_snapshots
from subluminal.policy.edit.changes import Change
from subluminal.policy.files import tests_beside
from subluminal.policy.lint.findings import Finding, InvalidPolicy, has_errors
from subluminal.policy.lint.load import load_bundle
from subluminal.policy.replay.compared import Comparison
from subluminal.policy.replay.testing import FileResult, run_file


class Evidence(Struct, eq=False):
    """`findings`: only those that the change brings. `broken`: files of tests that cannot be read."""

    snapshot: dict[str, Any]
    findings: list[Finding]
    differences: list[Difference]
    tests: list[FileResult]
    broken: list[str]
    past: Comparison

    @property
    def failed(self) -> list[str]:
        return [result.name for file in self.tests for result in file.results if result.failure is not None]

    def as_dict(self) -> dict[str, Any]:
        return {
            "lint": [finding.as_dict() for finding in self.findings],
            "diff": [difference.as_dict() for difference in self.differences],
            "tests": sum(len(file.results) for file in self.tests),
            "tests_failed": self.failed,
            "tests_unread": self.broken,
            "past": self.past.as_dict(),
        }


def gathered(
    path: str, before: bytes, after: bytes, change: Change, runs: Iterable[RecordedRun], old: dict[str, Any]
) -> Evidence:
    """Raises InvalidPolicy where the changed policy has errors."""
    loaded = load_bundle(after, path)
    if loaded.bundle is None or has_errors(loaded.findings):
        raise InvalidPolicy(loaded.findings)
    known = {(finding.code, finding.message) for finding in load_bundle(before, path).findings}
    snapshot = snapshot_of(loaded.bundle)
    tests: list[FileResult] = []
    broken: list[str] = []
    for name in tests_beside(path):
        try:
            tests.append(run_file(name, snapshot=snapshot))
        except InvalidPolicy:
            broken.append(name)
    concerned = change.rule or next(rule for rule in snapshot["rules"] if rule["rule_id"] == change.rule_id)
    past = Comparison(old, snapshot, concerned["match"])
    for run in runs:
        past.replay(run)
    findings = [finding for finding in loaded.findings if (finding.code, finding.message) not in known]
    return Evidence(snapshot, findings, diff_snapshots(old, snapshot), tests, broken, past)
