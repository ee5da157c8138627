"""Who a run is: the `SUB_*` variables an agent is started with, so that every shim below it tells the same identity."""

from __future__ import annotations

from collections.abc import Mapping

from subluminal.contracts.identity import Identity
from subluminal.contracts.vocabulary import IDENTITY_VARIABLES
from subluminal.host.identity import discover, new_id


def run_environment(environ: Mapping[str, str], client: str, agent_id: str) -> dict[str, str]:
    """The identity of a new run, or of the one we are in already when `SUB_RUN_ID` is set."""
    given = {name: environ[name] for name in IDENTITY_VARIABLES if environ.get(name)}
    given.setdefault("SUB_RUN_ID", new_id("run-"))
    return {**given, "SUB_AGENT_ID": agent_id, "SUB_CLIENT": client}


def run_identity(environ: Mapping[str, str], stamped: Mapping[str, str], host_id: str) -> Identity:
    """The same identity as the shims of the run will find it."""
    return discover({**environ, **stamped}, host_id)
