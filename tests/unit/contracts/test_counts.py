"""How calls are counted is one rule: in a gate's hands, for one call, and in SQL."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from itertools import product

from subluminal.contracts.counts import COUNTERS, Counts, is_error, is_error_sql, is_let_through, let_through_sql
from subluminal.contracts.events import RunSummary
from subluminal.contracts.vocabulary import ACTIONS, STATUSES

CALLS = list(product((None, *ACTIONS), (None, *STATUSES)))


def test_the_rule_in_sql_is_the_rule_in_python() -> None:
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE c (decision, status)")
    connection.executemany("INSERT INTO c VALUES (?, ?)", CALLS)
    for sql, rule in ((is_error_sql(), is_error), (let_through_sql("c.decision"), lambda a, _: is_let_through(a))):
        found = connection.execute(f"SELECT decision, status FROM c WHERE {sql}").fetchall()
        assert found == [call for call in CALLS if rule(*call)]
    connection.close()


def test_every_action_has_a_counter_and_only_what_was_let_through_can_be_an_error() -> None:
    assert COUNTERS == {
        "ALLOW": "allowed",
        "BLOCK": "blocked",
        "THROTTLE": "throttled",
        "REJECT_WITH_HINT": "blocked",
        "TERMINATE_RUN": "blocked",
    }
    assert [call for call in CALLS if is_error(*call)] == [
        (action, status) for action in (None, "ALLOW") for status in ("ERROR", "TIMEOUT", "CANCELLED")
    ]


def test_counting_step_by_step_gives_what_counting_at_the_end_gives() -> None:
    for first, last, status in product(ACTIONS, ACTIONS, STATUSES):
        counts = Counts(total=1)
        counts.decided(first)
        counts.decided_again(first, last)
        counts.ended(last, status)
        late = Counts(total=1)
        late.ended(None, status)
        late.decided_again(None, last, status)
        wanted = {name: int(COUNTERS[last] == name) for name in ("allowed", "blocked", "throttled")}
        for found in (counts, late):
            assert {name: getattr(found, name) for name in wanted} == wanted
            assert found.errors == is_error(last, status)


def test_a_summary_is_that_of_the_contract() -> None:
    assert tuple(Counts().as_summary(7)) == RunSummary.__struct_fields__


def test_counting_imports_nothing() -> None:
    script = (
        "from __future__ import annotations; import sys; before = set(sys.modules); import subluminal.contracts.counts;"
        " print(sorted(name for name in set(sys.modules) - before if not name.startswith('subluminal')))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
