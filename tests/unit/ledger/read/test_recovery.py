"""The recovery of a run is what the hint ledger says of it, however its calls were seen, and while it goes on too."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.recovering import Run, at_random, scripted
from subluminal.contracts.filters import HintFilters
from subluminal.ledger.read import recovery
from subluminal.ledger.read.hints import hint_rules
from subluminal.ledger.read.ledger import Ledger, open_ledger
from subluminal.ledger.read.recovery import recoveries
from subluminal.ledger.read.refused import Messages, Sources, Told
from subluminal.ledger.store.writer import Store


def of_hints(ledger: Ledger, run_id: str, sources: Sources | None = None) -> dict[str, Any]:
    rules = hint_rules(ledger, HintFilters(run_id=[run_id]), sources)
    corrected, counted = sum(rule["outcomes"]["corrected"] for rule in rules), sum(rule["counted"] for rule in rules)
    rate = corrected / counted if counted else None
    return {"run_id": run_id, "corrected": corrected, "counted": counted, "recovery_rate": rate}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store(str(tmp_path / "ledger.db"))
    yield store
    store.close()


def put(store: Store, *runs: Run) -> None:
    store.write(lambda: [store.add(line) for run in runs for line in run.lines])


def test_the_recovery_of_a_run_is_what_its_refusals_led_to(store: Store, tmp_path: Path) -> None:
    runs = scripted()
    put(store, *(run for run, _ in runs.values()))
    with open_ledger(str(tmp_path / "ledger.db")) as ledger:
        found = recoveries(ledger, list(runs))
        assert {each["run_id"]: (each["corrected"], each["counted"]) for each in found} == {
            name: told for name, (_, told) in runs.items()
        }
        # Nothing counts: there is no rate, and it is not zero.
        assert {each["run_id"] for each in found if each["recovery_rate"] is None} == {
            "open", "nothing refused", "stopped", "promoted",
        }  # fmt: skip
        assert next(each for each in found if each["run_id"] == "never")["recovery_rate"] == 0.0
        assert found == [of_hints(ledger, name) for name in runs]


@pytest.mark.parametrize("seed", range(5))
def test_it_is_what_the_hint_ledger_says_of_any_run(store: Store, tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    names = [f"run-{number}" for number in range(12)]
    put(store, *(at_random(name, chance) for name in names))
    told = {
        f"use-{number}": [Told(1_700_000_000_000, chance.choice("AB"), f"m{number // 2}")] for number in range(0, 40, 3)
    }

    def transcripts(since_ms: int) -> Messages:
        return told

    with open_ledger(str(tmp_path / "ledger.db")) as ledger:
        for sources in (None, transcripts):
            found = recoveries(ledger, names, sources)
            assert found == [of_hints(ledger, name, sources) for name in names]
            assert any(each["recovery_rate"] for each in found)


def test_what_is_not_followed_is_not_known(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(
        store, Run("large").call("push", "a", "BLOCK").call("push", "b").ended(), Run("small").call("push", "a").ended()
    )
    monkeypatch.setattr(recovery, "MOST_CALLS", 1)
    nothing = {"corrected": None, "counted": None, "recovery_rate": None}
    with open_ledger(str(tmp_path / "ledger.db")) as ledger:
        assert recoveries(ledger, ["large", "none"]) == [{"run_id": "large", **nothing}, {"run_id": "none", **nothing}]
        assert recoveries(ledger, ["small"])[0]["counted"] == 0
        assert of_hints(ledger, "large")["corrected"] == 1


def test_transcripts_are_read_once_and_only_for_calls_that_they_could_know(store: Store, tmp_path: Path) -> None:
    named = Run("named").call("push", "a", "BLOCK", use_id="use-1").call("push", "b", use_id="use-2").ended()
    put(store, Run("unnamed").call("push", "a", "BLOCK").call("push", "b").ended(), named)
    asked: list[int] = []

    def transcripts(since_ms: int) -> Messages:
        asked.append(since_ms)
        return {}

    with open_ledger(str(tmp_path / "ledger.db")) as ledger:
        recoveries(ledger, ["unnamed"], transcripts)
        assert asked == []
        recoveries(ledger, ["unnamed", "named"], transcripts)
    (since_ms,) = asked
    assert since_ms < 1_700_000_000_100
