"""All that tells what agents did, as runs in the order of time: the ledger, bundles, files of events, transcripts.

One session may be told twice, by the ledger and by its client: calls with the same id at about the same time are one
call of one run, for a run counts once. What could not be used is counted and named.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping

from msgspec import Struct, field

from subluminal.agents.transcripts.found import File, default_places, transcript_files
from subluminal.agents.transcripts.reading import read_transcript
from subluminal.agents.transcripts.seen import SeenCall, SeenRun, Unread, within_bounds
from subluminal.contracts.errors import LedgerError, UsageError
from subluminal.contracts.history import RecordedCall, RecordedRun
from subluminal.contracts.vocabulary import ALLOW
from subluminal.control.suggest.evidence import Call, Run
from subluminal.control.suggest.limits.programs import is_line_key
from subluminal.control.suggest.tokens import Generaliser, project_root
from subluminal.ledger.read.history import recorded_runs
from subluminal.ledger.trace.bundle import is_bundle
from subluminal.policy.replay.recorded import remains_of

LEDGER = "ledger"
# About 2 GB of transcripts; the newest count.
MAX_CALLS = 250_000
# The clocks of a client and of a shim on one machine, and the time between the two records of a call.
_SAME_MS = 10 * 60_000

Progress = Callable[[int, int], None]


class Gathered(Struct, eq=False):
    runs: list[Run] = field(default_factory=list)
    unread: Unread = field(default_factory=Unread)
    sources: dict[str, int] = field(default_factory=dict)  # origin -> runs
    not_learned: int = 0  # calls that failed or were refused
    beyond: int = 0  # runs that were older than what is kept
    read_bytes: int = 0


def gather(
    sources: Iterable[str],
    environ: Mapping[str, str],
    *,
    client: str | None = None,
    since_ms: int = 0,
    progress: Progress | None = None,
) -> Gathered:
    """`sources`: as `sub policy check` takes them, and files and directories of transcripts; none: this machine's."""
    gathered = Gathered()
    seen: list[SeenRun] = []
    files: list[File] = []
    named = list(sources)
    for source in named or [LEDGER]:
        if source == LEDGER or source.endswith(".db") or is_bundle(source):
            seen += _recorded(source, gathered, bool(named), client, since_ms)
        elif os.path.isdir(source) or os.path.isfile(source):
            found = transcript_files(source, since_ms=since_ms)
            events = [file for file in found if file.path == source and _has_events(source)]
            seen += [run for file in events for run in _recorded(file.path, gathered, True, client, since_ms)]
            files += [file for file in found if file not in events]
            if not found and not since_ms:
                gathered.unread.files[source] = "no transcript below it (*.jsonl, *.jsonl.zst)"
        else:
            hint = "Name a ledger.db, a bundle, a transcript, a directory of them, or `ledger` for this machine's."
            raise UsageError(f"{source} is not there.", hint=hint)
    if not named:
        for place, of in default_places(environ, client).items():
            files += transcript_files(place, of, since_ms)
    seen += _transcripts(files, gathered, client, progress)
    _take(_joined(seen), gathered, since_ms)
    return gathered


def _has_events(path: str) -> bool:
    """Whether a file is one of events, and no transcript."""
    with open(path, "rb") as file:
        head = file.read(4_096)
    return b'"run_id"' in head and b'"source"' in head


def _recorded(source: str, gathered: Gathered, required: bool, client: str | None, since_ms: int) -> list[SeenRun]:
    try:
        runs = [run for run in recorded_runs(source) if client in (None, run.identity.client)]
    except LedgerError:
        if required:
            raise
        return []
    return [_of_record(run, gathered) for run in runs if run.calls and run.calls[-1].at_ms >= since_ms]


def _of_record(run: RecordedRun, gathered: Gathered) -> SeenRun:
    calls = []
    where = (run.identity.workload or {}).get("repo_path")
    for call in run.calls:
        made = _of_recorded_call(call, where if isinstance(where, str) else "")
        if made is None:
            gathered.unread.calls += 1
        else:
            calls.append(made)
    return SeenRun(run.identity.run_id, LEDGER, calls)


def _of_recorded_call(call: RecordedCall, cwd: str) -> SeenCall | None:
    """None: the record has not all of its arguments."""
    remains = remains_of(call)
    if remains.value is None or remains.why is not None:
        return None
    args, cut = within_bounds(remains.value)
    ok = call.action == ALLOW and call.status in (None, "OK")
    made = SeenCall(call.server_name, call.tool_name, args, call.bytes_in, call.at_ms, cwd, ok=ok, cut=cut)
    made.use_id = call.tool_use_id or ""
    return made


def _transcripts(files: list[File], gathered: Gathered, client: str | None, progress: Progress | None) -> list[SeenRun]:
    """The newest first, as long as there is room."""
    total = sum(file.size for file in files)
    runs: list[SeenRun] = []
    calls = 0
    for file in sorted(files, reverse=True):
        if calls >= MAX_CALLS:
            gathered.beyond += 1
            continue
        read = read_transcript(file, gathered.unread)
        gathered.read_bytes += file.size
        if progress is not None:
            progress(gathered.read_bytes, total)
        if read is not None and client in (None, read.origin):
            for call in read.calls:
                call.at_ms = call.at_ms or file.modified_ms
            calls += len(read.calls)
            runs.append(read)
    return runs


def _joined(seen: list[SeenRun]) -> list[SeenRun]:
    """Sessions in several files (sub-agents, one that goes on) are one run, and so is what the ledger has too."""
    runs: dict[tuple[str, str], SeenRun] = {}
    owner: dict[str, tuple[int, tuple[str, str]]] = {}  # id of a call -> when, and in which run
    for run in sorted(seen, key=lambda run: (run.origin != LEDGER, run.origin, run.run_id)):
        owners = [found for call in run.calls if (found := _told_before(call, owner)) is not None]
        key = owners[0] if owners else (run.origin, run.run_id)
        into = runs.setdefault(key, SeenRun(key[1], key[0]))
        for call in run.calls:
            if _told_before(call, owner) is None:
                into.calls.append(call)
                if call.use_id:
                    owner[call.use_id] = (call.at_ms, key)
    return list(runs.values())


def _told_before(call: SeenCall, owner: dict[str, tuple[int, tuple[str, str]]]) -> tuple[str, str] | None:
    """The run that has this call already. A session that goes on repeats lines as they were; the ledger has a clock of
    its own. Ids alone prove nothing: some models count from one."""
    known = owner.get(call.use_id) if call.use_id else None
    if known is None:
        return None
    apart = abs(known[0] - call.at_ms)
    return known[1] if apart == 0 or (known[1][0] == LEDGER and apart <= _SAME_MS) else None


def _take(seen: list[SeenRun], gathered: Gathered, since_ms: int) -> None:
    made = [run for run in map(general_run, seen) if run.calls and run.calls[-1].at_ms >= since_ms]
    made.sort(key=lambda run: (run.started_ms, run.origin, run.run_id))
    room = MAX_CALLS
    for run in reversed(made):
        if room <= 0:
            gathered.beyond += 1
            continue
        room -= len(run.calls)
        gathered.runs.append(run)
        gathered.sources[run.origin] = gathered.sources.get(run.origin, 0) + 1
        gathered.not_learned += sum(not call.learn for call in run.calls)
    gathered.runs.reverse()


def general_run(seen: SeenRun) -> Run:
    """With general places; a shell line that was cut is nothing to learn from."""
    generaliser = Generaliser(None if any(call.cwd for call in seen.calls) else project_root(seen.calls))
    calls = []
    for call in sorted(seen.calls, key=lambda call: call.at_ms):
        learn = call.ok is not False and not (call.cut and any(is_line_key(call.tool_name, key) for key in call.args))
        calls.append(Call(call.server_name, call.tool_name, generaliser.args(call), call.size, call.at_ms, learn))
    return Run(seen.run_id, seen.origin, calls[0].at_ms if calls else 0, calls)
