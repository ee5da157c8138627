"""Who a run is: its identity, the environment that carries it to every process below, and our place in it."""

from __future__ import annotations

import os
from collections.abc import Mapping

from subluminal.contracts.errors import UsageError
from subluminal.core.redact.redactor import Redactor
from subluminal.host.home import sub_home
from subluminal.host.identity import discover, make_source, new_id
from subluminal.host.record.sinks import open_sink
from subluminal.host.run.membership import Membership
from subluminal.producer.policies import PolicyWatch
from subluminal.producer.producer import Producer
from subluminal.runs.options import RunOptions


def run_environment(environ: Mapping[str, str], options: RunOptions, client: str) -> dict[str, str]:
    """The environment of a new run, or of the one we are in already. `client`: where neither option nor variable is."""
    made = dict(environ)
    made["SUB_RUN_ID"] = options.run_id or environ.get("SUB_RUN_ID") or new_id("run-")
    made["SUB_CLIENT"] = options.client or environ.get("SUB_CLIENT") or client
    made["SUB_HOME"] = os.path.abspath(sub_home(environ))  # also for what sets another HOME
    chosen = {"SUB_AGENT_ID": options.agent_id, "SUB_ENV": options.env, "SUB_PRINCIPAL": options.principal}
    made.update({variable: word for variable, word in chosen.items() if word})
    if options.policy:
        path = made["SUB_POLICY"] = os.path.abspath(options.policy)
        if not os.path.exists(path):
            raise UsageError(f"--policy {options.policy}: there is no such file")
    return made


class Run:
    """`environ` is the run's own, see `run_environment`; what was found out about the identity is added to it."""

    def __init__(self, environ: dict[str, str], options: RunOptions) -> None:
        self.environ = environ
        self.source = make_source()
        self.identity = discover(environ, self.source.host_id)
        found = {"SUB_AGENT_ID": self.identity.agent_id, "SUB_ENV": self.identity.env}
        found["SUB_PRINCIPAL"] = self.identity.principal or ""
        environ.update({variable: word for variable, word in found.items() if word})
        owner = bool(options.run_id) or not os.environ.get("SUB_RUN_ID")
        self.membership = Membership(self.run_id, owner=owner)

    @property
    def run_id(self) -> str:
        return self.environ["SUB_RUN_ID"]

    def producer(self) -> Producer:
        """For what the keeper of a run records itself: that it began, by which policies, and how it ended."""
        sink = open_sink(self.environ.get("SUB_EVENTS") or "ledger", self.source.shim_id)
        policies = PolicyWatch(self.environ, os.getcwd(), None, self.identity)
        return Producer(self.identity, self.source, sink, self.membership.state, policies, Redactor(()))
