"""The text of a policy in the ledger: only one that has the hash is believed, whoever asks for it."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

from harness.command_line import stored
from harness.ledger import EventMaker
from harness.promoting import bundle
from subluminal.cli.ui.policies import policy_diff
from subluminal.contracts.errors import LedgerError
from subluminal.ledger.read.ledger import open_ledger
from subluminal.ledger.read.policies import stored_snapshot
from subluminal.ledger.trace.bundle import export_run
from subluminal.policy.compile.bundle import compile_bundle, snapshot_bytes

DENY = "{rule_id: none, kind: deny, match: {}, effect: {action: BLOCK}}"
POLICY = compile_bundle(bundle(DENY).encode(), "p.yaml")
TRUE, FALSE = snapshot_bytes(POLICY).decode(), '{"policy_id":"mine","rules":[]}'


def a_home(tmp_path: Path, *texts: str) -> Path:
    """A ledger that has heard of one policy by several names, and has these texts of it."""
    ref = {"policy_id": "mine", "policy_version": POLICY["version"], "policy_hash": POLICY["policy_hash"]}
    maker = EventMaker("run-a", "shim-a")
    stored(tmp_path, [maker.run_start(policy=ref), maker.run_end()])
    database = sqlite3.connect(tmp_path / "ledger.db")
    database.execute("DELETE FROM policy_versions")
    sql = "INSERT INTO policy_versions VALUES (?, '1', 'guardrails', ?, ?, '2026-01-01T00:00:00.000Z')"
    database.executemany(sql, [(str(number), POLICY["policy_hash"], text) for number, text in enumerate(texts)])
    database.commit()
    database.close()
    return tmp_path


@pytest.mark.parametrize("texts", [(FALSE, TRUE), (TRUE, FALSE)])
def test_of_several_texts_the_one_with_the_hash_is_told_and_exported(tmp_path: Path, texts: tuple[str, ...]) -> None:
    home = a_home(tmp_path, *texts)
    with open_ledger(str(home / "ledger.db")) as ledger:
        assert stored_snapshot(ledger, POLICY["policy_hash"]) == POLICY
        export_run(ledger, "run-a", str(tmp_path / "out"), str(home / "snapshots"))
    assert (tmp_path / "out" / "policies" / f"{POLICY['policy_hash']}.json").read_text() == TRUE
    assert policy_diff(str(home), POLICY["policy_hash"], POLICY["policy_hash"])["changes"] == []


def test_a_text_that_has_another_hash_is_neither_told_nor_exported(tmp_path: Path) -> None:
    home = a_home(tmp_path, FALSE)
    with open_ledger(str(home / "ledger.db")) as ledger:
        assert stored_snapshot(ledger, POLICY["policy_hash"]) is None
        export_run(ledger, "run-a", str(tmp_path / "out"), str(home / "snapshots"))
    assert list(json.loads((tmp_path / "out" / "manifest.json").read_text())["files"]) == ["events.jsonl"]
    with pytest.raises(LedgerError, match="is not here"):
        policy_diff(str(home), POLICY["policy_hash"], POLICY["policy_hash"])
