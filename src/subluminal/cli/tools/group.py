"""`sub tools`: the list, and the group of its commands."""

from __future__ import annotations

from typing import Any

import click

from subluminal.cli.lazy import LazyGroup
from subluminal.cli.options import Table
from subluminal.cli.render.columns import PIPE_CELLS, aligned, terminal_columns
from subluminal.cli.render.output import note, paint
from subluminal.cli.render.rows import print_json_rows

COMMANDS: Table = {
    "list": ("subluminal.cli.tools.group", "list_command", "Every server and tool that was seen, and how it stands."),
    "show": ("subluminal.cli.tools.show", "show_command", "One tool: what its server says, and how that changed."),
    "pin": ("subluminal.cli.tools.pins", "pin_command", "Pin what is known now."),
    "unpin": ("subluminal.cli.tools.pins", "unpin_command", "Take pins back."),
    "approve": ("subluminal.cli.tools.pins", "approve_command", "Look at what changed, and accept it."),
    "check": ("subluminal.cli.tools.check", "check_command", "Fail where a tool differs from its pin."),
}
_HEADER = ["TOOL", "STATE", "CLASSES", "FIRST SEEN", "LAST SEEN", "CALLS", "REFUSED"]
_COLOURS = {"changed": "yellow", "quarantined": "red", "new": "cyan", "pinned": "green"}


@click.group("tools", cls=LazyGroup, table=COMMANDS, invoke_without_command=True)
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")
@click.pass_context
def tools_group(ctx: click.Context, as_json: bool) -> int | None:
    """What servers say of their tools: seen, pinned, changed.

    A server can change what it says of a tool after you have approved it. Every version is kept; what has changed is
    shown, and with `changed_tools: quarantine` in a policy it is held back until you approve it.

    \b
    Examples:
      sub tools                            everything known, and how it stands
      sub tools show github/create_issue   what it says, and how that changed
      sub tools pin github                 pin all that github says, in your own lock
      sub tools pin --repository           the same for everything, in .subluminal/tools.lock
      sub tools approve github             what has changed; accept it
    """
    return _list(None, as_json) if ctx.invoked_subcommand is None else None


@click.command("list")
@click.argument("what", required=False, metavar="[SERVER[/TOOL]]")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")
def list_command(what: str | None, as_json: bool) -> int:
    """Every server and tool that was seen, and how it stands.

    \b
    Examples:
      sub tools list
      sub tools list github --json
    """
    return _list(what, as_json)


def _list(what: str | None, as_json: bool) -> int:
    from subluminal.cli.tools.survey import Row, chosen, counted, survey
    from subluminal.surface.texts import visible

    rows = chosen(survey(), what)
    counts = counted()

    def numbers(row: Row) -> tuple[int, int] | None:
        return None if counts is None else counts.get((row.server.server_name, row.known.name), (0, 0))

    if as_json:
        print_json_rows(listed(row, numbers(row)) for row in rows)
        return 0
    if not rows:
        note("No server has been seen here yet. Run an agent with a server behind Subluminal, then look again.")
        return 0
    lines = []
    for row in rows:
        made = numbers(row)
        cells = ["-", "-"] if made is None or row.known.kind != "tool" else [str(made[0]), str(made[1])]
        lines.append(
            [
                visible(row.name, ""),
                row.state,
                " ".join(row.classes) or "-",
                row.known.versions[0].first_seen[:16].replace("T", " "),
                row.now.last_seen[:16].replace("T", " "),
                *cells,
            ]
        )
    total = terminal_columns() or PIPE_CELLS
    for number, line in enumerate(aligned(lines, _HEADER, numbers=(5, 6), drop=(3, 4, 6), total=total)):
        colour = _COLOURS.get(lines[number - 1][1]) if number else None
        click.echo(paint("  ".join(line).rstrip(), colour))
    waiting = [row for row in rows if row.was is not None]
    if waiting:
        note(f"{len(waiting)} changed. To look and accept: sub tools approve {visible(waiting[0].name, '')}")
    return 0


def listed(row: Any, numbers: tuple[int, int] | None) -> dict[str, Any]:
    calls, refused = (None, None) if numbers is None or row.known.kind != "tool" else numbers
    return {
        "server_name": row.server.server_name,
        "launch": row.server.launch,
        "kind": row.known.kind,
        "name": row.known.name,
        "state": row.state,
        "why": row.stands.why,
        "classes": row.classes,
        "fingerprint": row.now.fingerprint,
        "pinned_by": [*(["user"] if row.user else []), *(["repository"] if row.repository else [])],
        "unsteady": row.known.unsteady,
        "first_seen": row.known.versions[0].first_seen,
        "first_run": row.known.first_run,
        "last_seen": row.now.last_seen,
        "calls": calls,
        "refused": refused,
    }
