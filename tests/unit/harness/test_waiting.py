"""Waiting has one home: it gives the value, it says what never came, and nothing else in the tests looks at a clock."""

from __future__ import annotations

import ast
import asyncio
from collections.abc import Callable

import pytest

from harness.places import ROOT
from harness.waiting import WaitedInVain, wait_for, wait_for_async, while_passing

TESTS = ROOT / "tests"
CLOCKS = {"sleep", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "process_time", "time", "time_ns"}
# Files that read a clock or sleep by themselves, each with its reason. Everything else waits with harness.waiting.
MAY_LOOK_AT_A_CLOCK = {
    "harness/waiting.py": "the home of waiting",
    "harness/effort.py": "the home of costs: CPU time, always as a ratio",
    "harness/oauth_server.py": "tokens expire",
    "harness/fake_server.py": "a server's delays are its scripted behaviour",
    "clients/models.py": "a model's stream comes in separate packets",
    "clients/test_adoption.py": "IMP-002 is a promise in minutes",
    "clients/test_agent_runs.py": "the end of a real client is a promise in seconds",
    "clients/test_control_loop.py": "a model takes its time, so that a second is a few calls",
    "contract/test_evt.py": "EVT-007 is about a duration: it is compared with what the agent saw",
    "contract/test_imp.py": "IMP-002 is a promise in minutes",
    "unit/ledger/http/test_page.py": "an open page outlives the time after which an idle daemon ends",
    "fleet/test_attacks.py": "the slowness of an origin is its scripted behaviour",
    "fleet/test_credentials.py": "tokens expire",
    "fleet/test_kill_switch.py": "a stop is a promise in seconds",
    "fleet/test_retention.py": "stores remove what is old by their own clock",
    "fleet/test_shipping.py": "the slowness of a collector is its scripted behaviour",
    "fleet/test_machines.py": "the clock is set, from what it says",
    "ui/test_fleet.py": "the page shows what happened a moment ago: its runs are made to be of now",
    "ui/conftest.py": "the page shows what happened a moment ago: its runs are made to be of now",
    "torture/test_cycles.py": "files are made to look old",
    "torture/test_ledger_stalled.py": "a pace is compared with the pace before",
    "torture/test_policy_reload.py": "a second is promised; what the machine adds is measured beside it",
    "torture/test_shared_budget.py": "the engine is given the time, as the shim gives it",
    "torture/test_transparency.py": "the slowness of a reader is its scripted behaviour",
    "unit/admission/test_determinism.py": "clocks are what its subject must find",
    "unit/cli/agents/test_kill.py": "compared with the time for which a keeper would be waited for",
    "unit/cli/tail/test_tail.py": "compared with the start of a process",
    "unit/host/run/test_state.py": "files are made to look old",
    "unit/host/run/test_wide.py": "the clock is set, from what it says",
    "unit/host/test_identity.py": "an id carries the start of a process, which only the clock knows as well",
}


def in_turn(*values: object) -> Callable[[], object]:
    """One value after another, and then always the last."""
    left = list(values)
    return lambda: left.pop(0) if len(left) > 1 else left[0]


def asynchronously(look: Callable[[], object], *arguments: object, **options: object) -> object:
    return asyncio.run(wait_for_async(look, *arguments, **options))  # type: ignore[arg-type]


both = pytest.mark.parametrize("wait", [wait_for, asynchronously])


@both
def test_it_gives_the_first_value_that_is_enough(wait: Callable[..., object]) -> None:
    assert wait(in_turn(0, "", None, 7, 8)) == 7
    assert wait(in_turn([1], [1, 2], [1, 2, 3]), enough=lambda found: len(found) == 2) == [1, 2]
    assert wait(in_turn("there at once"), 0) == "there at once", "without any time, one look is still taken"


@both
def test_in_vain_says_what_for_and_what_was_seen(wait: Callable[..., object]) -> None:
    with pytest.raises(WaitedInVain, match=r"waited 0\.02 s in vain for three lines; last seen: \['one', 'two'\]"):
        wait(lambda: ["one", "two"], 0.02, "three lines", enough=lambda lines: len(lines) == 3)
    with pytest.raises(WaitedInVain, match=r"x\.\.\. \(5002 characters\)$"):
        wait(lambda: "x" * 5000, 0, enough=lambda value: False)


def test_what_is_done_meanwhile_is_done_between_the_looks() -> None:
    given: list[float] = []
    assert wait_for(lambda: len(given) >= 3, meanwhile=given.append)
    assert len(given) == 3 and all(0 < each < 1 for each in given)


def test_other_tasks_go_on_while_one_waits() -> None:
    async def case() -> None:
        done = asyncio.Event()
        asyncio.get_running_loop().call_soon(done.set)
        assert await wait_for_async(done.is_set)

    asyncio.run(case())


def test_a_while_passes_and_ends() -> None:
    left = [next(while_passing(60)), *while_passing(0)]
    assert len(left) == 1 and 0 < left[0] <= 60


def looks_at_a_clock(source: str) -> list[int]:
    """The lines that call a clock or sleep; `asyncio.sleep(0)` only lets other tasks run."""
    found: list[int] = []
    if not any(f"{word}(" in source for word in CLOCKS):
        return found
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            module, _, word = name.rpartition(".")
            timed = module in ("time", "_time") and word in CLOCKS
            sleeps = word == "sleep" and not (node.args and ast.unparse(node.args[0]) == "0")
            if timed or sleeps or (not module and word in CLOCKS - {"time"}):
                found.append(node.lineno)
    return found


def test_nothing_else_in_the_tests_looks_at_a_clock() -> None:
    found = {}
    for path in sorted(TESTS.rglob("*.py")):
        if lines := looks_at_a_clock(path.read_text(encoding="utf-8")):
            found[path.relative_to(TESTS).as_posix()] = lines
    others = {name: lines for name, lines in found.items() if name not in MAY_LOOK_AT_A_CLOCK}
    assert not others, "wait with harness.waiting, count with harness.effort, or give a reason in MAY_LOOK_AT_A_CLOCK"
    assert MAY_LOOK_AT_A_CLOCK.keys() <= found.keys(), "a file that stands in the list without need"


@pytest.mark.parametrize(
    "line",
    [
        "time.sleep(0.1)",
        "sleep(1)",
        "await asyncio.sleep(0.01)",
        "time.monotonic() < end",
        "perf_counter()",
        "time.sleep(seconds)",
    ],
)
def test_every_way_to_look_at_a_clock_is_found(line: str) -> None:
    assert looks_at_a_clock(f"async def f():\n    {line}\n") == [2]


def test_what_only_looks_like_a_clock_is_left_alone() -> None:
    source = "async def f(program='time.sleep(60)'):\n    await asyncio.sleep(0)\n    run(sleep, datetime.time())\n"
    assert looks_at_a_clock(source) == []
