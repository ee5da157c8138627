"""Many runs in one process: which run a visitor belongs to, and the producer of that run.

    visitors = Visitors(os.environ, config=config, meta={"server_name": "notes"}, busy=calls_open)
    visitors.recognise(who)                  once; from any thread, for it looks at processes. VisitorRefused: say why
    producer = visitors.producer_for(who)    NoRoom: all runs have calls open
    visitors.tick(monotonic_ns())            about once a second: heartbeats, and the ends of idle runs
    visitors.close()                         the end of the process

Whose run it is, the first that tells:

    the process of the peer     where it, or one above it, carries a run or has registered one
    `Subluminal-Run-Id`         the header
    the process of the peer     the run that its shims derive, so that all doors of a client lead to one run
    the client's own session    by its header
    the session                 one run each

An agent id of the process stands before that of the header. Whoever names itself by words of its own (agent, client)
may come under more policies by them, but not under fewer. A repository's policy is that of the directory in which the
peer's process works; whoever has no process here has none.
"""

from __future__ import annotations

import os
import sys
from errno import EMFILE, ENFILE
from time import monotonic_ns, time_ns
from typing import NamedTuple

from subluminal.contracts.identity import Source
from subluminal.core.redact.redactor import Redactor
from subluminal.host.client_process import identity_of_process, run_id_of_session
from subluminal.host.identity import discover, make_source, new_id
from subluminal.host.places import ThisMachine
from subluminal.host.record.sinks import Sink, open_sink
from subluminal.host.run.state import SharedState
from subluminal.policy.sources import find_for_visitor
from subluminal.producer.health import Heartbeat
from subluminal.producer.policies import PolicyWatch
from subluminal.producer.pool import DESCRIPTORS_EACH, MAX_PRODUCERS, NoRoom, Pool
from subluminal.producer.producer import Producer
from subluminal.producer.thread_doorbell import SharedDoorbell, ThreadDoorbell
from subluminal.producer.visitor import MAX_ID_CHARS, Visitor, VisitorRefused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
    from typing import Any

    from subluminal.contracts.identity import Identity
    from subluminal.host.client_process import RunOfProcess
    from subluminal.host.config import Config

# Of our own environment: who acts is found for each visitor, and where we act (SUB_ENV, SUB_PRINCIPAL, SUB_WORKLOAD) is
# the same for all that say nothing else.
_OF_ONE_RUN = ("SUB_RUN_ID", "SUB_AGENT_ID", "SUB_CLIENT", "SUB_RUN_META")
# What of a run's environment counts here. Its home is not ours to move to.
_OF_THE_VISITOR = (*_OF_ONE_RUN, "SUB_ENV", "SUB_PRINCIPAL", "SUB_WORKLOAD", "SUB_POLICY", "SUB_POLICY_JSON")
_FULL = tuple(map(os.strerror, (EMFILE, ENFILE)))


class Acting(NamedTuple):
    """What tells one producer from another. `run` are variables; `agent_id` and `client` are words of the visitor's."""

    run_id: str
    run: tuple[tuple[str, str], ...]
    agent_id: str | None
    client: str | None
    directory: str | None


class Visitors:
    """`busy` tells how many calls of a producer are open, `ended` hears of each that has ended, `say` of troubles.

    `policy` is a path, `events` a sink as of `--events`; `secrets` are masked for every run, `injections` recorded for
    each. `command`: the words of all servers behind, for they may name directories.
    """

    def __init__(
        self,
        environ: Mapping[str, str],
        *,
        config: Config,
        meta: dict[str, Any],
        policy: str | None = None,
        events: str | None = None,
        secrets: Iterable[Any] = (),
        injections: Sequence[dict[str, Any]] = (),
        command: Sequence[str] = (),
        busy: Callable[[Producer], int] = lambda producer: 0,
        ended: Callable[[Producer], None] = lambda producer: None,
        say: Callable[[str], None] | None = None,
        limit: int | None = None,
    ) -> None:
        self._own = {name: value for name, value in environ.items() if name not in _OF_ONE_RUN}
        self._cwd = os.getcwd()
        self._config = config
        self._meta = meta
        self._policy = policy
        self._events = events or environ.get("SUB_EVENTS") or "ledger"
        self._redactor = Redactor(secrets, config.patterns)
        self._injections = injections
        self._command = tuple(command)
        self._calls_open = busy
        self._heard = ended
        self._say = say or _say
        self._said = ""
        self._source = make_source()
        self._sink: Sink | None = None
        self._bell: ThreadDoorbell | None = None
        self._hearts: dict[Producer, Heartbeat] = {}
        self.pool = Pool(self._open, limit or _limit(), busy=self._is_busy, ended=self._ended)

    def learn(self, *secrets: str) -> None:
        """More to be masked in the record of every run: tokens that were renewed. From any thread."""
        self._redactor.learn(*secrets)

    # -- who it is --------------------------------------------------------------------------------------------

    def producer_for(self, who: Visitor) -> Producer:
        """Up to date with its policies. Await nothing but `state_turn` between this and the judgement."""
        seat, now_ns = who.seat, monotonic_ns()
        if seat is None or seat.ended:
            seat = who.seat = self.pool.seat(self.recognise(who))
        seat.asked_ns = now_ns
        producer = seat.producer
        if now_ns >= producer.check_at_ns and producer.check_policies(now_ns, time_ns() // 1_000_000):
            self._tell(producer.policy_error)
        return producer

    def recognise(self, who: Visitor) -> Acting:
        """Who it is; found out once."""
        acting = who.acting
        if not isinstance(acting, Acting):
            acting = who.acting = self._find(who)
        return acting

    def _find(self, who: Visitor) -> Acting:
        of_process = self._process(who)
        directory = None if of_process is None else of_process.directory
        run: dict[str, str] = {}
        host = self._source.host_id
        if of_process is not None and (of_process.named or who.run_id is None):
            run = {name: of_process.environ[name] for name in _OF_THE_VISITOR if name in of_process.environ}
        elif who.run_id is not None:
            run = {"SUB_RUN_ID": who.run_id}
        elif who.client_session is not None:
            run = {"SUB_RUN_ID": run_id_of_session(host, ("client", who.client_session))}
        else:
            run = {"SUB_RUN_ID": run_id_of_session(host, ("mcp", who.session))}
        for name in ("SUB_RUN_ID", "SUB_AGENT_ID"):
            if len(run.get(name, "")) > MAX_ID_CHARS:
                raise VisitorRefused(f"{name} of the client's process is longer than {MAX_ID_CHARS} characters")
        agent_id = None if run.get("SUB_AGENT_ID") else who.agent_id
        client = None if run.get("SUB_CLIENT") else who.client
        return Acting(run["SUB_RUN_ID"], tuple(run.items()), agent_id, client, directory)

    def _process(self, who: Visitor) -> RunOfProcess | None:
        peer = who.peer
        if peer is None or peer.pid is None or not peer.is_ours:
            return None
        return identity_of_process(peer.pid, peer.start, self._source.host_id)

    # -- its producer -----------------------------------------------------------------------------------------

    def _open(self, key: Hashable) -> Producer:
        assert isinstance(key, Acting)
        source = Source(self._source.host_id, self._source.proc_id, new_id("s"))
        sink, own_sink = self._open_sink(source.shim_id)
        identity, places = self._identity(key), self._places(key)
        policies = PolicyWatch(
            self._own,
            self._cwd,
            self._policy,
            identity,
            places=places,
            find=lambda: find_for_visitor(self._own, self._cwd, self._policy, dict(key.run), key.directory),
            others=lambda: [self._identity(key._replace(agent_id=None, client=None))],
        )
        state = SharedState.open(key.run_id)
        if state.reason is not None and state.reason.endswith(_FULL):
            raise NoRoom  # a state of our own would forget what the run has spent
        producer = Producer(identity, source, sink, state, policies, self._redactor, self._config, None, key.directory)
        producer.own_sink = own_sink
        producer.doorbell = self._doorbell(sink.spooled)
        self._tell(producer.policy_error)
        self._tell(state.reason)
        producer.open(self._meta, self._injections)
        self._hearts[producer] = Heartbeat(producer, self._config.health_ms, monotonic_ns())
        return producer

    def _identity(self, acting: Acting) -> Identity:
        environ = {**self._own, **dict(acting.run)}
        if acting.agent_id is not None:
            environ["SUB_AGENT_ID"] = acting.agent_id
        return discover(environ, self._source.host_id, acting.client, acting.directory)

    def _places(self, acting: Acting) -> ThisMachine:
        return ThisMachine(
            self._own, self._cwd, run_id=acting.run_id, command=self._command, client_dir=acting.directory
        )

    def _open_sink(self, shim_id: str) -> tuple[Sink, bool]:
        """A journal is its producer's; a stream is one for all, so that lines of several do not tear each other."""
        if self._events == "ledger" or self._events.startswith("dir:"):
            return open_sink(self._events, shim_id), True
        if self._sink is None:
            self._sink = open_sink(self._events, shim_id)
        return self._sink, False

    def _doorbell(self, enabled: bool) -> SharedDoorbell:
        if self._bell is None:
            self._bell = ThreadDoorbell(enabled)
        return SharedDoorbell(self._bell)

    # -- as time passes ---------------------------------------------------------------------------------------

    def tick(self, now_ns: int) -> list[Producer]:
        """Those whose run has ended by idleness."""
        for producer in self.pool:
            if producer.sink.held:
                producer.sink.retry()
            heart = self._hearts[producer]
            if now_ns >= heart.next_ns:
                heart.beat(now_ns, self._calls_open(producer))
        return self.pool.close_idle(now_ns)

    def _is_busy(self, producer: Producer) -> bool:
        return bool(producer.waiting) or self._calls_open(producer) > 0

    def _ended(self, producer: Producer) -> None:
        self._hearts.pop(producer, None)
        self._heard(producer)

    def close(self, status: str = "SUCCEEDED") -> None:
        for trouble in self.pool.close(status):
            self._tell(trouble)
        sink, self._sink = self._sink, None
        if sink is not None:
            sink.close()
            self._tell(sink.trouble)
        bell, self._bell = self._bell, None
        if bell is not None:
            bell.ring(last=True)
            bell.enabled = False  # for the thread that still waits
            bell.close()

    def _tell(self, trouble: str | None) -> None:
        """Many runs have the same trouble at once: it is said once."""
        if trouble and trouble != self._said:
            self._said = trouble
            self._say(trouble)


def _limit() -> int:
    """At most half of the descriptors that this process may have: the others are for connections."""
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return MAX_PRODUCERS
    return max(1, min(MAX_PRODUCERS, soft // (2 * DESCRIPTORS_EACH)))


def _say(message: str) -> None:
    print(f"sub: {message}", file=sys.stderr)
