"""When the calls of a run came: counts in equal parts of the time between its first and its last call."""

from __future__ import annotations

from subluminal.ledger.read.ledger import Ledger
from subluminal.ledger.store.lines import TIE_BITS

PARTS = 24
# Beyond this many calls, counting them all for one small drawing takes longer than anybody should wait.
MOST_CALLS = 50_000

_ENDS = "SELECT min(c.id), max(c.id) FROM tool_calls c WHERE c.run_id = ?"


def part_sql(moment: str, began: str, lasted: str, *, least: str = "min", divided: str = "{} / {}") -> str:
    """In which part a moment is. A last one that is no longer than the first lasts a millisecond."""
    return f"{least}({PARTS} - 1, {divided.format(f'({moment} - {began}) * {PARTS}', lasted)})"


_COUNTED = (
    f"SELECT {part_sql(f'(c.id >> {TIE_BITS})', '?', '?')} AS part, count(*) FROM tool_calls c"
    " INDEXED BY tool_calls_run WHERE c.run_id = ? GROUP BY part"
)


def spark(ledger: Ledger, run_id: str) -> list[int] | None:
    """None: there are too many, or there is no such run."""
    known = ledger.connection.execute("SELECT calls_total FROM runs WHERE run_id = ?", (run_id,)).fetchone()
    if known is None or known[0] > MOST_CALLS:
        return None
    parts = [0] * PARTS
    first, last = ledger.connection.execute(_ENDS, (run_id,)).fetchone()
    if first is None:
        return parts
    began, lasted = first >> TIE_BITS, max(1, (last >> TIE_BITS) - (first >> TIE_BITS))
    for part, calls in ledger.connection.execute(_COUNTED, (began, lasted, run_id)):
        parts[part] = calls
    return parts
