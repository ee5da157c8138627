"""The recovery of a run is what the hint ledger says of it, however its calls were seen, and while it goes on too."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.ledger import EventMaker
from subluminal.contracts.filters import HintFilters
from subluminal.ledger.read import recovery
from subluminal.ledger.read.hints import hint_rules
from subluminal.ledger.read.ledger import Ledger, open_ledger
from subluminal.ledger.read.recovery import recoveries
from subluminal.ledger.read.refused import Messages, Sources, Told
from subluminal.ledger.store.writer import Store

ERROR = {"class": "policy_block", "message": "refused"}
STOPPED = {"summary": "Stopped.", "reason_code": "RUN_TERMINATED"}


class Run:
    """One run that a shim sees, and a hook as well where a call says so."""

    def __init__(self, name: str) -> None:
        self.shim, self.hook = EventMaker(name, f"shim-{name}"), EventMaker(name, f"hook-{name}")
        self.lines = [self.shim.run_start()]

    def call(
        self,
        tool: str,
        args: str,
        action: str = "ALLOW",
        *,
        use_id: str | None = None,
        twice: bool = False,
        **decided: Any,
    ) -> Run:
        """`twice`: the hook lets through what the shim then decides."""
        context = {} if use_id is None else {"call_context": {"claudecode/toolUseId": use_id}}
        said = {"args_hash": args * 64, **context}
        if twice:
            self.hook.ms = max(self.hook.ms, self.shim.ms)
            self.lines += [self.hook.start(tool, transport="hook", **said), self.hook.decision()]
        self.lines += [self.shim.start(tool, transport="mcp_stdio", **said), self.shim.decision(action, **decided)]
        self.lines.append(self.shim.end() if action == "ALLOW" else self.shim.end("ERROR", error=ERROR))
        if twice:
            self.hook.ms = self.shim.ms
            self.lines.append(self.hook.end("OK" if action == "ALLOW" else "CANCELLED"))
        return self

    def ended(self, status: str = "SUCCEEDED") -> Run:
        self.lines.append(self.shim.run_end(status))
        return self


def scripted() -> dict[str, tuple[Run, tuple[int, int]]]:
    """Runs, and of each what was corrected and what counts."""
    return {
        "corrected": (Run("corrected").call("push", "a", "BLOCK").call("push", "b").ended(), (1, 1)),
        "half": (
            Run("half")
            .call("push", "a", "BLOCK")
            .call("push", "b", rule_id="other")
            .call("write", "a", "BLOCK", rule_id="no-writes")
            .ended(),
            (1, 2),
        ),
        "never": (Run("never").call("push", "a", "BLOCK").call("log", "a").ended(), (0, 1)),
        "open": (Run("open").call("push", "a", "BLOCK").call("log", "a"), (0, 0)),
        "open, corrected": (Run("open, corrected").call("push", "a", "BLOCK").call("push", "b"), (1, 1)),
        "waited": (Run("waited").call("push", "a", "THROTTLE").call("push", "a").ended(), (1, 1)),
        "nothing refused": (Run("nothing refused").call("push", "a").ended(), (0, 0)),
        "stopped": (
            Run("stopped").call("push", "a", "BLOCK", rule_id=None, explain=STOPPED).ended("TERMINATED"),
            (0, 0),
        ),
        "two doors": (
            Run("two doors")
            .call("push", "a", "BLOCK", use_id="use-1", twice=True)
            .call("push", "b", use_id="use-2", twice=True)
            .ended(),
            (1, 1),
        ),
        "promoted": (
            Run("promoted")
            .call("push", "a", "BLOCK")
            .call("push", "a", explain={"summary": "Let through.", "reason_code": "PROMOTED"})
            .ended(),
            (0, 0),
        ),
    }


def at_random(name: str, chance: random.Random) -> Run:
    run = Run(name)
    for number in range(chance.randrange(2, 40)):
        action = chance.choice(["ALLOW", "ALLOW", "BLOCK", "REJECT_WITH_HINT", "THROTTLE"])
        decided = {} if action == "ALLOW" else {"rule_id": chance.choice(["r1", "r2", None])}
        use_id = chance.choice([None, f"use-{number}", "use-again"])
        twice = use_id is not None and chance.random() < 0.5
        run.call(chance.choice(["push", "log"]), chance.choice("abc"), action, use_id=use_id, twice=twice, **decided)
    return run if chance.random() < 0.3 else run.ended(chance.choice(["SUCCEEDED", "FAILED"]))


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
