"""Does the record arrive, whole and unchanged, and does every producer speak for itself alone?

What proves a record is imported where there is one.
"""

from __future__ import annotations

import sqlite3

from subluminal.contracts.errors import LedgerError
from subluminal.doctor.findings import ERROR, WARNING, Area, quoted
from subluminal.host import home
from subluminal.ledger.daemon.contact import listens
from subluminal.ledger.daemon.health import ledger_health
from subluminal.ledger.daemon.sync import sync
from subluminal.reports.printable import count

# Checking a chain reads every event of the run; a longer one is left to `sub verify`.
MAX_CHAIN_EVENTS = 100_000
# What a daemon that runs may be behind while shims are busy.
_TOLERATED_LAG_BYTES = 1 << 20
_SYNC_S = 3.0
# Faults of one kind that are named one by one.
_NAMED = 3


def check_ledger() -> Area:
    caught_up = sync(_SYNC_S)
    health = ledger_health()
    area = Area("ledger", facts={name: value for name, value in health.items() if name != "problem"})
    if not health["exists"]:
        area.summary = "empty: it begins with the first tool call"
    elif health["events"] is None:
        broken = health["problem"] or "the ledger cannot be read"
        area.add(ERROR, "ledger-unreadable", broken, quoted("mv", health["path"], health["path"] + ".damaged"))
        return area
    else:
        counts = f"{count(health['runs'], 'run')}, {count(health['calls'], 'call')}"
        area.summary = f"{counts}, {_size(health['size_bytes'])}"
        try:
            _check_last_run(area, health["runs"])
            _check_database(area)
        except sqlite3.Error as error:
            broken = f"{health['path']} is damaged: {error}"
            area.add(ERROR, "ledger-unreadable", broken, quoted("mv", health["path"], health["path"] + ".damaged"))
            return area
    _check_daemon(area, health, caught_up)
    _check_rejected(area, health)
    return area


def _check_rejected(area: Area, health: dict[str, object]) -> None:
    rejected, disputed = health["rejected_lines"] or 0, health["disputed_lines"] or []
    assert isinstance(rejected, int) and isinstance(disputed, list)
    mend = "head -c 2000 " + quoted(home.rejected_dir()) + "/*"
    if rejected > len(disputed):
        message = f"{count(rejected - len(disputed), 'line')} in journals were no events and were set aside"
        area.add(WARNING, "rejected-lines", message, mend)
    if disputed:
        first = disputed[0]
        example = f"{first['source']}, line {first['line_no']}: {first['reason']}"
        message = f"{count(len(disputed), 'line')} in journals spoke in another's name and were set aside ({example})"
        area.add(ERROR, "disputed-lines", message, mend)


def _check_daemon(area: Area, health: dict[str, object], caught_up: bool) -> None:
    if health["last_error"]:
        message = f"ledgerd cannot store events: {health['last_error']} (the journals keep them)"
        area.add(ERROR, "ledgerd-error", message, "sub ledgerd --stop && sub ledgerd --foreground")
        return
    lag = health["lag_bytes"]
    assert isinstance(lag, int)
    if health["daemon_pid"] is None:
        if listens():
            pid_file = home.ledgerd_pid()
            area.add(ERROR, "ledgerd-deaf", "ledgerd runs but does not answer", f'kill "$(cat {quoted(pid_file)})"')
        elif not caught_up:
            message = f"ledgerd does not start, and {_size(lag)} of events wait for it"
            area.add(ERROR, "ledgerd-absent", message, "sub ledgerd --foreground")
        elif area.summary:
            area.summary += "; ledgerd starts when needed"
        return
    area.summary += f"; ledgerd runs (pid {health['daemon_pid']})"
    if lag > _TOLERATED_LAG_BYTES and not caught_up:
        message = f"ledgerd is {_size(lag)} behind"
        area.add(WARNING, "ledgerd-lag", message, "sub ledgerd --status")


def _check_last_run(area: Area, runs: int) -> None:
    from subluminal.ledger.read.ledger import open_ledger
    from subluminal.ledger.trace.report import OWNERS
    from subluminal.ledger.trace.verify import verify_run

    try:
        with open_ledger() as ledger:
            run_id = ledger.resolve_run("last")
            is_short = ledger.run(run_id)["event_count"] <= MAX_CHAIN_EVENTS
        report = verify_run(home.ledger_db(), run_id) if is_short else None
    except LedgerError:
        return  # no run yet
    area.facts["last_run"] = run_id
    area.facts["last_run_intact"] = report.ok if report is not None else None
    if report is None:
        area.summary += ", last run too long to be checked here (`sub verify`)"
        return
    changed = [fault for fault in report.faults if fault.part != OWNERS]
    if changed:
        message = f"the record of the last run was changed: {changed[0].what}"
        area.add(ERROR, "chain-broken", message, f"sub verify {quoted(run_id)}")
    else:
        area.summary += ", last run: chain intact and rows agree"
        if runs > 1:
            area.summary += f" ({count(runs - 1, 'other')} not checked: sub verify --all)"


def _check_database(area: Area) -> None:
    """The file, its schema, and in all runs, not in the last alone, whether producers spoke of each other's calls."""
    from subluminal.ledger.read.ledger import open_ledger
    from subluminal.ledger.trace.rebuilt import conflicts
    from subluminal.ledger.trace.verify import verify_database

    database = verify_database(home.ledger_db())
    area.facts["integrity_check"] = database.integrity
    for fault in database.faults[:_NAMED]:
        area.add(ERROR, "ledger-changed", f"the ledger's database was changed: {fault.what}", "sub verify --all")
    if database.ok:
        area.summary += f", database: schema and {database.integrity} integrity check"
    with open_ledger() as ledger:
        found = conflicts(ledger.connection)
    area.facts["conflicts"] = found
    for fault in found[:_NAMED]:
        area.add(ERROR, "foreign-calls", f"{fault.what} (call {fault.call_id})", "sub verify --all")
    if len(found) > _NAMED:
        area.add(ERROR, "foreign-calls", f"and {len(found) - _NAMED} more such calls", "sub verify --all")


def _size(number: int) -> str:
    for unit in ("B", "KiB", "MiB"):
        if number < 1024:
            return f"{number} {unit}"
        number //= 1024
    return f"{number} GiB"
