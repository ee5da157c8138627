"""`sub promote`: let a refused call through, for its run or for good; or refuse calls like one that was let through."""

from __future__ import annotations

import click

from subluminal.contracts.errors import UsageError

HERE = ""  # --persist without a file


@click.command("promote")
@click.argument("call")
@click.option("--session", is_flag=True, help="For the run of the call alone; it ends with it. The default.")
@click.option(
    "--persist", is_flag=False, flag_value=HERE, default=None, metavar="[FILE]", help="In the policy, for good."
)
@click.option("--deny", is_flag=True, help="Refuse calls like this one, which was let through.")
@click.option("--tool", metavar="GLOB", help="Tools of these names on the server, not the call's own alone.")
@click.option("--any-args", is_flag=True, help="Whatever the arguments are.")
@click.option("--limit", type=click.IntRange(1), metavar="N", help="Raise the limit that refused it to N.")
@click.option("--run", metavar="RUN", help="The run of the call, where several use its id.")
@click.option("--shim", metavar="SHIM", help="The shim of the call, where several of a run use its id.")
@click.option("--test", "add_test", is_flag=True, help="With --persist: add the call to the policy's tests.")
@click.option("--dry-run", is_flag=True, help="Show everything, change nothing.")
@click.option("--yes", is_flag=True, help="With --persist: do not ask.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def promote_command(
    call: str,
    session: bool,
    persist: str | None,
    deny: bool,
    tool: str | None,
    any_args: bool,
    limit: int | None,
    run: str | None,
    shim: str | None,
    add_test: bool,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> int:
    """Make the narrowest rule that lets CALL through, which was refused.

    CALL is an id as `sub query`, `sub tail` and `sub hints` show it. What refused it decides what is made: for a deny
    an allow just above it, with the arguments that matter; for a dedupe its override; for a budget, a rate or a breaker
    a raised limit. Without --persist it holds for the run of the call, from the next call on, and every decision that
    follows from it says so. With --persist the policy itself is changed: its diff, what `sub policy lint`, `diff` and
    `test` say of it, and the past calls that it would have decided otherwise are shown before it asks.

    Agents do not approve themselves: from a process that belongs to a run this is refused.

    \b
    Exit codes:
      0  done, or shown with --dry-run
      1  it cannot be promoted, or you said no
      2  usage error, or something cannot be read or written

    \b
    Examples:
      sub promote 9f3c-12
      sub promote 9f3c-12 --any-args
      sub promote 9f3c-12 --persist --test
      sub promote 9f3c-12 --deny --persist team.yaml --dry-run
    """
    from subluminal.control.promote.wish import Wish, refuse_runs

    if session and persist is not None:
        raise UsageError("--session and --persist exclude each other.")
    if persist is None and (add_test or yes):
        raise UsageError("--test and --yes go with --persist: for a run nothing is asked and no test is written.")
    if limit is not None and (deny or tool or any_args):
        raise UsageError("--limit raises a limit; it goes with neither --deny, --tool nor --any-args.")
    if as_json and persist is not None and not (yes or dry_run):
        raise UsageError("--json with --persist needs --yes or --dry-run: nobody can be asked.")
    refuse_runs()
    wish = Wish(deny, tool, any_args, limit)
    if persist is None:
        from subluminal.cli.control.for_run import for_run

        return for_run(call, run, shim, wish, dry_run, as_json)
    from subluminal.cli.control.for_good import for_good

    return for_good(call, run, shim, wish, persist or None, add_test, dry_run, yes, as_json)
