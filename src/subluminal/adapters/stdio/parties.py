"""Who takes part: the sink, the identity, the policies in force and the gate of one shim."""

from __future__ import annotations

import os
from time import monotonic_ns, time_ns

from subluminal.core.gate.gate import Gate
from subluminal.core.redact.redactor import Redactor
from subluminal.host.identity import discover, make_source
from subluminal.host.record.sinks import Sink, open_sink
from subluminal.host.run.state import SharedState
from subluminal.producer.policies import PolicyWatch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from subluminal.adapters.stdio.options import Options
    from subluminal.adapters.stdio.start_up import Prepared


class Parties:
    __slots__ = ("gate", "policy", "sink")

    def __init__(self, options: Options, prepared: Prepared) -> None:
        source = make_source()
        self.sink: Sink = open_sink(options.events or os.environ.get("SUB_EVENTS") or "ledger", source.shim_id)
        identity = discover(os.environ, source.host_id, options.client)
        self.policy = PolicyWatch(os.environ, os.getcwd(), options.policy, identity)
        self.gate = Gate(
            identity,
            source,
            self.policy.stack,
            SharedState.open(identity.run_id),
            Redactor(prepared.secrets, prepared.config.patterns),
            prepared.config.max_preview_bytes,
        )

    def open(self, options: Options, prepared: Prepared) -> None:
        """The first events of a shim."""
        wall_ms = time_ns() // 1_000_000
        self.gate.open(wall_ms, monotonic_ns() // 1_000_000, {"server_name": options.server_name})
        self.note_policies(wall_ms)
        for injection in prepared.injections:
            self.gate.secret_note(injection, wall_ms)

    def note_policies(self, wall_ms: int) -> None:
        """Tell the gate what is in force; an invalid file keeps the last good policy, or refuses all."""
        policy = self.policy
        if policy.error is None:
            self.gate.use_policies(policy.stack, policy.origin, wall_ms)
            return
        self.gate.policy_note(policy.stack.policies[0], False, policy.origin, policy.error, wall_ms)
        if not policy.ever_loaded:
            self.gate.refuse_all(
                "No tool call is allowed because the policy could not be loaded. Tell the operator to run `sub doctor`."
            )


def record_failed_start(options: Options, prepared: Prepared) -> None:
    """A server that lacks a secret is not started: the record says so, then the user is told."""
    parties = Parties(options, prepared)
    parties.open(options, prepared)
    parties.gate.close("FAILED", time_ns() // 1_000_000, monotonic_ns() // 1_000_000)
    parties.sink.write(parties.gate.take())
    parties.sink.close()
