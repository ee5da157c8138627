"""What the page asks of rooms that the daemon cannot reach (`ledger.http.above`). Nothing is imported before it is
asked for: most daemons never serve a page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from subluminal.host.home import is_present, joined_file, ledger_db

if TYPE_CHECKING:
    from subluminal.contracts.figures import Reading
    from subluminal.ledger.read.refused import Messages

Told = dict[str, Any]


class HereAbove:
    def __init__(self, home: str) -> None:
        self._home = home
        self._path = ledger_db(home)

    def explain(self, call_id: str, run_id: str | None, shim_id: str | None) -> Told:
        from subluminal.cli.ui.explanation import explain_recorded

        return explain_recorded(self._path, call_id, run_id, shim_id)

    def messages(self, since_ms: int) -> Messages:
        from subluminal.control.hints.messages import transcript_messages

        return transcript_messages(since_ms)

    def policies(self, directory: str, who: dict[str, str]) -> Told:
        from subluminal.cli.ui.policies import policies

        return policies(self._home, directory, who)

    def policy_diff(self, old_hash: str, new_hash: str) -> Told:
        from subluminal.cli.ui.policies import policy_diff

        return policy_diff(self._home, old_hash, new_hash)

    def tools(self, directory: str) -> Told:
        from subluminal.cli.ui.tools import tools

        return tools(directory)

    def tool(self, directory: str, server_name: str, key: str) -> Told:
        from subluminal.cli.ui.tools import tool

        return tool(directory, server_name, key)

    def proposal(self, directory: str, call: dict[str, Any], scope: str) -> Told:
        from subluminal.cli.ui.promoting import Asked

        return Asked(self._home, directory, call, scope).proposal()

    def promote(self, directory: str, call: dict[str, Any], scope: str, seen: str) -> Told:
        from subluminal.cli.ui.promoting import Asked

        return Asked(self._home, directory, call, scope).carry_out(seen)

    def run_of(self, pid: int) -> str | None:
        from subluminal.host.client_process import run_of_process

        return run_of_process(pid)

    def kill(self, run_id: str, reason: str) -> Told:
        from subluminal.cli.ui.doing import kill

        return kill(run_id, reason)

    def approve(self, directory: str, server_name: str, key: str, fingerprint: str) -> Told:
        from subluminal.cli.ui.doing import approve

        return approve(directory, server_name, key, fingerprint)

    def fleet_figures(self) -> list[Reading]:
        if not is_present(joined_file(self._home)):
            return []
        from subluminal.fleet.telemetry.standing import fleet_figures

        return fleet_figures(self._home)
