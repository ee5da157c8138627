"""Running `sub` as a user does, with a home of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from harness.ledger import sub_environment

SUB = [sys.executable, "-m", "subluminal"]


def run_sub(home: Path, *arguments: str, timeout: float = 60.0, **extra: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*SUB, *arguments],
        env=sub_environment(home, PYTHONUTF8="1", TZ="UTC", **extra),
        capture_output=True,
        encoding="utf-8",
        stdin=subprocess.DEVNULL,
        timeout=timeout,
        check=False,
    )


def stored(home: Path, lines: list[bytes]) -> None:
    """Put events into the ledger of this home, without a daemon."""
    from subluminal.ledger.store.writer import Store

    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    store = Store(str(home / "ledger.db"))
    store.write(lambda: [store.add(line) for line in lines])
    store.close()
