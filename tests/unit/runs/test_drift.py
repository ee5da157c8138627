"""A tool that differs from its pin fails a CI job, with the difference in the log, the summary, SARIF and JUnit."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

from harness.ledger import EventMaker
from subluminal.ledger.fold.reading import read_event
from subluminal.ledger.fold.run_facts import RunFacts
from subluminal.reports.markdown import markdown
from subluminal.reports.run import run_junit, run_sarif
from subluminal.runs.verdict import Strictness, judge, report

WAS = '{"description":"Reads.","name":"read"}'
NOW = '{"description":"Reads.\u200b # <b>all</b>","name":"read"}'


def drifted(pinned: bool = True) -> RunFacts:
    seen = {"kind": "tool", "name": "read", "fingerprint": "f", "state": "changed", "classes": ["changed"]}
    seen |= {"was": "g", "changed": ["description"], "definition": NOW, "was_definition": WAS}
    maker, facts = EventMaker("run-1", "s"), RunFacts("run-1")
    tools = {"server_name": "fs", "launch": "", "items": [seen | ({"pinned": True} if pinned else {})]}
    for line in (maker.run_start(), maker.event("tools_seen", tools=tools), maker.run_end()):
        facts.add(read_event(line))
    return facts


def test_a_drift_fails_a_strict_job_and_is_told_everywhere(tmp_path: Path) -> None:
    facts = drifted()
    verdict = judge(facts, [], False, Strictness(True))
    assert verdict.failed and verdict.text == "failed: 1 tool differs from its pin: fs/read"
    assert not judge(facts, [], False, Strictness(False)).failed
    added = "+description: Reads.‹U+200B› # <b>all</b>"
    assert f"      {added}" in report(facts, verdict)
    assert f"      {added}" in markdown(facts, verdict.text, []).split("\n")
    (result,) = run_sarif(facts, {}, [])["runs"][0]["results"]
    assert result["ruleId"] == "tool-drift" and added in result["message"]["text"]
    suite = ElementTree.fromstring(run_junit(facts, 0, []))
    (failure,) = suite.iter("failure")
    assert failure.get("message") == "differs from its pin: description" and added in (failure.text or "")
    assert json.loads(json.dumps(facts.summary()["drifts"][0].fields)) == ["description"]


def test_a_change_of_what_nobody_pinned_fails_no_job() -> None:
    assert not judge(drifted(pinned=False), [], False, Strictness(True)).failed
