"""`sub tools show`: what a server says of a tool, and how that changed, with nothing hidden."""

from __future__ import annotations

from typing import Any

import click

from subluminal.cli.render.output import paint
from subluminal.cli.render.rows import print_json_rows
from subluminal.cli.tools.survey import Row, chosen, survey, told
from subluminal.surface.differences import Version, lines, readable
from subluminal.surface.texts import visible

_MARKS = {"+": "green", "-": "red", "@": "cyan"}


@click.command("show")
@click.argument("what", metavar="SERVER[/TOOL]")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")
def show_command(what: str, as_json: bool) -> int:
    """What a server says of a tool, and how that changed.

    Characters that show nothing are spelled out: ‹U+200B›, ‹tag a›.

    \b
    Examples:
      sub tools show github/create_issue
      sub tools show github --json
    """
    rows = chosen(survey(), what)
    if as_json:
        print_json_rows(map(_json, rows))
        return 0
    for number, row in enumerate(rows):
        if number:
            click.echo()
        _show(row)
    return 0


def _show(row: Row) -> None:
    click.echo(paint(visible(row.name, ""), None, bold=True) + f"  {row.state}")
    if row.stands.why:
        click.echo(f"  {row.stands.why}")
    for word, origin in row.classes.items():
        click.echo(f"  {word}: by {origin}")
    for finding in row.found:
        click.echo(f"  {finding.risk_class}: {visible(finding.where, '')}: {finding.what}")
    for line in readable(row.now):
        click.echo(f"    {line}")
    before: Version | None = None
    for version in versions(row):
        click.echo(
            f"  {version['at'][:19].replace('T', ' ')}  {version['client']}  run {visible(version['run_id'], '')}"
        )
        now = Version(version["fingerprint"], {}, version["definition"])
        if before is not None:
            show_lines(lines(before, now), "    ")
        before = now


def show_lines(diff: list[str], indent: str = "  ") -> None:
    for line in diff:
        click.echo(indent + paint(line, _MARKS.get(line[:1])))


def versions(row: Row) -> list[dict[str, Any]]:
    """Each that was ever seen, the oldest first: the record's, and those that only the file of what is known has."""
    found = {
        each["fingerprint"]: {"at": each["at"], "run_id": each["run_id"], "client": each["client"]}
        | {"fingerprint": each["fingerprint"], "definition": each["definition"] or ""}
        for each in told(row)
    }
    for version in row.known.versions:
        known = {"at": version.first_seen, "run_id": version.first_run, "client": version.client}
        known |= {"fingerprint": version.fingerprint, "definition": version.definition}
        if not found.get(version.fingerprint, {}).get("definition"):
            found[version.fingerprint] = known
    return sorted(found.values(), key=lambda each: each["at"])


def _json(row: Row) -> dict[str, Any]:
    return {
        "server_name": row.server.server_name,
        "kind": row.known.kind,
        "name": row.known.name,
        "state": row.state,
        "why": row.stands.why,
        "classes": row.classes,
        "findings": [{"class": each.risk_class, "where": each.where, "what": each.what} for each in row.found],
        "fingerprint": row.now.fingerprint,
        "definition": row.now.definition,
        "diff": [] if row.was is None else lines(row.was, row.now),
        "versions": versions(row),
    }
