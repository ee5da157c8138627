"""The files of `sub run --bundle DIR` beside the record: for machines, for the job's page, for a browser.

    summary.json  junit.xml  results.sarif  summary.md  report.html  policies/

They are written now and then while the run is on, each whole, so that a killed job leaves sensible ones.
"""

from __future__ import annotations

import os
import time
from typing import Any

from subluminal.host import home
from subluminal.host.files import replace_file
from subluminal.ledger.fold.run_facts import RunFacts
from subluminal.ledger.trace.seal import write_json, write_policies
from subluminal.reports.html import html
from subluminal.reports.markdown import markdown
from subluminal.reports.run import Places, run_junit, run_sarif
from subluminal.runs.verdict import Verdict

FORMAT = "subluminal-run-summary"
REFRESH_S = 5.0
# Reports must not cost the run: at most this share of one core.
_SHARE = 0.05
# What GitHub takes as a job's summary.
MAX_STEP_SUMMARY_BYTES = 1 << 20


class Artefacts:
    def __init__(self, directory: str, facts: RunFacts, places: Places) -> None:
        self.directory = directory
        self.facts = facts
        self.places = places
        self.policies: list[str] = []
        self._due = 0.0
        self._seen = -1

    def refresh(self, problems: list[str]) -> None:
        """Now and then, if anything has happened."""
        started = time.monotonic()
        if started < self._due or self.facts.events == self._seen:
            return
        self._seen = self.facts.events
        self.write(Verdict(False, "still running when this was written", []), None, None, problems)
        self._due = time.monotonic() + max(REFRESH_S, (time.monotonic() - started) / _SHARE)

    def write(self, verdict: Verdict, child: int | None, code: int | None, problems: list[str]) -> None:
        facts = self.facts
        failed = verdict.failed or bool(child)
        text = f"the agent ended with exit code {child}" if child and not verdict.failed else verdict.text
        self.policies = write_policies(self.directory, list(facts.policies), home.snapshot_dir())
        summary: dict[str, Any] = {
            "format": FORMAT,
            "format_version": 1,
            "state": "running" if code is None else "ended",
            "verdict": {"failed": failed, "text": text, "reasons": verdict.reasons},
            "agent_exit_code": child,
            "exit_code": code,
            "problems": problems,
            **facts.summary(),
        }
        write_json(self._path("summary.json"), summary)
        replace_file(self._path("junit.xml"), run_junit(facts, child, problems))
        write_json(self._path("results.sarif"), run_sarif(facts, self.places, problems))
        replace_file(self._path("summary.md"), _utf8(markdown(facts, text, problems)))
        replace_file(self._path("report.html"), _utf8(html(facts, text, failed, problems)))

    def _path(self, name: str) -> str:
        return os.path.join(self.directory, name)


def add_step_summary(path: str, facts: RunFacts, verdict: Verdict, problems: list[str]) -> None:
    """Append to the job's page where the CI system has one ($GITHUB_STEP_SUMMARY). Its trouble is not the run's."""
    data = _utf8(markdown(facts, verdict.text, problems))
    try:
        with open(path, "ab") as file:
            if file.tell() + len(data) <= MAX_STEP_SUMMARY_BYTES:
                file.write(data)
    except OSError:
        pass


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "replace")
