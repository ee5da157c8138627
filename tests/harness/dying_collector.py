"""`python -m harness.dying_collector N ARGUMENTS…`: `sub ARGUMENTS…`, killed after its Nth commit, before the ack."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from subluminal.cli import main
from subluminal.fleet.collector.commits import Commits

_commit = Commits._commit
_left = int(sys.argv[1])


def _commit_and_die(self: Commits, waiting: Any) -> None:
    global _left
    _commit(self, waiting)
    _left -= 1
    if _left <= 0:
        os.kill(os.getpid(), signal.SIGKILL)


Commits._commit = _commit_and_die  # type: ignore[method-assign]
sys.exit(main.run(sys.argv[2:]))
