"""One server of a replay on standard input and output: the shim's own relay, before a server out of the record."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from subluminal.host.config import Config, ServerConfig, load_config
from subluminal.runs.replay.answering import RecordedServer
from subluminal.runs.replay.calls import RecordedSurface, RecordedTime, ReplayedCalls
from subluminal.runs.replay.picking import Miss, Picked, Picker, Used
from subluminal.runs.replay.session import Noted, Session, laid_over
from subluminal.runs.replay.upstream import RecordedUpstream

if TYPE_CHECKING:
    from subluminal.core.gate.record import CallRecord


class _Setup:
    """What the relay asks of a server's settings. Nothing is started, so that no secret is looked up."""

    def __init__(self, server_name: str) -> None:
        self.config: Config = load_config(os.environ)
        self.server: ServerConfig = self.config.server(server_name)
        self.words: Sequence[str] = ()


def serve(session: Session, server_name: str, command: Sequence[str] = ()) -> int:
    """Until the client has gone. `command`: the server itself, where calls that are not on record may go to it."""
    from subluminal.adapters.stdio.relay import Relay
    from subluminal.producer.producer import assemble

    tape = session.tape(server_name)
    environ = laid_over(os.environ, session)
    os.environ.clear()
    os.environ.update(environ)
    picks: dict[bytes, Picked] = {}
    time = RecordedTime(tape.start_ms)
    options = session.options
    setup = _Setup(server_name)
    producer = assemble(os.environ, config=setup.config)
    if producer.policy_error is not None:
        print(
            f"sub: the policy could not be loaded, so every call is refused: {producer.policy_error}", file=sys.stderr
        )

    def tell(tool_name: str, picked: Picked, record: CallRecord) -> None:
        session.note(_noted(server_name, tool_name, picked, record))

    replayed = functools.partial(
        ReplayedCalls,
        picker=Picker(tape.calls, Used(session.used_file), frozenset(options.ignore), options.repeat_last),
        picks=picks,
        time=time,
        tell=tell,
    )
    upstream = RecordedUpstream(RecordedServer(tape, server_name, picks), command if options.passes else ())
    producer.open({"server_name": server_name})
    relay = Relay(server_name, upstream, setup, producer, make_calls=replayed, clock=time.monotonic_ns)
    relay.exchange.calls.tools.surface = RecordedSurface(producer.gate, server_name, tape.calls)
    return relay.run()


def _noted(server_name: str, tool_name: str, picked: Picked, record: CallRecord) -> Noted:
    miss = picked.miss or Miss()
    decision = record.decision
    number = None if picked.call is None else picked.call.number
    how = picked.how if picked.call is not None else "miss"
    why = (decision.action, decision.rule_id, decision.reason_code)
    return Noted(server_name, tool_name, picked.args_hash, number, how, miss.nearest, miss.keys, *why)
