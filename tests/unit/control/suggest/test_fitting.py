"""A suggested policy on runs whose behaviour is known, by the real engine. `bench/suggest.py` is the long profile."""

from __future__ import annotations

import random

import pytest

from harness import places
from harness.agents_at_work import load_abuses, measured, runs_of
from subluminal.agents.transcripts.seen import SeenCall, SeenRun
from subluminal.control.suggest.fitting import suggest
from subluminal.control.suggest.gathering import general_run
from subluminal.control.suggest.wording import policy_text

ABUSES = load_abuses(str(places.ROOT / "tests" / "fixtures" / "suggest" / "abuses.yaml"))
RUNS = runs_of(1, 300)


def test_it_lets_work_through_and_refuses_what_was_planted_in_two_runs_each() -> None:
    found = measured(RUNS, ABUSES, seed=1, times=2)
    assert found.refusals <= 0.03  # of 300 runs; the bound of 2 % is for 1,000, see bench/suggest.py
    assert found.near_miss_admission <= 0.07
    assert found.recall >= 0.9, found.missed


def test_a_lower_target_is_wider_and_an_unreachable_one_is_said() -> None:
    runs = [general_run(run) for run in RUNS[:120]]
    strict, wide = suggest(runs, 0.2), suggest(runs, 0.0)
    assert strict.proof is not None and wide.proof is not None
    assert sum(wide.levels.values()) > sum(strict.levels.values())
    assert wide.proof.refused < strict.proof.refused
    assert wide.proof.near_admitted >= strict.proof.near_admitted
    assert strict.reached and wide.reached is False
    assert "not reachable" in policy_text(wide, {"claude": 120})


def test_the_order_in_which_runs_of_one_time_are_read_changes_no_byte() -> None:
    runs = [general_run(run) for run in RUNS[:40]]
    shuffled = list(runs)
    random.Random(3).shuffle(shuffled)
    shuffled.sort(key=lambda run: run.started_ms)
    texts = [policy_text(suggest(each), {"claude": 40}) for each in (runs, shuffled)]
    assert texts[0] == texts[1]


@pytest.mark.parametrize("runs", [2, 3])
def test_what_three_runs_did_is_learned_and_what_two_did_is_not(runs: int) -> None:
    made = [SeenRun(f"r{n}", "claude", [_read(f"{n}.py", n)]) for n in range(12)]
    odd = SeenCall("fs", "read_file", {"path": "/var/odd/place.txt"}, 30, 99_000, "/w/app", ok=True)
    for run in made[:runs]:
        run.calls.append(odd)
    text = policy_text(suggest([general_run(run) for run in made]), {})
    assert ("/var/odd/place.txt" in text) is (runs == 3)


def _read(name: str, at: int) -> SeenCall:
    return SeenCall("fs", "read_file", {"path": f"/w/app/src/{name}"}, 30, at * 60_000, "/w/app", ok=True)
