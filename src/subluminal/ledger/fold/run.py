"""What a run became: its identity, its producers and its counts, folded from its events in order.

Started = first, ended = last, status = the worst of its producers once all have ended (design §7), counts from the
calls by the rule of `contracts.counts`. The store applies it while it ingests; `sub verify` applies it again from
nothing and compares, so a row edited by hand shows. Hence: a row depends only on its run's events and their order,
never on a clock or on other runs.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET, Struct

from subluminal.contracts import events as ev
from subluminal.contracts.counts import Counts
from subluminal.contracts.moments import normal_ts
from subluminal.contracts.vocabulary import RUN_STATUS_SEVERITY
from subluminal.ledger.fold.call import Call
from subluminal.ledger.fold.usage import add_message

if TYPE_CHECKING:
    from subluminal.ledger.fold.reading import AnyEvent

RUNNING = "RUNNING"


def json_text(value: Any) -> str | None:
    return None if value is UNSET or value is None else msgspec.json.encode(value).decode()


class TypedCall(Call):
    """A call folded from the events of `reading`."""

    absent = UNSET


class Producer(Struct, eq=False):
    """One shim's part in a run."""

    no: int
    shim_id: str
    run_id: str
    started_at: str
    journal: str | None = None
    last_seq: int = 0
    ended_at: str | None = None
    status: str | None = None
    host_id: str = ""
    proc_id: str = ""


class Run:
    """The columns of `runs`, the counts apart, and the run's producers."""

    run_no = 0
    agent_id = client = env = "unknown"
    ended_at: str | None = None
    status = RUNNING
    metadata_json: str | None = None
    principal: str | None = None
    workload_json: str | None = None
    mode: str | None = None
    policy_id: str | None = None
    policy_version: str | None = None
    policy_hash: str | None = None
    usage_json: str | None = None
    event_count = 0
    chain_head = b"\0" * 32
    identified = False  # there is nothing left to learn about who acts
    stored = False

    def __init__(self, run_id: str, started_at: str) -> None:
        self.run_id = run_id
        self.started_at = started_at
        self.counts = Counts()
        self.producers: dict[str, Producer] = {}

    def identify(self, event: AnyEvent) -> None:
        """The first event that knows more than "unknown" names the run's identity."""
        if self.agent_id == "unknown":
            self.agent_id = event.agent_id
        if self.client == "unknown":
            self.client = event.client
        if self.env == "unknown":
            self.env = event.env
        if self.principal is None and event.principal is not UNSET:
            self.principal = event.principal
        if self.workload_json is None and event.workload is not UNSET:
            self.workload_json = json_text(event.workload)
        known = "unknown" not in (self.agent_id, self.client, self.env)
        self.identified = known and self.principal is not None and self.workload_json is not None

    def join(self, event: AnyEvent, no: int = 0) -> Producer:
        """The producer of the first event of its own. A run that had ended goes on."""
        source = event.source
        producer = Producer(no, source.shim_id, event.run_id, normal_ts(event.ts))
        producer.host_id, producer.proc_id = source.host_id, source.proc_id
        self.producers[source.shim_id] = producer
        self._merge()
        return producer

    def start(self, event: ev.RunStart, producer: Producer) -> None:
        run = event.run
        producer.started_at = normal_ts(run.started_at)
        self.started_at = min(self.started_at, producer.started_at)
        if self.mode is None:
            self.mode = run.mode
            self.policy_id = run.policy.policy_id
            self.policy_version = run.policy.policy_version
            self.policy_hash = run.policy.policy_hash
        if self.metadata_json is None:
            self.metadata_json = json_text(run.meta)
        self._merge()

    def end(self, event: ev.RunEnd, producer: Producer) -> None:
        if producer.ended_at is None:
            producer.ended_at = normal_ts(event.run.ended_at)
            producer.status = event.run.status
        self._merge()

    def _merge(self) -> None:
        """Status and end, once every producer that took part has ended; RUNNING before."""
        if all(producer.ended_at is not None for producer in self.producers.values()):
            self.ended_at, self.status = self.told_end()
        else:
            self.ended_at, self.status = None, RUNNING

    def told_end(self) -> tuple[str | None, str]:
        """(ended_at, status) by the producers that have ended, though others may go on."""
        ended = [producer for producer in self.producers.values() if producer.ended_at is not None]
        statuses = {producer.status for producer in ended}
        worst = next((status for status in RUN_STATUS_SEVERITY if status in statuses), RUNNING)
        return max((str(producer.ended_at) for producer in ended), default=None), worst

    def message(self, event: ev.ModelMessage) -> None:
        self.usage_json = add_message(self.usage_json, event.model)

    def decide(self, call: Call, event: ev.ToolCallDecision, n: int = 0) -> bool:
        earlier = call.decision
        if not call.decide(event, n):
            return False
        if earlier is None and call.status is None:
            self.counts.decided(event.decision.action)
        else:
            self.counts.decided_again(earlier, event.decision.action, call.status)
        return True

    def end_call(self, call: Call, event: ev.ToolCallEnd, n: int = 0) -> bool:
        if not call.end(event, n):
            return False
        self.counts.ended(call.decision, event.status)
        return True


_HEAD = "run_no run_id agent_id client env started_at ended_at status metadata_json principal workload_json"
_POLICY = "mode policy_id policy_version policy_hash usage_json"
# The columns of `runs`, and where each is found.
RUN_PLACES = {
    **{name: name for name in f"{_HEAD} {_POLICY}".split()},
    "calls_total": "counts.total",
    "calls_allowed": "counts.allowed",
    "calls_blocked": "counts.blocked",
    "calls_throttled": "counts.throttled",
    "errors_total": "counts.errors",
    "event_count": "event_count",
    "chain_head": "chain_head",
}
RUN_COLUMNS = tuple(RUN_PLACES)
run_values = attrgetter(*RUN_PLACES.values())
