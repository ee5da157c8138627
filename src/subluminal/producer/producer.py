"""One producer of events: an identity with its gate, policies, run state, sink and doorbell.

    producer = assemble(os.environ, ...)     who acts is found here; policies, state and sink are opened
    producer.open({...})                     the first events
    producer.check_policies(now_ns, wall_ms) hot reload, now and then
    producer.hand_over()                     what the gate has written goes to the sink
    producer.close("SUCCEEDED")              `run_end`, and nothing unsent stays behind

Every process that writes events has one: a shim, an in-process server, `sub run`, `sub agent run`. A process that
serves many runs has a `pool` of them.
"""

from __future__ import annotations

import os
from time import monotonic_ns, time_ns

from subluminal.core.engine.bundle import Engine
from subluminal.core.engine.stack import Stack
from subluminal.core.gate.gate import Gate
from subluminal.core.redact.redactor import Redactor
from subluminal.host.identity import discover, make_source
from subluminal.host.places import ThisMachine
from subluminal.host.record.doorbell import Doorbell
from subluminal.host.record.sinks import open_sink
from subluminal.host.run.files import keep_fresh
from subluminal.host.run.state import SharedState
from subluminal.producer.policies import PolicyWatch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, MutableMapping, Sequence
    from typing import Any

    from subluminal.contracts.counts import Counts
    from subluminal.contracts.identity import Identity, Source
    from subluminal.core.engine.state import State
    from subluminal.host.config import Config
    from subluminal.host.record.sinks import Sink
    from subluminal.producer.state_queue import StateQueue

POLICY_CHECK_NS = 400_000_000
REFUSE_ALL = "No tool call is allowed because the policy could not be loaded. Tell the operator to run `sub doctor`."


class Producer:
    def __init__(
        self,
        identity: Identity,
        source: Source,
        sink: Sink,
        state: State,
        policies: PolicyWatch | Stack,
        redactor: Redactor,
        config: Config | None = None,
        places: ThisMachine | None = None,
        directory: str | None = None,
    ) -> None:
        self.places = places
        self.directory = directory  # where its client works, if that is known
        self.looks: list[Callable[[], None]] = []  # what else is looked at when policies are
        self.sink = sink
        self.own_sink = True  # false: others write to it as well
        self.state = state
        self.policies = policies if isinstance(policies, PolicyWatch) else None
        stack = policies.stack if isinstance(policies, PolicyWatch) else policies
        previews = {} if config is None else {"max_preview_bytes": config.max_preview_bytes}
        self.gate = Gate(identity, source, stack, state, redactor, **previews)
        if config is not None and config.keeps_results():
            from subluminal.core.gate.results import Results  # few want them

            bounds = config.max_result_bytes, config.max_results_bytes
            self.gate.results = Results(identity, source, redactor, config.keeps_results, *bounds)
        self.doorbell = Doorbell(sink.spooled)
        self.check_at_ns = monotonic_ns() + POLICY_CHECK_NS
        self.waiting: StateQueue | None = None  # those on a loop who wait for the run's state
        self._counted = False  # what this producer did is known to whoever keeps the run

    @property
    def policy_error(self) -> str | None:
        return None if self.policies is None else self.policies.error

    def open(self, meta: dict[str, Any], injections: Iterable[dict[str, Any]] = (), *, policies: bool = True) -> None:
        """The first events. Without `policies` nothing is said of those in force: others of the run do."""
        wall_ms = time_ns() // 1_000_000
        self.gate.open(wall_ms, monotonic_ns() // 1_000_000, meta)
        if policies:
            self._note_policies(wall_ms)
        for injection in injections:
            self.gate.secret_note(injection, wall_ms)
        self.hand_over()

    def check_policies(self, now_ns: int, wall_ms: int) -> bool:
        """Take over policies that have changed, from `check_at_ns` on. True: there are others now."""
        if now_ns < self.check_at_ns:
            return False
        self.check_at_ns = now_ns + POLICY_CHECK_NS
        reloads = self.policies is not None and self.policies.changed()
        if self.policies is not None and reloads:
            self.policies.reload()
            self._note_policies(wall_ms)
            self.hand_over()
        for look in self.looks:
            look()
        return reloads

    def _note_policies(self, wall_ms: int) -> None:
        """An invalid file keeps the last good policy, or refuses everything."""
        gate, watch = self.gate, self.policies
        if watch is None:
            gate.policy_note(gate.stack.policies[0], True, "snapshot", None, wall_ms)
        elif watch.error is None:
            gate.use_policies(watch.stack, watch.origin, wall_ms)
        else:
            gate.use_stack(watch.stack)
            gate.policy_note(watch.stack.policies[0], False, watch.origin, watch.error, wall_ms)
            if not watch.ever_loaded:
                gate.refuse_all(REFUSE_ALL)

    def hand_over(self, ring: bool = True) -> None:
        """Whoever has seen an answer can rely on its decision being with the sink."""
        gate = self.gate
        if gate.outbox:
            if gate.results is not None:
                self._keep_results()
            self.sink.write(gate.take())
            if ring and not self.doorbell.pressed_ns:
                self.doorbell.press()

    def _keep_results(self) -> None:
        """Before the events that vouch for them. Where they cannot be written, no more are kept: who reads finds those
        missing that the record speaks of."""
        from subluminal.host.record.results import append

        gate = self.gate
        frames = b"" if gate.results is None else gate.results.take()
        if frames:
            try:
                append(gate.identity.run_id, gate.source.shim_id, frames)
            except OSError:
                gate.results = None

    def close(self, status: str, of_run: Counts | None = None, ended_by: str | None = None) -> str | None:
        """`run_end`, once. Returns what of the record is missing, and why, if anything is. The rest: see the gate."""
        self.gate.close(status, time_ns() // 1_000_000, monotonic_ns() // 1_000_000, of_run, ended_by)
        self.hand_over()
        if not self._counted:
            from subluminal.host.run.tally import add_counts

            self._counted = True
            add_counts(self.state, self.gate.counts)
        if self.own_sink:
            self.sink.close()
        self.doorbell.ring(last=True)
        return self.sink.trouble

    def try_state(self) -> bool:
        """Whether the run's state is to be had at once; if so, it is locked for what follows."""
        return not isinstance(self.state, SharedState) or self.state.try_lock(self.gate.stack.wide)

    def keep_state(self, calls: int) -> None:
        """So many calls are judged before any goes anywhere: the run's state is locked and written once for them."""
        if isinstance(self.state, SharedState):
            self.state.keep(calls)

    def let_state_go(self) -> None:
        """What `try_state` took, or was kept, and nothing has used."""
        if isinstance(self.state, SharedState):
            self.state.let_go()

    def close_state(self) -> None:
        """After `close`, in a process that goes on: the descriptors of what is shared."""
        if isinstance(self.state, SharedState):
            self.state.let_go()
            self.state.close()

    def keep_state_fresh(self) -> None:
        """A run that makes no calls for long is still on: nobody may clear its state away."""
        if isinstance(self.state, SharedState):
            keep_fresh(self.state.path)

    def drop(self) -> None:
        """In a forked child: let go of what is the parent's, without a word. It may have been closing it just then."""
        closing = [self.sink.drop, self.doorbell.close]
        if isinstance(self.state, SharedState):
            closing.append(self.state.drop)
        for close in closing:
            try:
                close()
            except (OSError, ValueError, BufferError):
                pass


def assemble(
    environ: MutableMapping[str, str],
    *,
    client: str | None = None,
    events: str | None = None,
    policy: str | dict[str, Any] | None = None,
    secrets: Iterable[Any] = (),
    config: Config | None = None,
    of_entry: bool = False,
    command: Sequence[str] = (),
) -> Producer:
    """Find out who acts, and open what a producer needs.

    `policy` is a path (the organisation's policy is in force as well), a compiled snapshot (exactly that), or None: the
    policies found for this directory. `events` names a sink as `--events` does. `of_entry`: see `PolicyWatch`.
    `command` is the server's, where we run one.
    """
    source = make_source()
    sink = open_sink(events or environ.get("SUB_EVENTS") or "ledger", source.shim_id)
    identity = discover(environ, source.host_id, client)
    cwd = os.getcwd()
    places = ThisMachine(environ, cwd, run_id=identity.run_id, command=command, of_entry=of_entry)
    policies: PolicyWatch | Stack
    if isinstance(policy, dict):
        policies = Stack([Engine(policy, identity, places)])
    else:
        policies = PolicyWatch(environ, cwd, policy, identity, of_entry=of_entry, places=places)
    redactor = Redactor(secrets, config.patterns if config is not None else ())
    return Producer(identity, source, sink, SharedState.open(identity.run_id), policies, redactor, config, places, cwd)
