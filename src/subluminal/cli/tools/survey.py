"""Everything known of what servers say, as it stands here: what was seen, the locks in force, and the record."""

from __future__ import annotations

import os
from typing import Any

import msgspec

from subluminal.contracts.errors import LedgerError, ToolsError, UsageError
from subluminal.contracts.vocabulary import NEW
from subluminal.host.tools.known import all_known
from subluminal.host.tools.locks import Locks
from subluminal.ledger.read.ledger import open_ledger
from subluminal.ledger.store import tool_versions
from subluminal.mcp.tools import annotated_classes
from subluminal.reports.printable import printable
from subluminal.surface.differences import Version
from subluminal.surface.items import TOOL, Item
from subluminal.surface.known import Known, KnownServer, Seen
from subluminal.surface.pins import Pin
from subluminal.surface.standing import Standing, standing
from subluminal.surface.texts import classes, findings

QUARANTINED = "quarantined"
_HISTORY = 50


class Row:
    """One thing that a server says. `name` is SERVER/KEY, as commands take it."""

    def __init__(self, server: KnownServer, key: str, known: Known, locks: Locks) -> None:
        self.server = server
        self.key = key
        self.known = known
        self.now: Seen = known.last
        self.user, self.repository = locks.pins(server.server_name, key)
        self.stands: Standing = standing(
            self.item, known, self.user, self.repository, "", base=known.base if known.guarded else known.last
        )
        definition = self.now.definition
        self.found = findings(definition.encode() if definition else None)

    @property
    def name(self) -> str:
        return f"{self.server.server_name}/{self.key}"

    @property
    def item(self) -> Item:
        now = self.now
        return Item(self.known.kind, self.known.name, now.fingerprint, now.fields, now.definition.encode() or None)

    @property
    def state(self) -> str:
        if self.stands.was is not None:
            return QUARANTINED if self.known.guarded and self.known.kind == TOOL else self.stands.state
        first = self.known.versions[0]
        is_new = self.stands.state == "seen" and first.first_seen == self.now.last_seen
        return NEW if is_new else self.stands.state

    @property
    def classes(self) -> dict[str, str]:
        """Each with where it comes from."""
        found = dict.fromkeys(sorted(classes(self.found)), "its text")
        found.update((word, "what is known of it") for word in sorted(self.stands.classes))
        if self.now.definition and self.known.kind == TOOL:
            value = msgspec.json.decode(self.now.definition)
            if isinstance(value, dict):
                found.update((word, "its annotations") for word in sorted(annotated_classes(value.get("annotations"))))
        return found

    @property
    def pin(self) -> Pin:
        now = self.now
        return Pin(now.fingerprint, now.fields, now.definition, self.known.kind, self.known.name)

    @property
    def was(self) -> Version | None:
        return self.stands.was


def survey(locks: Locks | None = None) -> list[Row]:
    locks = Locks(os.getcwd()) if locks is None else locks
    if locks.broken is not None:
        raise ToolsError(locks.broken, hint="Put it back from version control, or remove it and pin again.")
    return [
        Row(server, key, known, locks)
        for server in all_known()
        for key, known in sorted(server.items.items(), key=lambda entry: (entry[1].kind != TOOL, entry[0]))
    ]


def chosen(rows: list[Row], what: str | None) -> list[Row]:
    """Those of SERVER, or the one of SERVER/TOOL; UsageError: there is none."""
    if what is None:
        return rows
    found = [row for row in rows if what in (row.server.server_name, row.name)]
    if not found:
        known = sorted({row.server.server_name for row in rows})
        hint = f"Known servers: {', '.join(map(printable, known))}." if known else "No server has been seen here yet."
        raise UsageError(f"nothing is known of {printable(what)}", hint=hint)
    return found


def counted() -> dict[tuple[str, str], tuple[int, int]] | None:
    """Calls and refusals by server and tool; None: there is no ledger to ask."""
    try:
        with open_ledger() as ledger:
            return tool_versions.counts(ledger.connection)
    except LedgerError:
        return None


def told(row: Row) -> list[dict[str, Any]]:
    """What the record tells of it, the oldest first."""
    try:
        with open_ledger() as ledger:
            found = tool_versions.history(ledger.connection, row.server.server_name, row.known.name, _HISTORY)
    except LedgerError:
        return []
    return [each for each in reversed(found) if each["kind"] == row.known.kind]
