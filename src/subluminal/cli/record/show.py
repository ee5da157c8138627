"""`sub show`: a run's timeline, or everything known of one call."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from subluminal.cli.options import Argument, Command, Option, Values
from subluminal.cli.record.query import bring_up_to_date
from subluminal.cli.record.source import FLEET_OPTION, open_fleet
from subluminal.cli.render.columns import terminal_columns
from subluminal.cli.render.rows import print_json_rows
from subluminal.contracts.errors import LedgerError
from subluminal.contracts.short_ids import LAST, runs_back
from subluminal.ledger.read.ledger import Ledger, open_or_empty
from subluminal.ledger.read.lookup import ambiguous, calls_named, runs_named

HELP = """Show one run as a timeline, or everything known of one call.

TARGET is the id of a run or a call, a beginning or an end of one that no other has, last for the latest run, or last~1
for the one before it. Without TARGET: the latest run.

\b
Examples:
  sub show
  sub show last~1
  sub show 9f3c-12                     the call that `sub query` and `sub tail` show so
  sub show last --fleet https://collector.example
  sub show last --json | jq '.timeline[] | select(.kind == "call" and .decision != "ALLOW")'
"""

OPTIONS = [
    Option("--run", "run", "The run of the call, where several use its id.", metavar="RUN"),
    Option("--shim", "shim", "The shim of the call, where several of a run use its id.", metavar="SHIM"),
    Option("--json", "as_json", "One JSON object.", is_flag=True),
    Option("--no-sync", "no_sync", "Do not take in what still lies in the spool.", is_flag=True),
    FLEET_OPTION,
]


_Call = tuple[str, str, str]  # call_id, run_id, shim_id


def show(values: Values) -> int:
    bring_up_to_date(values["no_sync"] or values["fleet"] is not None)
    with _ledger(values) as ledger:
        run_id, call = _find(ledger, values["target"], values["run"], values["shim"])
        if call is None:
            _show_run(ledger, run_id, values["as_json"])
        else:
            _show_call(ledger, call, values["as_json"])
    return 0


@contextmanager
def _ledger(values: Values) -> Iterator[Ledger]:
    """This machine's; with --fleet, one of the run alone, out of the collector's exact lines."""
    if values["fleet"] is None:
        with open_or_empty() as ledger:
            yield ledger
        return
    with open_fleet(values["fleet"]) as fleet:
        run_id = fleet.run_of(values["target"]) if values["run"] is None else fleet.resolve_run(values["run"])
        with fleet.ledger_of(run_id) as ledger:
            if runs_back(values["target"]) is not None:
                values["target"] = run_id
            yield ledger


def _find(ledger: Ledger, target: str, run: str | None, shim: str | None) -> tuple[str, _Call | None]:
    """The run, and the call; no call: the run itself is meant."""
    if run is None and shim is None and runs_back(target) is not None:
        return ledger.resolve_run(target), None
    run_id = None if run is None else ledger.resolve_run(run)
    runs = [] if run_id is not None or shim is not None else runs_named(ledger.connection, target)
    if runs == [target]:
        return target, None
    calls = calls_named(ledger.connection, target, run_id, shim)
    if len(runs) + len(calls) == 1:
        return (runs[0], None) if runs else (calls[0][1], calls[0])
    if runs or calls:
        if {call_id for call_id, _, _ in calls} == {target}:
            raise _several(target, calls)
        raise ambiguous("run or call", target, [*runs, *(call_id for call_id, _, _ in calls)])
    hint = "`sub runs` and `sub query` list what there is."
    raise LedgerError(f"There is no run or call {target!r} in the ledger.", hint=hint)


def _several(target: str, calls: list[_Call]) -> LedgerError:
    runs, shims = dict.fromkeys(call[1] for call in calls), dict.fromkeys(call[2] for call in calls)
    if len(runs) == 1:
        names = ", ".join(shims)
        return LedgerError(f"Several shims have a call {target!r}: {names}.", hint="Choose one with --shim SHIM.")
    return LedgerError(f"Several runs have a call {target!r}: {', '.join(runs)}.", hint="Choose one with --run RUN.")


def _show_run(ledger: Ledger, run_id: str, as_json: bool) -> None:
    from subluminal.cli.record.show_run import lines
    from subluminal.ledger.read.timeline import timeline

    run = ledger.run(run_id)
    items = timeline(ledger, run_id)
    if as_json:
        print_json_rows([{**run, "timeline": items}])
    else:
        sys.stdout.write("\n".join(lines(run, items, terminal_columns())) + "\n")


def _show_call(ledger: Ledger, names: _Call, as_json: bool) -> None:
    from subluminal.cli.record.show_call import lines
    from subluminal.ledger.read.description import describe

    call = describe(ledger, ledger.call(*names))
    if as_json:
        print_json_rows([call])
    else:
        sys.stdout.write("\n".join(lines(call, terminal_columns())) + "\n")


SHOW = Command("show", show, HELP, OPTIONS, Argument("target", "[TARGET]", otherwise=LAST))
