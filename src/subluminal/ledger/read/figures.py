"""A machine's figures (`contracts.figures`) as they are now."""

from __future__ import annotations

import os

from subluminal.contracts import figures as known
from subluminal.contracts.figures import Labels, Reading, one
from subluminal.host.home import ledger_db, spool_dir
from subluminal.host.record.journal import list_journals
from subluminal.ledger.read.tally import Tally
from subluminal.ledger.store.schema import open_reader


class Watch:
    """Counts from when it was made. For one thread at a time."""

    def __init__(self, home: str) -> None:
        self._home = home
        self._path = ledger_db(home)
        connection = open_reader(self._path)
        try:
            self._tally = Tally(connection)
        finally:
            connection.close()

    def look(self) -> list[Reading]:
        connection = open_reader(self._path)
        try:
            self._tally.advance(connection)
            offsets = {row[0]: row[1] for row in connection.execute("SELECT name, offset FROM journals")}
            rejected = connection.execute("SELECT count(*) FROM rejected").fetchone()[0]
        finally:
            connection.close()
        sizes = _sizes(spool_dir(self._home))
        lag = sum(max(0, size - offsets.get(name, 0)) for name, size in sizes.items())
        return [
            *self._counts(),
            one(known.JOURNALS_LAG, lag),
            one(known.SPOOL, sum(sizes.values())),
            one(known.REJECTED_LINES, rejected),
        ]

    def _counts(self) -> list[Reading]:
        tally = self._tally
        found = [
            Reading(known.CALLS, [((("decision", action),), count) for action, count in tally.decisions.items()]),
            Reading(known.ERRORS, [((("class", name),), count) for name, count in tally.errors.items()]),
        ]
        if tally.durations:
            durations = sorted(tally.durations.items())
            found.append(Reading(known.DURATION, [(_operation(error), taken) for error, taken in durations]))
        return found


def _operation(error: str) -> Labels:
    return (("mcp.method.name", "tools/call"), *((("error.type", error),) if error else ()))


def _sizes(spool: str) -> dict[str, int]:
    sizes = {}
    try:
        names = list_journals(spool)
    except OSError:
        return {}
    for name in names:
        try:
            sizes[name] = os.stat(os.path.join(spool, name)).st_size
        except OSError:  # taken in meanwhile
            pass
    return sizes
