"""A run as one value: the same as the ledger tells piece by piece, out of a ledger or of a bundle."""

from __future__ import annotations

import base64
import gzip
import json
import re
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from harness.ledger import EventMaker
from subluminal.contracts.errors import UsageError
from subluminal.ledger.read import whole
from subluminal.ledger.read.description import describe
from subluminal.ledger.read.ledger import Ledger, open_ledger
from subluminal.ledger.read.timeline import timeline
from subluminal.ledger.store.writer import Store
from subluminal.reports.page import page


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    maker = EventMaker("run-1", "shim-1")
    hint = {"hint_text": "Else.", "hint_kind": "OTHER", "suggested_args": {"a": 1}, "retry_advice": None}
    refused = [maker.start("push"), maker.decision("REJECT_WITH_HINT", hint=hint), maker.end("ERROR")]
    lines = [maker.run_start(), *refused, *maker.call(), maker.start(), maker.run_end()]
    path = str(tmp_path / "ledger.db")
    store(path, lines)
    with open_ledger(path) as opened:
        yield opened


def store(path: str, lines: list[bytes]) -> None:
    opened = Store(path)
    with opened.batch():
        for line in lines:
            opened.add(line)
    opened.close()


def test_each_call_is_what_the_ledger_tells_of_it(ledger: Ledger) -> None:
    told = whole.whole_run(ledger, "run-1")
    assert [call["call_id"] for call in told["calls"]] == ["shim-1-3", "shim-1-2", "shim-1-1"]
    for call in told["calls"]:
        known = describe(ledger, ledger.call(call["call_id"], "run-1", "shim-1"))
        assert {name: call[name] for name in known} == known
    assert told["run"] == ledger.run("run-1")
    items = timeline(ledger, "run-1")
    assert [item["kind"] for item in told["timeline"]["items"]] == [item["kind"] for item in items]
    assert not any("args_preview" in item for item in told["timeline"]["items"])


def test_a_run_of_more_calls_than_a_page_holds_is_a_sentence(ledger: Ledger, monkeypatch: Any) -> None:
    monkeypatch.setattr(whole, "MAX_CALLS", 2)
    with pytest.raises(UsageError, match="has 3 calls; a page holds 2"):
        whole.whole_run(ledger, "run-1")


def test_the_file_allows_itself_its_own_script_and_style_and_nothing_else(ledger: Ledger) -> None:
    record = whole.whole_run(ledger, "run-1")
    text = page(record, "2026-01-01T00:00:00.000Z")
    assert text == page(record, "2026-01-01T00:00:00.000Z"), "the same bytes for the same record"
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', text)
    rules = dict(rule.strip().partition(" ")[::2] for rule in policy.split(";"))
    assert rules["default-src"] == "'none'"
    for tag, rule in (("script", "script-src"), ("style", "style-src")):
        (inline,) = re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
        assert rules[rule] == f"'sha256-{base64.b64encode(sha256(inline.encode()).digest()).decode()}'"
    (packed,) = re.findall(r'id="record">([^<]*)<', text)
    unpacked = json.loads(gzip.decompress(base64.b64decode(packed)))
    assert unpacked["run"]["run_id"] == "run-1" and len(unpacked["calls"]) == 3
    assert not re.search(r"""(?:src|href)=["']?(?:https?:)?//""", text.split('<script type="text/plain"')[0])
