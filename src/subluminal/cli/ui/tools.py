"""What servers say of their tools, for the page: as `sub tools` tells it, for the pins of one directory."""

from __future__ import annotations

from typing import Any

from subluminal.cli.tools.group import listed
from subluminal.cli.tools.show import versions
from subluminal.cli.tools.survey import Row, counted, survey
from subluminal.contracts.errors import LedgerError
from subluminal.host.tools.locks import Locks
from subluminal.surface.differences import Version, lines, readable


def tools(directory: str) -> dict[str, Any]:
    counts = counted()
    found = [_listed(row, (counts or {}).get((row.server.server_name, row.known.name))) for row in rows_in(directory)]
    return {"directory": directory, "tools": found}


def _listed(row: Row, numbers: tuple[int, int] | None = None) -> dict[str, Any]:
    waits = row.was is not None or row.known.unsteady
    return {**listed(row, numbers), "key": row.key, "why": row.stands.why or "", "changed": waits}


def tool(directory: str, server_name: str, key: str) -> dict[str, Any]:
    row = one_row(directory, server_name, key)
    told: list[dict[str, Any]] = []
    before: Version | None = None
    for version in versions(row):
        now = Version(version["fingerprint"], {}, version["definition"])
        diff: list[str] = [] if before is None else lines(before, now)
        told.append({name: version[name] for name in ("at", "run_id", "client", "fingerprint")} | {"lines": diff})
        before = now
    return {
        **_listed(row),
        "lines": readable(row.now),
        "diff": [] if row.was is None else lines(row.was, row.now),
        "findings": [{"class": each.risk_class, "where": each.where, "what": each.what} for each in row.found],
        "versions": told,
    }


def rows_in(directory: str) -> list[Row]:
    return survey(Locks(directory))


def one_row(directory: str, server_name: str, key: str) -> Row:
    for row in rows_in(directory):
        if (row.server.server_name, row.key) == (server_name, key):
            return row
    raise LedgerError(f"Nothing is known of {server_name}/{key}.", hint="`sub tools` lists what was seen.")
