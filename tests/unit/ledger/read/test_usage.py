"""What the models of a run used: summed as it was stated, and told where it was not."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from harness.command_line import run_sub, stored
from harness.ledger import EventMaker, verify_all
from subluminal.ledger.fold.reading import read_event
from subluminal.ledger.fold.run_facts import RunFacts
from subluminal.ledger.read.ledger import open_ledger
from subluminal.ledger.store.writer import Store
from subluminal.reports.usage import usage_told

CLAUDE = {"input_tokens": 10, "output_tokens": 5, "cache_read_input_tokens": 2000, "cached_in_input": False}


def run_of(*messages: dict[str, Any], shim_id: str = "door") -> list[bytes]:
    maker = EventMaker("run-1", shim_id)
    return [maker.run_start(), *(maker.event("model_message", model=each) for each in messages), maker.run_end()]


def usage(*messages: dict[str, Any]) -> dict[str, Any]:
    facts = RunFacts("run-1")
    for line in run_of(*messages):
        facts.add(read_event(line))
    found: dict[str, Any] = facts.summary()["usage"]
    return found


def test_sums_are_of_what_was_stated_and_the_silent_are_counted() -> None:
    found = usage(CLAUDE, {"message_id": "cut"}, CLAUDE)
    assert found["messages"] == 3
    assert found["input_tokens"] == {"sum": 20, "unstated": 1}
    assert found["cache_read_input_tokens"] == {"sum": 4000, "unstated": 1}
    assert found["reasoning_tokens"] == {"sum": None, "unstated": 3}, "not known, and not zero"
    assert usage({"output_tokens": 0})["output_tokens"] == {"sum": 0, "unstated": 0}, "zero, where it was stated"


@pytest.mark.parametrize(("second", "both"), [(True, None), (False, False), (None, None)])
def test_whether_cached_tokens_are_counted_in_is_told_where_all_agree(second: bool | None, both: bool | None) -> None:
    other = {} if second is None else {"cached_in_input": second}
    assert usage(CLAUDE, other)["cached_in_input"] is both


def test_a_run_without_a_model_has_none() -> None:
    facts = RunFacts("run-1")
    for line in run_of():
        facts.add(read_event(line))
    assert facts.usage is None and "usage" not in facts.summary()


def test_it_is_told_in_one_line() -> None:
    assert usage_told(usage(CLAUDE)) == ("1 message, tokens: 10 in, 5 out, 2,000 from the cache, not counted in")
    assert usage_told(usage(CLAUDE, {})) == (
        "2 messages, tokens: 10 in (1 message did not say), 5 out (1 message did not say),"
        " 2,000 from the cache (1 message did not say)"
    )
    assert usage_told(usage({})) == "1 message, tokens: unknown in, unknown out, unknown from the cache"


def test_runs_and_show_tell_it_and_verify_finds_it_changed(tmp_path: Path) -> None:
    stored(tmp_path, [*run_of(CLAUDE, {}), *run_of(CLAUDE, shim_id="other")])
    (listed,) = map(json.loads, run_sub(tmp_path, "runs", "--json", "--no-sync").stdout.splitlines())
    assert listed["usage"]["messages"] == 3
    assert listed["usage"]["output_tokens"] == {"sum": 10, "unstated": 1}
    shown = json.loads(run_sub(tmp_path, "show", "run-1", "--json", "--no-sync").stdout)
    assert shown["usage"] == listed["usage"]
    assert [item["model"] for item in shown["timeline"] if item["kind"] == "model_message"] == [CLAUDE, CLAUDE, {}]
    text = run_sub(tmp_path, "show", "run-1", "--no-sync").stdout
    assert text.count("3 messages, tokens: 20 in (1 message did not say)") == 1
    assert run_sub(tmp_path, "tail", "--no-follow").stdout.count("message") == 0, "tail has calls to show"
    path = str(tmp_path / "ledger.db")
    assert [report.faults for report in verify_all(path)] == [[]]
    with sqlite3.connect(path) as database:
        database.execute("UPDATE runs SET usage_json = replace(usage_json, '20', '2')")
    database.close()
    assert verify_all(path)[0].faults


def test_it_goes_on_where_the_writer_starts_anew(tmp_path: Path) -> None:
    path = str(tmp_path / "ledger.db")
    for line in run_of(CLAUDE, CLAUDE):
        store = Store(path)
        store.write(lambda line=line, store=store: store.add(line))
        store.close()
    with open_ledger(path) as ledger:
        assert ledger.run("run-1")["usage"]["input_tokens"] == {"sum": 20, "unstated": 0}
    assert [report.faults for report in verify_all(path)] == [[]]
