"""When calls came, in equal parts of a time: of one run (sparks) and of all (over time), as on a machine."""

from __future__ import annotations

from collections.abc import Sequence

from subluminal.contracts.filters import Filters
from subluminal.fleet.stores.reading import Reader
from subluminal.ledger.read.ledger import Row
from subluminal.ledger.read.over_time import divided, told
from subluminal.ledger.read.sparks import MOST_CALLS, PARTS, part_sql


def sparks(reader: Reader, run_ids: Sequence[str]) -> list[Row]:
    """`calls` is None of a run that has too many, and of one that there is not."""
    calls, runs = reader.dialect.calls, reader.dialect.runs
    sql = f"SELECT run_id FROM {runs} WHERE tenant = :tenant AND run_id IN :runs"
    parts = {row[0]: [0] * PARTS for row in reader.select(sql, runs=list(run_ids))}
    sql = f"SELECT run_id FROM {calls} WHERE tenant = :tenant AND run_id IN :runs GROUP BY 1 HAVING count(*) > :most"
    for (run_id,) in reader.select(sql, runs=list(run_ids), most=MOST_CALLS):
        parts.pop(run_id, None)
    if parts:
        part = part_sql("created_ms", "began", "lasted", least="least", divided=reader.dialect.divided)
        began, ended = (f"{which}(created_ms) OVER (PARTITION BY run_id)" for which in ("min", "max"))
        timed = (
            f"SELECT run_id, created_ms, {began} AS began, greatest(1, {ended} - {began}) AS lasted"
            f" FROM {calls} WHERE tenant = :tenant AND run_id IN :runs AND created_ms IS NOT NULL"
        )
        sql = f"SELECT run_id, {part}, count(*) FROM ({timed}) AS timed GROUP BY 1, 2"
        for run_id, place, count in reader.select(sql, runs=list(parts)):
            parts[run_id][place] = count
    return [{"run_id": run_id, "calls": parts.get(run_id)} for run_id in run_ids]


def over_time(reader: Reader, filters: Filters, parts: int) -> Row:
    """With exact quantiles."""
    sql = f"SELECT min(created_ms), max(created_ms) FROM {reader.dialect.calls} WHERE tenant = :tenant"
    first, last = reader.select(sql)[0]
    since, step = divided(filters, parts, first, last)
    if first is None:
        return told(since, step, True, [])
    # A call whose start has not come has no time.
    part = reader.dialect.divided.format(f"coalesce(created_ms, {since - step}) - {since}", step)
    groups = [group for group in reader.grouped(filters, {"part": part}) if group["part"] >= 0]
    return told(since, step, True, groups)
