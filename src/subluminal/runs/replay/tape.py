"""What a run has recorded, as far as it can be answered: its calls in their order, their results, and what its servers
said of themselves."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import IO
from zlib import decompressobj
from zlib import error as ZlibError

from msgspec import UNSET, Struct

from subluminal.contracts import events as ev
from subluminal.contracts.errors import LedgerError, VerificationError
from subluminal.contracts.history import RecordedCall, RecordedRun
from subluminal.contracts.kept_results import Damaged, frames
from subluminal.contracts.vocabulary import ALLOW, BUILTIN_SERVER, PROVIDER_SERVER
from subluminal.host.files import open_private
from subluminal.host.record.results import directory_of, kept_files
from subluminal.ledger.fold.ownership import is_foreign
from subluminal.ledger.fold.reading import BadEvent, read_event

# Doors at which a server's own answers pass. What other doors saw of a call is no answer that a client could be given.
ANSWERED = ("mcp_stdio", "mcp_http", "in_process")
# Doors before those: what they refused got no further, and has no answer.
ASKED = ("hook", "messages_api")
# No result of ours is larger, and no bundle makes us hold more.
MAX_RESULT_BYTES = 1 << 26
# What became of a result. KEPT can be answered.
KEPT = ("whole", "masked")
LOST, NONE = "lost", "none"
_HOW = (
    'Set `results = "all"` below [record] in config.toml, or SUB_RECORD_RESULTS=all for one run, and record it again.'
)


class Taped(Struct, eq=False):
    """A recorded call. `classes`: those that its server gave, or by which its tool stood. `result`: deflated."""

    number: int
    call_id: str
    server_name: str
    tool_name: str
    args_hash: str
    args_preview: str | None
    at_ms: int
    ended_ms: int | None
    latency_ms: int | None
    action: str | None
    rule_id: str | None
    reason_code: str | None
    status: str | None
    classes: list[str]
    state: str = NONE
    size: int = 0
    result: bytes | None = None
    error_code: str | None = None
    error_message: str | None = None

    @property
    def decision(self) -> dict[str, str | None]:
        return {"action": self.action, "rule_id": self.rule_id, "reason_code": self.reason_code}


class Said(Struct, eq=False):
    server_name: str
    method: str
    result: bytes


class Tape(Struct, eq=False):
    """`start_ms`: when its first call was made. `elsewhere`: calls that were seen at doors which a replay has not, by
    transport; `builtin`: the client's own."""

    run_id: str
    identity: dict[str, str | None]
    calls: list[Taped] = []
    said: list[Said] = []
    start_ms: int = 0
    elsewhere: dict[str, int] = {}
    builtin: int = 0

    @property
    def servers(self) -> list[str]:
        """Every server that was called, or that said anything."""
        return sorted({call.server_name for call in self.calls} | {said.server_name for said in self.said})

    def of_server(self, server_name: str) -> Tape:
        """What one of them has to know."""
        calls = [call for call in self.calls if call.server_name == server_name]
        said = [said for said in self.said if said.server_name == server_name]
        return Tape(self.run_id, self.identity, calls, said, self.start_ms)


def inflated(result: bytes) -> bytes | None:
    """None: it is not what we deflated, or larger than anything of ours."""
    inflating = decompressobj()
    try:
        data = inflating.decompress(result, MAX_RESULT_BYTES)
    except ZlibError:
        return None
    return data if inflating.eof else None


def taped(run: RecordedRun) -> Tape:
    """The run without its results."""
    who = run.identity
    identity = {"agent_id": who.agent_id, "client": who.client, "env": who.env, "principal": who.principal}
    identity["workload"] = json.dumps(who.workload) if who.workload else None
    tape = Tape(who.run_id, identity)
    seen = at_servers(run)
    tape.start_ms = min((call.at_ms for call in run.calls), default=0)
    for call in run.calls:
        if call.transport in ANSWERED:
            if call.continues is None:
                tape.calls.append(_call(len(tape.calls), call, run.policy_tags))
        elif call.tool_use_id in seen:
            continue  # another door has told of it
        elif call.server_name in (BUILTIN_SERVER, PROVIDER_SERVER):
            tape.builtin += call.server_name == BUILTIN_SERVER
        elif call.transport in ASKED and call.action != ALLOW and not call.observed:
            tape.calls.append(_call(len(tape.calls), call, run.policy_tags))
        else:
            tape.elsewhere[call.transport] = tape.elsewhere.get(call.transport, 0) + 1
        if call.tool_use_id:
            seen.add(call.tool_use_id)
    return tape


def at_servers(run: RecordedRun) -> set[str]:
    """The client's ids of calls that the doors of their servers saw: other doors tell of the same calls."""
    return {call.tool_use_id for call in run.calls if call.transport in ANSWERED and call.tool_use_id}


def _call(number: int, call: RecordedCall, policy_tags: frozenset[str] | None) -> Taped:
    return Taped(
        number,
        call.call_id,
        call.server_name,
        call.tool_name,
        call.args_hash,
        call.args_preview,
        call.at_ms,
        call.ended_ms,
        call.latency_ms,
        call.action,
        call.rule_id,
        call.reason_code,
        call.status,
        sorted(call.tags - (policy_tags or frozenset())),
    )


# -- results ------------------------------------------------------------------------------------------------------


def load_tape(name: str, step: Callable[[], None] = lambda: None) -> Tape:
    """The run with its results: `name` is a run of this machine's ledger, or a bundle. `step` hears of every event."""
    with recorded(name) as source:
        run, lines, results = source
        tape = taped(run)
        ends = _ends(lines, tape.run_id, step)
        if not any(end.result_kept is not UNSET for end in ends.values()):
            raise LedgerError(
                f"No results of run {tape.run_id} were kept: nothing can be answered from its record.", hint=_HOW
            )
        for call in tape.calls:
            _note_end(call, ends.get(call.call_id))
        found = 0
        for file_name, file in results:
            found += 1
            _take_results(tape, file_name, file, ends)
        if not found:
            raise _gone(name, tape.run_id)
    return tape


@contextmanager
def recorded(name: str) -> Iterator[tuple[RecordedRun, Iterable[bytes], Iterable[tuple[str, IO[bytes]]]]]:
    """A run, its events, and its files of results: out of this machine's ledger, or out of a bundle."""
    from subluminal.ledger.read.history import recorded_run, runs_of_lines
    from subluminal.ledger.read.ledger import open_or_empty
    from subluminal.ledger.trace.bundle import is_bundle, open_bundle
    from subluminal.ledger.trace.bundle_proof import verify_opened

    if is_bundle(name):
        with open_bundle(name) as bundle:
            report = verify_opened(bundle, None)
            if not report.ok:
                hint = f"`sub verify {name}` says what is wrong with it."
                raise VerificationError(f"{name} is no sound bundle: {report.faults[0].what}.", hint=hint)
            runs = list(runs_of_lines(bundle.lines(), dict(bundle.policies())))
            if not runs:
                raise LedgerError(f"{name} holds no run.", hint="Export it again with `sub export run`.")
            yield runs[0], bundle.lines(), _of_bundle(bundle.results(), runs[0].identity.run_id)
    else:
        with open_or_empty() as ledger:
            run_id = ledger.resolve_run(name)
            yield recorded_run(ledger, run_id), ledger.lines(run_id), _of_home(run_id)


def _of_home(run_id: str) -> Iterator[tuple[str, IO[bytes]]]:
    for path in kept_files(directory_of(run_id)):
        with open(open_private(path, os.O_RDONLY), "rb") as file:
            yield path, file


def _of_bundle(results: Iterator[tuple[str, IO[bytes]]], run_id: str) -> Iterator[tuple[str, IO[bytes]]]:
    """Where the bundle has none, those that are still here: `sub run --bundle` leaves them in the home."""
    found = False
    for each in results:
        found = True
        yield each
    if not found:
        yield from _of_home(run_id)


def _gone(name: str, run_id: str) -> LedgerError:
    if os.path.exists(name):
        hint = f"Where it was recorded: sub export run {run_id} --with-results."
        return LedgerError(f"{name} was exported without the results of its calls.", hint=hint)
    hint = f"Where they still are: sub export run {run_id} --with-results; then replay the bundle."
    message = f"The results of run {run_id} were kept, but are not here: pruned since, or kept on another machine."
    return LedgerError(message, hint=hint)


def _ends(lines: Iterable[bytes], run_id: str, step: Callable[[], None]) -> dict[str, ev.ToolCallEnd]:
    ends: dict[str, ev.ToolCallEnd] = {}
    for line in lines:
        step()
        if b'"tool_call_end"' not in line:
            continue
        try:
            event = read_event(line)
        except BadEvent:
            continue
        if not isinstance(event, ev.ToolCallEnd) or event.run_id != run_id:
            continue
        if not is_foreign(event.call.call_id, event.source.shim_id):
            ends.setdefault(event.call.call_id, event)
    return ends


def _note_end(call: Taped, end: ev.ToolCallEnd | None) -> None:
    if end is None:
        return
    if end.error is not UNSET:
        call.error_code = None if end.error.code is UNSET else str(end.error.code)
        call.error_message = None if end.error.message is UNSET else end.error.message
    if end.result_kept is not UNSET:
        kept = end.result_kept
        call.size = kept.bytes
        call.state = LOST if kept.state in KEPT else kept.state  # until it is found


def _take_results(tape: Tape, file_name: str, file: IO[bytes], ends: dict[str, ev.ToolCallEnd]) -> None:
    """Each result that the record vouches for; what a server said counts from the next such result on, or where nobody
    else told of it."""
    calls = {call.call_id: call for call in tape.calls}
    waiting: list[Said] = []
    try:
        for header, deflated, chain in frames(file, tape.run_id):
            if header.get("call_id") is None:
                waiting.append(Said(str(header.get("server_name")), str(header.get("method")), deflated))
                continue
            call_id = str(header["call_id"])
            end = ends.get(call_id)
            if end is None or end.result_kept is UNSET:
                continue  # its producer was killed before it could say so
            if end.result_kept.hash != chain.hex():
                raise Damaged(f"at call {call_id}, or before it, stands another result than was recorded")
            tape.said += waiting
            waiting = []
            if call_id in calls:
                calls[call_id].state, calls[call_id].result = end.result_kept.state, deflated
    except Damaged as fault:
        hint = "Somebody has changed it. Nothing of it is believed; record the run again, or use a bundle of it."
        raise VerificationError(f"{file_name} is not as it was written: {fault}.", hint=hint) from None
    told = {(said.server_name, said.method) for said in tape.said}
    tape.said += [said for said in waiting if (said.server_name, said.method) not in told]
