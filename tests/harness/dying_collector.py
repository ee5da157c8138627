"""`python -m harness.dying_collector WHEN ARGUMENTS…`: `sub ARGUMENTS…`, killed once.

WHEN is a number: after that many commits, before anybody is told. Or a table: before its insert and after that of the
one before it, on ClickHouse.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from subluminal.cli import main
from subluminal.fleet.collector.commits import Commits
from subluminal.fleet.stores import clickhouse
from subluminal.fleet.stores.tables import Table

_commit, _block = Commits._commit, clickhouse.block
_when = sys.argv[1]
_commits = 0


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _commit_and_die(self: Commits, waiting: Any) -> Any:
    global _commits
    done = _commit(self, waiting)
    _commits += 1
    if str(_commits) == _when:
        _die()
    return done


def _die_before(table: Table, rows: Any) -> bytes:
    if table.name == _when:
        _die()
    return _block(table, rows)


Commits._commit = _commit_and_die  # type: ignore[method-assign]
clickhouse.block = _die_before
sys.exit(main.run(sys.argv[2:]))
