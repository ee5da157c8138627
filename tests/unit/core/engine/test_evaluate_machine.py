"""Any history of calls, restarts and waits: limits hold, observing blocks nothing, where the state lives is all one."""

from __future__ import annotations

import itertools
import shutil
import tempfile
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from harness.engine import Run, compiled, tools
from harness.engine import rule as policy_rule
from subluminal.core.engine.state import KEYED, LABEL, RUN
from subluminal.host.run.state import SharedState

CALLS, COST, CAPACITY, REFILL, PERIOD_MS = 7, 80, 3, 2, 100
RULES = [
    policy_rule("closed", "deny", tools("closed")),
    policy_rule("calls", "budget", tools("counted"), scope="run", limit_calls=CALLS, on_exceed="BLOCK"),
    policy_rule("cost", "budget", scope="run", limit_cost_units=COST, cost_units_per_call=3, on_exceed="BLOCK"),
    policy_rule(
        "rate",
        "rate_limit",
        tools("fast*"),
        scope="tool",
        capacity=CAPACITY,
        refill_tokens=REFILL,
        refill_period_ms=PERIOD_MS,
        on_limit="THROTTLE",
        backoff_ms=10,
    ),
    policy_rule("once", "dedupe", tools("write"), scope="tool", window_ms=150, on_duplicate="BLOCK"),
    policy_rule(
        "loop", "breaker", tools("fast*"), scope="tool", repeat_threshold=5, repeat_window_ms=50, on_trip="BLOCK"
    ),
    policy_rule("errors", "breaker", scope="run", error_threshold=4, window_ms=120, on_trip="REJECT_WITH_HINT"),
]
ENFORCED, OBSERVED = compiled(*RULES), compiled(*RULES, mode="observe")
TOOLS = ("fast1", "counted", "fast2", "fast1", "write", "closed", "other")


class Histories(RuleBasedStateMachine):
    """The same calls over a local state, over one shared by two processes' views, and under observe."""

    @initialize()
    def begin(self) -> None:
        self.folder = tempfile.mkdtemp(prefix="subluminal-machine-")
        self.local = Run(ENFORCED)
        self.views = [Run(ENFORCED, state=self.open()) for _ in range(2)]
        self.observing = Run(OBSERVED)
        self.at = 1_000
        self.allowed: list[tuple[int, str, Any]] = []

    def open(self) -> SharedState:
        state = SharedState.open("run", self.folder)
        assert isinstance(state, SharedState)
        return state

    def teardown(self) -> None:
        for view in getattr(self, "views", ()):
            view.state.close()
        shutil.rmtree(getattr(self, "folder", ""), ignore_errors=True)

    @rule(ms=st.sampled_from([1, 20, 49, 50, 99, 100, 130, 400]))
    def wait(self, ms: int) -> None:
        self.at += ms

    @rule(view=st.integers(0, 1))
    def restart_one_process(self, view: int) -> None:
        self.views[view].state.close()
        self.views[view] = Run(ENFORCED, state=self.open())

    @rule(
        tool=st.sampled_from(TOOLS),
        args=st.integers(0, 1),
        view=st.integers(0, 1),
        ok=st.sampled_from([True, True, False]),
        traced=st.booleans(),
        continues=st.sampled_from([None, None, None, "call"]),
    )
    def call(self, tool: str, args: int, view: int, ok: bool, traced: bool, continues: str | None) -> None:
        for run in (self.local, self.views[view], self.observing):
            run.at = self.at
        value = {"n": args}
        expected = self.local.call(tool, value, continues=continues)
        got = self.views[view].call(tool, value, continues=continues, trace=[] if traced else None)
        assert got.decision.as_dict() == expected.decision.as_dict()
        assert (got.seq, got.trips, got.tags) == (expected.seq, expected.trips, expected.tags)
        assert self.local.end(expected, ok) == self.views[view].end(got, ok)
        watched = self.observing.call(tool, value, continues=continues)
        self.observing.end(watched, ok)
        assert watched.decision.action == "ALLOW"
        if expected.decision.action == "ALLOW" and continues is None:
            self.allowed.append((self.at, tool, args))

    @precondition(lambda self: hasattr(self, "allowed"))
    @invariant()
    def budgets_are_never_overshot(self) -> None:
        assert sum(tool == "counted" for _, tool, _ in self.allowed) <= CALLS
        assert 3 * len(self.allowed) <= COST
        for calls, cost, _ in self.local.state.pools[RUN].values():
            assert calls <= max(CALLS, COST // 3)
            assert cost <= max(COST, CALLS)

    @precondition(lambda self: hasattr(self, "allowed"))
    @invariant()
    def no_span_of_time_passes_more_than_a_bucket_holds_and_gains(self) -> None:
        for name in ("fast1", "fast2"):
            times = [at for at, tool, _ in self.allowed if tool == name]
            for i, first in enumerate(times):
                for j in range(i, len(times)):
                    assert j - i + 1 <= CAPACITY + -(-(times[j] - first) * REFILL // PERIOD_MS)
        for tokens, _, _ in self.local.state.pools[KEYED].values():
            assert 0 <= tokens <= CAPACITY

    @precondition(lambda self: hasattr(self, "allowed"))
    @invariant()
    def no_write_passes_twice_within_its_window(self) -> None:
        for args in (0, 1):
            times = [at for at, tool, n in self.allowed if (tool, n) == ("write", args)]
            assert all(later - earlier >= 150 for earlier, later in itertools.pairwise(times))

    @precondition(lambda self: hasattr(self, "allowed"))
    @invariant()
    def every_view_of_the_shared_state_is_the_local_one(self) -> None:
        for view in self.views:
            view.state.begin()
            found = {(pool, key): values for key, pool, values in view.state.table.all()}
            view.state.abandon()
            mine = enumerate(self.local.state.pools[:LABEL])
            assert found == {(pool, key): values for pool, entries in mine for key, values in entries.items()}


Histories.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None, derandomize=True)
TestHistories = Histories.TestCase
