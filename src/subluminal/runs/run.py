"""Who a run is: its identity, the environment that carries it to every process below, and our place in it."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping

from subluminal.contracts.errors import UsageError
from subluminal.core.redact.redactor import Redactor
from subluminal.host.home import sub_home
from subluminal.host.identity import discover, is_local, make_source, new_id
from subluminal.host.record.sinks import open_sink
from subluminal.host.run.membership import Membership
from subluminal.host.run_meta import MetaFault, checked, meta_text, pairs, parse_meta
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
    if options.meta:
        made["SUB_RUN_META"] = _with_meta(environ.get("SUB_RUN_META", ""), options.meta)
    if options.policy:
        path = made["SUB_POLICY"] = os.path.abspath(options.policy)
        if not os.path.exists(path):
            raise UsageError(f"--policy {options.policy}: there is no such file")
    return made


def _with_meta(inherited: str, words: tuple[str, ...]) -> str:
    """What was said of an outer run stays, unless it is said anew."""
    try:
        known = parse_meta(inherited)
    except MetaFault:
        known = {}  # `discover` says so, wherever nothing is said anew
    try:
        return meta_text(checked({**known, **pairs(words)}))
    except MetaFault as fault:
        raise UsageError(f"--meta cannot be taken: {fault}", hint="Write --meta key=value, once for each.") from None


class Run:
    """`environ` is the run's own, see `run_environment`; what was found out about the identity is added to it."""

    def __init__(self, environ: dict[str, str], options: RunOptions) -> None:
        self.environ = environ
        self.source = make_source()
        self.identity = discover(environ, self.source.host_id)
        found = {"SUB_AGENT_ID": self.identity.agent_id, "SUB_ENV": self.identity.env}
        found["SUB_PRINCIPAL"] = self.identity.principal or ""
        environ.update({variable: word for variable, word in found.items() if word})
        if self.identity.meta is None:
            environ.pop("SUB_RUN_META", None)  # said to be wrong once, not by every shim again
        if self.identity.workload and not is_local(self.identity.workload):
            # For shims whose client scrubs the variables of the CI system or of the pod.
            environ.setdefault("SUB_WORKLOAD", json.dumps(self.identity.workload))
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
