"""This process takes part in a run: registered for shims that cannot see our environment, ended by `sub kill` and
TERMINATE_RUN, and able to sweep away processes of the run that have made themselves daemons.
"""

from __future__ import annotations

from collections.abc import Mapping

from subluminal.contracts.counts import Counts
from subluminal.host.run.processes import end_run_processes
from subluminal.host.run.registration import Registration
from subluminal.host.run.root import settle_root
from subluminal.host.run.state import SharedState
from subluminal.host.run.tally import counts_since, read_tally


class Membership:
    """`owner`: the run is ours alone, so whatever carries its id may be ended with it."""

    __slots__ = ("_before", "_owner", "_registration", "run_id", "state")

    def __init__(self, run_id: str, *, owner: bool) -> None:
        self.run_id = run_id
        self.state = SharedState.open(run_id)
        self._before = read_tally(self.state)
        self._owner = owner
        self._registration: Registration | None = None

    def register(self, environ: Mapping[str, str], directory: str) -> OSError | None:
        """Why it cannot be done, if so: the run goes on, and its shims find it through their environment.

        `directory` is where the run begins.
        """
        settle_root(self.run_id, directory)
        try:
            self._registration = Registration(environ)
        except OSError as error:
            return error
        return None

    @property
    def terminated(self) -> tuple[str, str] | None:
        """(code, message) once somebody has ordered the end of the run."""
        return self.state.terminated

    def counts(self, patience_s: float) -> Counts | None:
        """What the producers of the run have counted since we take part; None where they share no state."""
        return counts_since(self.state, self._before, patience_s)

    def sweep(self, *, below: int | None = None) -> list[int]:
        """End the run's processes, and all that descend from `below`; those that are left."""
        return end_run_processes(self.run_id if self._owner else None, below=below)

    def unregister(self) -> None:
        if self._registration is not None:
            self._registration.remove()

    def leave(self) -> None:
        self.unregister()
        if isinstance(self.state, SharedState):
            self.state.close()
