"""`sub export`, `sub ingest`, `sub verify` and `sub prune`: the record as a whole."""

from __future__ import annotations

import os
import re
import sqlite3
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import IO, TYPE_CHECKING, Any

import click

from subluminal.cli.record.export_runs import EXPORT_RUNS, bundle_name
from subluminal.cli.render.columns import PIPE_CELLS, cut
from subluminal.cli.render.output import note, paint, print_json
from subluminal.cli.render.progress import Progress, with_progress
from subluminal.contracts.errors import LedgerError, UsageError, VerificationError
from subluminal.host import home
from subluminal.reports.printable import printable

if TYPE_CHECKING:
    from subluminal.ledger.read.ledger import Ledger
    from subluminal.ledger.store.prune import Shipped
    from subluminal.ledger.trace.bundle import Bundle
    from subluminal.ledger.trace.report import DatabaseReport, Pace, Report

# Bad lines named one by one; beyond that only their number.
_NAMED_LINES = 20


class _RunByDefault(click.Group):
    """`sub export last` is `sub export run last`."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        known = not args or args[0].startswith("-") or args[0] in self.commands
        return super().resolve_command(ctx, args if known else ["run", *args])


@click.group("export", cls=_RunByDefault)
def export_group() -> None:
    """Export a run as a trace bundle that can be verified and ingested anywhere.

    \b
    Examples:
      sub export last                 the same as: sub export run last
      sub export last~1 -o trace.tar.gz
      sub export runs --since 7d -o traces
    """


export_group.add_command(EXPORT_RUNS.click_command())


@export_group.command("run")
@click.argument("run", default="last", metavar="[RUN]")
@click.option("-o", "--output", metavar="PATH", help="Where to write; by default RUN.tar.gz, or RUN.html, here.")
@click.option("--html", "as_page", is_flag=True, help="As a page in one file, to look at and to send.")
@click.option(
    "--with-results", is_flag=True, help="Also the results that were kept (record.results), for `sub replay`."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object about what was written.")
def export_run_command(run: str, output: str | None, as_page: bool, with_results: bool, as_json: bool) -> None:
    """Export one run: its exact events, its chain head, and the policies that were in force.

    RUN is a run id, a beginning or end of one, last (which is the default), or last~1. The bundle is a .tar.gz, or a
    directory if the name given with -o does not end in .tar.gz.

    With --html it is the page of `sub ui` for this run in one file: it opens in any browser, needs no server, and loads
    nothing from anywhere. What it shows is what was recorded, masked as it was. A page holds 10,000 calls.

    \b
    Examples:
      sub export run last
      sub export run last --html
      sub export run 01JD3 -o trace.tar.gz
      sub export run last -o trace/ --json
      sub export run last --with-results
    """
    from subluminal.host.record.results import directory_of, kept_files
    from subluminal.ledger.read.ledger import open_or_empty
    from subluminal.ledger.trace.bundle import export_run

    with open_or_empty() as ledger:
        run_id = ledger.resolve_run(run)
        destination = output or bundle_name(run_id, ".html" if as_page else ".tar.gz")
        if as_page and with_results:
            raise UsageError("--with-results goes with a bundle, not with --html: a page shows previews.")
        if as_page:
            return _export_page(ledger, run_id, destination, as_json)
        results = kept_files(directory_of(run_id)) if with_results else []
        if with_results and not results:
            hint = "Export it without --with-results. To keep results from now on: record.results in config.toml."
            raise LedgerError(f"No results of {printable(run_id)} are kept here.", hint=hint)
        manifest = export_run(ledger, run_id, destination.rstrip("/") or destination, home.snapshot_dir(), results)
    if as_json:
        facts = {"path": destination, "run_id": run_id, "event_count": manifest.event_count}
        print_json({**facts, "chain_head": manifest.chain_head, "files": sorted(manifest.files)})
    else:
        print(destination)
        note(f"{manifest.event_count} events of run {printable(run_id)}, chain head {manifest.chain_head[:16]}…")


def _export_page(ledger: Ledger, run_id: str, destination: str, as_json: bool) -> None:
    from subluminal.host.clock import utc_now
    from subluminal.ledger.read.whole import whole_run
    from subluminal.reports.page import page

    record = whole_run(ledger, run_id)
    data = page(record, utc_now()).encode("utf-8", "replace")
    try:
        with open(destination, "wb") as file:
            file.write(data)
    except OSError as error:
        hint = "Name a file with -o, in a directory that is there."
        raise UsageError(f"{destination} cannot be written: {error.strerror}.", hint=hint) from None
    if as_json:
        print_json({"path": destination, "run_id": run_id, "calls": len(record["calls"]), "bytes": len(data)})
    else:
        print(destination)
        note(f"{len(record['calls'])} calls of run {printable(run_id)}; open it in a browser")


@click.command("ingest")
@click.argument("sources", nargs=-1, required=True, metavar="BUNDLE|FILE|-...")
@click.option("--json", "as_json", is_flag=True, help="One JSON object with counts and bad lines.")
def ingest_command(sources: tuple[str, ...], as_json: bool) -> int:
    """Read events into the ledger: a JSONL file, a trace bundle, or - for standard input.

    Reading the same events twice adds nothing. A line that is no event, or speaks for a shim that has a journal here,
    is reported with its number; the good ones are kept. A bundle that `sub verify` finds fault with is refused as a
    whole, before anything is stored.

    \b
    Examples:
      sub ingest events.jsonl
      sub ingest trace.tar.gz
      ci-agent | tee events.jsonl | sub ingest -
    """
    from subluminal.ledger.trace.bundle import is_bundle, open_bundle

    counts = {"stored": 0, "known": 0, "bad": 0}
    bad_lines: list[dict[str, Any]] = []
    with ExitStack() as opened:
        found = {source: opened.enter_context(open_bundle(source)) for source in sources if is_bundle(source)}
        _require_sound(list(found.values()))
        for source in sources:
            _ingest_source(source, found.get(source), counts, bad_lines, quiet=as_json)
    if as_json:
        print_json({**counts, "bad_lines": bad_lines})
    else:
        known = f", {counts['known']} were there already" if counts["known"] else ""
        bad = f", {counts['bad']} bad lines left out" if counts["bad"] else ""
        print(f"{counts['stored']} events stored{known}{bad}")
    return 1 if counts["bad"] else 0


def _require_sound(bundles: list[Bundle]) -> None:
    from subluminal.ledger.trace.bundle_proof import verify_opened

    with _this_ledger() as ledger:
        for bundle in bundles:
            report = verify_opened(bundle, ledger)
            if not report.ok:
                fault = report.faults[0]
                place = f"event {fault.event}: " if fault.event is not None else ""
                hint = f"Nothing was stored. `sub verify {bundle.name}` says what is wrong with it."
                raise VerificationError(f"{bundle.name} is no sound bundle: {place}{fault.what}.", hint=hint)


@contextmanager
def _this_ledger() -> Iterator[Ledger | None]:
    """This machine's, if it has one yet."""
    from subluminal.ledger.read.ledger import open_ledger

    if not os.path.exists(home.ledger_db()):
        yield None
        return
    with open_ledger() as ledger:
        yield ledger


def _ingest_source(
    source: str, bundle: Bundle | None, counts: dict[str, int], bad_lines: list[dict[str, Any]], *, quiet: bool
) -> None:
    if source == "-":
        _ingest_lines("<stdin>", _lines(sys.stdin.buffer), counts, bad_lines, quiet)
    elif bundle is not None:
        _ingest_lines(source, bundle.lines(), counts, bad_lines, quiet)
        _ingest_policies(bundle.policies())
    else:
        try:
            with open(source, "rb") as file:
                _ingest_lines(source, _lines(file), counts, bad_lines, quiet)
        except OSError as error:
            hint = "Name a JSONL file or a bundle, or - for standard input."
            raise UsageError(f"{source} cannot be read: {error.strerror}.", hint=hint) from None


def _lines(file: IO[bytes]) -> Iterator[bytes]:
    """Lines in bounded memory: one longer than any event comes in pieces, each of which is refused."""
    from subluminal.ledger.fold.reading import MAX_LINE_BYTES

    while line := file.readline(MAX_LINE_BYTES + 2):
        yield line.removesuffix(b"\n")


def _ingest_lines(
    source: str, lines: Iterable[bytes], counts: dict[str, int], bad_lines: list[dict[str, Any]], quiet: bool
) -> None:
    from subluminal.ledger.daemon.submit import submit

    for outcome in with_progress(submit(lines), "events"):
        if outcome.error is None:
            counts["known" if outcome.duplicate else "stored"] += 1
            continue
        counts["bad"] += 1
        if len(bad_lines) < _NAMED_LINES:
            bad_lines.append({"source": source, "line": outcome.line_no, "error": outcome.error})
            if not quiet:
                note(printable(f"{source}:{outcome.line_no}: {outcome.error}"))


def _ingest_policies(policies: Iterable[tuple[str, bytes]]) -> None:
    from subluminal.ledger.daemon.contact import ask
    from subluminal.ledger.fold.reading import MAX_LINE_BYTES

    for policy_hash, snapshot in policies:
        if len(snapshot) < MAX_LINE_BYTES // 2:
            ask({"control": "policy", "policy_hash": policy_hash, "snapshot": snapshot.decode("utf-8", "replace")})


@click.command("verify")
@click.argument("what", default="last", metavar="[RUN|last|BUNDLE]")
@click.option("--all", "want_all", is_flag=True, help="Every run in the ledger.")
@click.option("--fleet", metavar="URL", help="Ask this collector: the chains of a run, of each machine in it.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per run; with --all, one of the ledger last.")
def verify_command(what: str, want_all: bool, fleet: str | None, as_json: bool) -> int:
    """Prove that the record was not changed.

    Checks the hash chain of a run, its witness in ledger.heads, that every row is what the events say, that no producer
    speaks of another's calls, and the database itself: SQLite's integrity check and the schema. With --all every table
    is held against the events of all runs. Names the first bad event after an edit, a removal, a reordering or a cut,
    and then ends with 1.

    \b
    Examples:
      sub verify                 the last run
      sub verify 01JD3
      sub verify --all
      sub verify trace.tar.gz
      sub verify last --fleet https://collector.example
    """
    if fleet is not None:
        return _verify_fleet(fleet, what, want_all, as_json)
    database, reports = _reports(what, want_all)
    for report in reports:
        if as_json:
            print_json(_run_facts(report, None if want_all else database))
        else:
            _print_report(report)
    if any(report.ok and report.witnessed == 0 for report in reports):
        note("Without its line in ledger.heads, a run whose end was cut off cannot be told from a whole one.")
    if database is not None and not as_json:
        _print_database(database)
    elif database is not None and (want_all or not reports):
        print_json({**_database_facts(database), "pace": _pace_facts(_total_pace(reports))})
    if want_all and not as_json:
        note(f"{len(reports)} runs, {sum(not report.ok for report in reports)} with faults")
    if not as_json:
        _note_pace(_total_pace(reports))
    return 0 if all(report.ok for report in reports) and (database is None or database.ok) else 1


def _verify_fleet(url: str, what: str, want_all: bool, as_json: bool) -> int:
    """What has arrived, followed by the collector; gaps are named."""
    from subluminal.cli.record.source import open_fleet

    if want_all:
        raise UsageError("--all is about the ledger here.", hint="Name a run: sub verify RUN --fleet URL.")
    with open_fleet(url) as source:
        reports = source.verify(what)
    for report in reports:
        if as_json:
            print_json(_run_facts(report, None))
        else:
            _print_report(report)
    return 0 if all(report.ok for report in reports) else 1


def _reports(what: str, want_all: bool) -> tuple[DatabaseReport | None, list[Report]]:
    from subluminal.ledger.read.ledger import open_ledger
    from subluminal.ledger.trace.bundle import is_bundle
    from subluminal.ledger.trace.bundle_proof import verify_bundle
    from subluminal.ledger.trace.database import unreadable
    from subluminal.ledger.trace.verify import verify_database, verify_ledger, verify_run

    path = home.ledger_db()
    if want_all:
        with Progress("events checked") as progress:
            return verify_ledger(path, progress.step)
    if is_bundle(what):
        with _this_ledger() as found:
            return None, [verify_bundle(what, found)]
    database = verify_database(path)
    try:
        with open_ledger() as ledger:
            try:
                run_id = ledger.resolve_run(what)
            except LedgerError:
                run_id = what  # one that was removed is known to its witness only
        return database, [verify_run(path, run_id)]
    except sqlite3.DatabaseError as error:
        database.faults.append(unreadable(error))
        return database, []


def _run_facts(report: Report, database: DatabaseReport | None) -> dict[str, Any]:
    from msgspec.structs import asdict

    facts = {"ok": report.ok, "chain_ok": report.chain_ok, "rows_ok": report.rows_ok, **asdict(report)}
    facts["pace"] = _pace_facts(report.pace) if report.pace is not None else None
    return facts if database is None else {**facts, "database": _database_facts(database)}


def _database_facts(database: DatabaseReport) -> dict[str, Any]:
    from msgspec.structs import asdict

    return {"ok": database.ok, **asdict(database)}


def _total_pace(reports: list[Report]) -> Pace:
    from subluminal.ledger.trace.report import Pace

    total = Pace()
    for report in reports:
        if report.pace is not None:
            total.add(report.pace)
    return total


def _pace_facts(pace: Pace) -> dict[str, Any]:
    return {
        "events": pace.events,
        "chain_cpu_s": round(pace.chain_s, 3),
        "rows_cpu_s": round(pace.rows_s, 3),
        "chain_events_per_s": pace.chain_events_per_s,
        "rows_events_per_s": pace.rows_events_per_s,
    }


def _note_pace(pace: Pace) -> None:
    if pace.chain_events_per_s is not None and pace.rows_events_per_s is not None:
        each = f"chain {pace.chain_events_per_s:,}, rows {pace.rows_events_per_s:,}"
        note(f"{pace.events:,} events; for each second of CPU: {each}")


def _print_report(report: Report) -> None:
    name = cut(printable(report.run_id), PIPE_CELLS) or "bundle"
    if report.ok:
        doubt = ", not in ledger.heads yet" if report.witnessed == 0 else ""
        rows = "; rows agree" if report.rows_ok else ""
        print(f"{paint('ok', 'green')}   {name}: {report.events} events, chain head {report.head[:16]}…{doubt}{rows}")
        return
    for fault in report.faults:
        place = f"event {fault.event}: " if fault.event is not None else ""
        call = f" (call {printable(fault.call_id)})" if fault.call_id is not None else ""
        print(f"{paint('BAD', 'red')}  {name}: {fault.part}: {place}{printable(fault.what)}{call}")
    if report.chain_ok and report.witnessed is not None:
        print(f"     {name}: the chain of {report.events} events is whole, head {report.head[:16]}…")


def _print_database(database: DatabaseReport) -> None:
    for fault in database.faults:
        print(f"{paint('BAD', 'red')}  database: {printable(fault.what)}")
    if database.ok:
        checked = f"schema as expected, {database.integrity} integrity check"
        checked += ", every table held against the events of all runs" if database.covered else ""
        print(f"{paint('ok', 'green')}   database: {checked}")
    if database.covered:
        names = "; ".join(text.partition(":")[0] for text in database.not_covered)
        note(f"No event tells of {names}: an edit there is not found.")


@click.command("prune")
@click.option("--older-than", required=True, metavar="AGE", help="Such as 90d, 12w or 36h.")
@click.option("--results", "results_only", is_flag=True, help="Only results that were kept; the runs stay.")
@click.option("--dry-run", is_flag=True, help="Only say what would go.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def prune_command(older_than: str, results_only: bool, dry_run: bool, as_json: bool) -> None:
    """Remove runs that ended long ago, and results that were kept of them.

    Whole runs go; a tombstone with the chain head stays, so that `sub verify --all` can tell pruning from tampering.
    Export what you want to keep first. On a machine that ships to a collector, what was not acknowledged stays; beyond
    4 GiB of it, of the oldest runs the decisions alone.

    \b
    Examples:
      sub prune --older-than 90d --dry-run
      sub prune --older-than 90d
      sub prune --older-than 7d --results
    """
    from subluminal.ledger.read.ledger import open_or_empty

    before = _before(older_than)
    if results_only:
        runs: list[dict[str, Any]] = []
    elif dry_run:
        from subluminal.ledger.store.prune import prunable

        with open_or_empty() as ledger:
            runs = prunable(ledger.connection, before, _shipped(before, dry_run=True))
    else:
        from subluminal.host.run.files import remove_stale

        runs = _prune(before)
        remove_stale()
    calls = sum(run["calls_total"] for run in runs)
    freed = _prune_results({run["run_id"] for run in runs}, before, dry_run)
    if as_json:
        facts = {"dry_run": dry_run, "before": before, "runs": [run["run_id"] for run in runs], "calls": calls}
        print_json({**facts, "results_runs": len(freed), "results_bytes": sum(freed)})
        return
    for run in runs:
        print(f"{printable(run['run_id'])}  ended {run['ended_at']}  {run['calls_total']} calls")
    gone = "would go" if dry_run else "removed"
    if not results_only:
        note(f"{len(runs)} runs with {calls} calls {gone}")
    if freed or results_only:
        note(f"results of {len(freed)} runs, {sum(freed):,} bytes, {gone}")


def _prune_results(run_ids: set[str], before: str, dry_run: bool) -> list[int]:
    """Kept results of these runs, and of those to which none was added since; how many bytes each."""
    from subluminal.contracts.moments import epoch_ms
    from subluminal.host.record.results import directory_of, kept_runs, remove

    wanted = {directory_of(run_id) for run_id in run_ids}
    old = [kept for kept in kept_runs() if kept[0] in wanted or kept[1] * 1000 < epoch_ms(before)]
    return [size if dry_run else remove(directory) for directory, _, size in old]


def _prune(before: str) -> list[dict[str, Any]]:
    from subluminal.ledger.daemon.contact import ask, require_ledgerd

    if not os.path.exists(home.ledger_db()):
        return []
    require_ledgerd()
    shipped = _shipped(before, dry_run=False)
    kept = {} if shipped is None else {"shipped": [shipped.place, sorted(shipped.released)]}
    answer = ask({"control": "prune", "before": before, **kept}, timeout=600.0) or {}
    if "pruned" not in answer:
        raise LedgerError(f"The ledger daemon could not remove the runs: {answer.get('error', 'no answer')}.")
    runs: list[dict[str, Any]] = answer["pruned"]
    return runs


def _shipped(before: str, *, dry_run: bool) -> Shipped | None:
    """What a machine that ships its record still has to send; None: it ships nothing."""
    ships = os.path.exists(home.shipped_db()) or os.path.exists(home.joined_file())
    if not ships or not os.path.exists(home.ledger_db()):
        return None
    from subluminal.fleet.shipping.holding import may_go

    return may_go(before, dry_run=dry_run)


def _before(older_than: str) -> str:
    from subluminal.cli.render.moments import moment_ms
    from subluminal.contracts.moments import rfc3339

    if not re.fullmatch("[0-9]{1,6}[smhdw]", older_than.strip()):
        raise UsageError(f"--older-than {older_than!r} is no age.", hint="Write a number and a unit: 90d, 12w, 36h.")
    return rfc3339(moment_ms(older_than.strip(), time.time_ns() // 1_000_000))
