"""The event of a promote: in the run whose call was promoted, so that its story tells it."""

from __future__ import annotations

import os
import time
from typing import Any

from subluminal.contracts.counts import Counts
from subluminal.contracts.identity import Identity
from subluminal.contracts.moments import epoch_ms
from subluminal.control.promote.wish import Recorded
from subluminal.core.engine.stack import Stack
from subluminal.core.engine.state import LocalState
from subluminal.core.redact.redactor import Redactor
from subluminal.host.identity import make_source, user_name
from subluminal.host.record.sinks import open_sink
from subluminal.policy.edit.changes import Change
from subluminal.producer.producer import Producer


def who() -> str:
    return user_name(os.environ)


def note_down(recorded: Recorded, change: Change, ended_at: str | None, **more: Any) -> None:
    """`ended_at`: when the run had ended, if it has. Who looks at it afterwards does not make it longer."""
    identity: Identity = recorded.run.identity
    source = make_source()
    sink = open_sink("ledger", source.shim_id)
    producer = Producer(identity, source, sink, LocalState(), Stack([]), Redactor())
    wall_ms = time.time_ns() // 1_000_000
    told = {
        "promote_id": change.promote_id,
        "call_id": recorded.call.call_id,
        "policy_id": change.policy_id,
        "by": change.by,
        "summary": change.summary,
        "change": {"rule": change.rule} if change.rule is not None else {"limits": change.limits},
        **({"rule_id": recorded.known["rule_id"]} if recorded.known["rule_id"] else {}),
        **more,
    }
    gate = producer.gate
    gate.promote_note(told, wall_ms)
    ended_ms = wall_ms if ended_at is None else epoch_ms(ended_at)
    gate.outbox.append(gate.emitter.run_end(ended_ms, "SUCCEEDED", Counts().as_summary(0)))
    producer.hand_over()
    sink.close()
    producer.doorbell.ring(last=True)
