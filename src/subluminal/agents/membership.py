"""An agent's place among the runs of this machine: registered for shims that cannot see our environment, ended by
`sub kill` and TERMINATE_RUN, and swept clean of processes that have made themselves daemons.

The seam to `host.registration`, `host.offspring` and `host.runstate`; nothing here knows of agents.
"""

from __future__ import annotations

from collections.abc import Mapping

from subluminal.host.run.processes import end_run_processes
from subluminal.host.run.registration import Registration
from subluminal.host.run.state import SharedState


class RunMembership:
    """`owner`: the run is ours alone, so whatever carries its id may be ended with it."""

    def __init__(self, environ: Mapping[str, str], *, owner: bool) -> None:
        self.run_id = environ["SUB_RUN_ID"]
        self._owner = owner
        self._registration = _register(environ)
        self._state = SharedState.open(self.run_id)

    @property
    def terminated(self) -> tuple[str, str] | None:
        """(code, message) once somebody has ordered the end of the run."""
        return self._state.terminated

    def leave(self, *, sweep: bool) -> None:
        if sweep and self._owner:
            end_run_processes(self.run_id)
        if self._registration is not None:
            self._registration.remove()
        if isinstance(self._state, SharedState):
            self._state.close()


def _register(environ: Mapping[str, str]) -> Registration | None:
    """Without a home that can be written the run goes on; shims then find it through the processes' environment."""
    try:
        return Registration(environ)
    except OSError:
        return None
