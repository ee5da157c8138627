"""`sub promote` for the page: proposed, and carried out if it is still what was shown.

In a process of its own, in the directory where whoever looks works: what is judged again there may be the whole past,
and which policies are in force goes by the directory.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from hashlib import sha256
from typing import Any

from subluminal.contracts.errors import LedgerError
from subluminal.host.home import ledger_db
from subluminal.ledger.read.ledger import open_ledger

PERSIST = "persist"
# The past of a large ledger is judged again; somebody waits in front of a page.
PATIENCE_S = 240.0
_MOST = 2_000


class Asked:
    """One call, and for how long it is to be let through: `session` or `persist`."""

    def __init__(self, home: str, directory: str, call: dict[str, Any], scope: str) -> None:
        with open_ledger(ledger_db(home)) as ledger:
            found = ledger.call(call["call_id"], call.get("run_id"), call.get("shim_id"))
        self._home = home
        self._directory = directory if os.path.isdir(directory) else home
        words = [f"--run={found['run_id']}", *([f"--shim={found['shim_id']}"] if found["shim_id"] else [])]
        self._words = [*words, *(["--persist"] if scope == PERSIST else []), "--json", "--", found["call_id"]]
        self._scope = scope

    def proposal(self) -> dict[str, Any]:
        """As `sub promote --dry-run --json` says it; `seen` stands for what of it would be done."""
        told = self._sub("--dry-run")
        rule = dict(told["rule"] or {})
        if self._scope != PERSIST:
            rule.pop("rule_id", None)  # a new one each time
        done = [rule, told["limits"], told["above"], told.get("text_diff")]
        return {**told, "seen": sha256(json.dumps(done, sort_keys=True).encode()).hexdigest()}

    def carry_out(self, seen: str) -> dict[str, Any]:
        if self.proposal()["seen"] != seen:
            raise LedgerError("What would be done is not what was shown any more.", hint="Look at it again.")
        return self._sub(*(["--yes"] if self._scope == PERSIST else []))

    def _sub(self, *words: str) -> dict[str, Any]:
        command = [sys.executable, "-P", "-m", "subluminal", "promote", *words, *self._words]
        environ = {name: value for name, value in os.environ.items() if not name.startswith("SUB_")}
        try:
            done = subprocess.run(
                command,
                cwd=self._directory,
                env={**environ, "SUB_HOME": self._home, "PYTHONUTF8": "1"},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                encoding="utf-8",
                errors="replace",
                timeout=PATIENCE_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise LedgerError("That takes too long for a page.", hint="Use `sub promote`.") from None
        if done.returncode != 0:
            sentence = " ".join(done.stderr.split()).removeprefix("sub: ")[:_MOST]
            raise LedgerError(sentence or "It cannot be promoted.", hint="`sub promote` has more ways.")
        told: dict[str, Any] = json.loads(done.stdout)
        return told
