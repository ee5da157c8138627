"""Before looking back: have the daemon take in what still lies in the spool, and wait for it, but not for long.

Nothing is imported or started when the journals hold nothing new, which is nearly always.
"""

from __future__ import annotations

import os
import sqlite3
from time import monotonic, sleep

from subluminal.contracts.errors import LedgerError
from subluminal.host import home
from subluminal.host.record.journal import list_journals
from subluminal.ledger.store.schema import open_reader

# On a busy machine the daemon, which yields to agents, needs longer to start than to take anything in.
WAIT_S = 1.0
_LOOK_S = 0.01


def unread_journals() -> list[str]:
    """Journals that hold more than the ledger has taken in."""
    spool = home.spool_dir()
    names = list_journals(spool)
    if not names:
        return []
    offsets = _offsets()
    return [name for name in names if _size(os.path.join(spool, name)) > offsets.get(name, 0)]


def sync(wait_s: float = WAIT_S) -> bool:
    """True: the ledger holds everything that was in the journals a moment ago."""
    if not unread_journals():
        return True
    from subluminal.ledger.daemon.contact import wake

    deadline = monotonic() + wait_s
    wake(wait_s)
    while monotonic() < deadline:
        sleep(_LOOK_S)
        if not unread_journals():
            return True
    return False


def _offsets() -> dict[str, int]:
    try:
        connection = open_reader(home.ledger_db())
    except LedgerError:
        return {}
    try:
        return {row[0]: row[1] for row in connection.execute("SELECT name, offset FROM journals")}
    except sqlite3.Error:
        return {}
    finally:
        connection.close()


def _size(path: str) -> int:
    try:
        return os.lstat(path).st_size
    except OSError:
        return 0
