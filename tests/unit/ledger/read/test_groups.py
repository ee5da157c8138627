"""Groups of calls: the exact way and the quick way count the same."""

from __future__ import annotations

import random

import pytest

from harness.command_line import stored
from harness.ledger import EventMaker
from subluminal.contracts.filters import Filters
from subluminal.ledger.read import ledger as query
from subluminal.ledger.read.ledger import open_ledger


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    home = tmp_path_factory.mktemp("groups")
    chance = random.Random(5)
    for run in range(3):
        maker = EventMaker(f"run-{run}", f"shim-{run}")
        lines = [maker.run_start()]
        for _ in range(40):
            action = chance.choice(["ALLOW", "ALLOW", "BLOCK", "THROTTLE", "TERMINATE_RUN"])
            lines += maker.call(action, chance.choice(["OK", "ERROR"]), tool=chance.choice(["a", "b"]))
        lines += [
            maker.start("open"),
            maker.start("undecided"),
            maker.end("ERROR"),
            maker.start("hangs"),
            maker.decision(),
        ]
        stored(home, lines)
    return str(home / "ledger.db")


@pytest.mark.parametrize("by", [["run_id"], ["day", "tool_name"], ["reason_code"], ["agent_id", "severity"]])
@pytest.mark.parametrize("filters", [Filters(), Filters(tool_name=["a", "b"]), Filters(decision=["BLOCK", "THROTTLE"])])
def test_both_ways_agree_but_for_the_quantiles(path, monkeypatch, by, filters):
    with open_ledger(path) as ledger:
        exact = ledger.group(filters, by=by)
        monkeypatch.setattr(query, "FEW_CALLS", 0)
        quick = ledger.group(filters, by=by)
    assert any(row["latency_ms_p95"] == 3 for row in exact)
    assert all(row["latency_ms_p50"] is row["latency_ms_p95"] is None for row in quick)

    def counted(rows):
        plain = [{name: row[name] for name in row if not name.startswith("latency_ms_p")} for row in rows]
        return sorted(plain, key=str)

    assert counted(quick) == counted(exact)


def test_a_quantile_is_a_latency_that_occurred(path):
    group = query.add_up([("ALLOW", "OK", ms, 1) for ms in range(1, 101)], ["decision", "status"], ["status"], True)[0]
    assert (group["latency_ms_p50"], group["latency_ms_p95"], group["latency_ms_max"]) == (50, 95, 100)
