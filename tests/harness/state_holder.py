"""Another process that has locked a run's state, until it is told to let go or is killed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

HOLDER = """
import sys
from subluminal.host.run.state import SharedState
state = SharedState.open(sys.argv[1])
state.begin(wide=sys.argv[2] == "wide")
print("held", flush=True)
sys.stdin.readline()
state.abandon()
print("free", flush=True)
sys.stdin.readline()
"""


class Holder:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        assert self._read() == "held"

    def let_go(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        assert self._read() == "free"

    def kill(self) -> None:
        self._process.kill()

    def _read(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()


@contextmanager
def holding(run_id: str, *, wide: bool = False) -> Iterator[Holder]:
    """In the home of this process. `wide`: with the state of the machine."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, run_id, "wide" if wide else ""],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield Holder(process)
    finally:
        process.kill()
        process.communicate()
