"""Calls in equal parts of a time: how many, how they were decided, and how long they took.

Counting is one walk over the rows of that time. Quantiles need every latency of every part: beyond FEW_CALLS they are
left out, and whoever looks closer, at a shorter time, gets them.
"""

from __future__ import annotations

from subluminal.contracts.errors import UsageError
from subluminal.contracts.filters import Filters
from subluminal.ledger.read.groups import COUNTED, MEASURED, add_up
from subluminal.ledger.read.ledger import Ledger, Row
from subluminal.ledger.store.lines import TIE_BITS

MAX_PARTS = 500
_ENDS = "SELECT min(id) >> {bits}, max(id) >> {bits} FROM tool_calls"


def over_time(ledger: Ledger, filters: Filters, parts: int) -> Row:
    """`parts` of the time that is asked for, or of all there is: `from_ms`, `step_ms`, and those that have calls."""
    first, last = ledger.connection.execute(_ENDS.format(bits=TIE_BITS)).fetchone()
    since, step = divided(filters, parts, first, last)
    if first is None:
        return told(since, step, True, [])
    exact = ledger.few(filters)
    fine = ["part", *(("decision", "status") if exact else ())]
    part = f"((c.id >> {TIE_BITS}) - {since}) / {step}"
    columns = f"{part} AS part, " + ("c.decision, c.status, " + COUNTED if exact else MEASURED)
    grouping = " GROUP BY " + ", ".join(map(str, range(1, len(fine) + 1 + exact)))
    rows = ledger.each_branch(filters, columns, grouping, lambda row: row, covering=False)
    return told(since, step, exact, add_up(rows, fine, ["part"], exact))


def divided(filters: Filters, parts: int, first: int | None, last: int | None) -> tuple[int, int]:
    """Where the first part begins and how long each is, of calls between these moments; None: there are none."""
    if not 1 <= parts <= MAX_PARTS:
        raise UsageError(f"parts must be between 1 and {MAX_PARTS}.")
    since, until = filters.asked.get("since_ms"), filters.asked.get("until_ms")
    if first is None or last is None:
        return since or 0, 1
    begin, end = first if since is None else since, last + 1 if until is None else until
    return begin, max(1, -(-(end - begin) // parts))


def told(since: int, step: int, exact: bool, groups: list[Row]) -> Row:
    """Groups by `part`, as the answer."""
    ordered = sorted(groups, key=lambda row: row["part"])
    parts = [{"at_ms": since + row.pop("part") * step, **row} for row in ordered]
    return {"from_ms": since, "step_ms": step, "exact": exact, "parts": parts}
