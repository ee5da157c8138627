"""`record.results` at every door where a result passes: kept, and vouched for by the end of its call."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import pytest

from harness.adapters.every import ADAPTERS
from harness.adapters.interface import Adapter, Setting
from subluminal.contracts.kept_results import frames

# The host of one tells us no results, the other is no door of ours.
WITHOUT = ("tool-lock", "carrier pigeon")
DOORS = [each for each in ADAPTERS if each.name not in WITHOUT]
POLICY: dict[str, Any] = {
    "policy_id": "p",
    "version": "1",
    "mode": "guardrails",
    "defaults": {"decision_on_error": "BLOCK"},
    "selectors": {},
    "rules": [
        {
            "rule_id": "no-rm",
            "kind": "deny",
            "match": {"tool_name": {"glob": ["rm"]}},
            "effect": {"action": "BLOCK", "reason_code": "NO", "message": "No."},
        }
    ],
}


@pytest.mark.parametrize("door", DOORS, ids=[each.name for each in DOORS])
def test_a_result_is_kept_and_vouched_for(door: Adapter, tmp_path: Path) -> None:
    place = tmp_path / "run"
    place.mkdir()
    setting = Setting(place, POLICY, tools=["search", "rm"], arguments=["q"], env={"SUB_RECORD_RESULTS": "all"})
    with door.start(setting) as session:
        session.call("search", {"q": "1"})
        session.call("rm", {"q": "2"})
    events = session.events.events()
    ends = {event["call"]["tool_name"]: event for event in events if event["type"] == "tool_call_end"}
    assert "result_kept" not in ends["rm"], "a refused call has no result"
    kept = ends["search"]["result_kept"]
    assert kept["state"] == "whole"
    found = {}
    for path in tmp_path.rglob("*.results"):
        with path.open("rb") as file:
            for header, deflated, chain in frames(file, ends["search"]["run_id"]):
                found[header.get("call_id")] = (zlib.decompress(deflated), chain.hex())
    result, chain_hash = found[ends["search"]["call"]["call_id"]]
    assert (len(result), chain_hash) == (kept["bytes"], kept["hash"])
    preview = ends["search"]["preview"]
    assert preview["truncated"] or result.decode() == preview["result_preview"]
