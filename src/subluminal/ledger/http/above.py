"""What the page asks of rooms above this one: they judge calls again, read policies, know tools, and stop runs.

Whoever starts the daemon hands it over (`cli.ui.above`). Each is asked in a thread, answers with what JSON can say, and
raises a SubluminalError where it cannot.
"""

from __future__ import annotations

from typing import Any, Protocol

from subluminal.contracts.figures import Reading
from subluminal.ledger.read.refused import Messages

Told = dict[str, Any]


class Above(Protocol):
    def explain(self, call_id: str, run_id: str | None, shim_id: str | None) -> Told:
        """A recorded call, judged again by the version that decided it."""

    def messages(self, since_ms: int) -> Messages:
        """What only transcripts of clients know of calls since then."""

    def policies(self, directory: str, who: dict[str, str]) -> Told:
        """What a run that starts there obeys, rule by rule, and every version that the ledger knows."""

    def policy_diff(self, old_hash: str, new_hash: str) -> Told: ...

    def tools(self, directory: str) -> Told: ...

    def tool(self, directory: str, server_name: str, key: str) -> Told: ...

    def proposal(self, directory: str, call: dict[str, Any], scope: str) -> Told:
        """What would let a refused call through: `call` names it, `scope` says for its run or for good."""

    def promote(self, directory: str, call: dict[str, Any], scope: str, seen: str) -> Told:
        """Do it, if it is still what was `seen`."""

    def run_of(self, pid: int) -> str | None:
        """The run that a process belongs to; None: it is nobody's."""

    def kill(self, run_id: str, reason: str) -> Told: ...

    def approve(self, directory: str, server_name: str, key: str, fingerprint: str) -> Told:
        """Accept what a server says of a tool, if it is still this."""

    def fleet_figures(self) -> list[Reading]:
        """Of a machine that has joined a fleet: its snapshot, its stop, what is still to be shipped. Else nothing."""
