"""`sub fleet status`: how this machine stands with its fleet, or what a repository holds."""

from __future__ import annotations

from typing import Any

import click

from subluminal.cli.fleet.options import open_repository
from subluminal.cli.render.output import paint, print_json
from subluminal.doctor.fleet import behind_words
from subluminal.reports.printable import count, printable


@click.command("status")
@click.option("--repository", metavar="DIR", help="Of this repository, instead of this machine.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def status_command(repository: str | None, as_json: bool) -> int:
    """Say how this machine stands with its fleet: version and age of what is in force, active stops, the last error.

    With --repository DIR: who may sign what there, until when, and which stops are active. Exit code: 0 all is well, 1
    the machine has not heard from its fleet in time or lacks what it laid, or something in the repository has expired.

    \b
    Examples:
      sub fleet status
      sub fleet status --json | jq .stops
      sub fleet status --repository fleet
    """
    if repository is not None:
        from subluminal.fleet.repository.looking import repository_status

        return _tell_repository(repository_status(open_repository(repository, (), None)), as_json)
    from subluminal.fleet.joined import require_joined
    from subluminal.fleet.status import machine_status

    facts = machine_status(require_joined())
    if as_json:
        print_json(facts)
    else:
        print("\n".join(_machine_lines(facts)))
    return 1 if facts["error"] or facts["overdue"] else 0


def _machine_lines(facts: dict[str, Any]) -> list[str]:
    whose = f", tenant {facts['tenant']}" if facts["tenant"] else ""
    lines = [f"fleet      {printable(facts['url'])}{whose}"]
    if facts["error"]:
        lines.append(f"in force   {paint(printable(facts['error']), 'red')}")
    else:
        lines.append(f"version    {facts['version']}, confirmed {facts['confirmed_at']} ({_age(facts['age_s'])} ago)")
        lines.append(f"holds      until {facts['good_until']}, should nothing more be heard")
    if facts["overdue"]:
        lines.append(f"overdue    {paint(printable(facts['overdue']), 'red')}")
    lines += [f"policy     {printable(each['policy_id'])} {printable(each['version'])}" for each in facts["policies"]]
    lines += [f"stop       {paint(_stop(each), 'red')}" for each in facts["stops"]]
    for which, told in facts["put_back"].items():
        text = f"{which} that were altered or removed here: {count(told['times'], 'time')}, last at {told['last_at']}"
        lines.append(f"put back   {paint(printable(text), 'yellow')}")
    if facts["no_room"]:
        lines.append(f"disk       {paint(printable(facts['no_room']), 'red')}")
    if facts["clock"]:
        lines.append(f"clock      {paint(facts['clock'], 'yellow')}")
    shipping = facts["shipping"]
    if shipping is not None:
        told = shipping["last_error"] if shipping["waits"] else shipping["error"]
        why = f": {paint(printable(told), 'yellow')}" if told else ""
        lines.append(f"shipping   {printable(facts['collector'])}, {behind_words(shipping)}{why}")
    room = facts["tasks"].get("room", {}).get("facts")
    if room:
        text = f"{room['bytes']:,} bytes here, of {room['max_disk_bytes']:,}"
        lines.append(f"room       {paint(text, 'yellow') if room['over_bytes'] else text}")
    for name, task in facts["tasks"].items():
        if task.get("last_error"):
            lines.append(f"{name.ljust(10)} {paint(printable(task['last_error']), 'yellow')}")
    return lines


def _stop(stop: dict[str, Any]) -> str:
    named = [f"{word} {stop[word]}" for word in ("tool", "server", "agent") if stop.get(word)]
    told = ", ".join(named) or "every call"
    return printable(f"{stop['stop_id']}: {told}, by {stop['by']} at {stop['at']}: {stop['reason']}")


def _age(seconds: int) -> str:
    for length, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * length:
            return f"{seconds // length} {unit}"
    return f"{seconds} s"


def _tell_repository(facts: dict[str, Any], as_json: bool) -> int:
    if as_json:
        print_json(facts)
    else:
        for role in facts["roles"]:
            until = paint(f"expired {role['expires']}", "red") if role["expired"] else f"until {role['expires']}"
            what = f"  {role['threshold']} of {role['keys']} keys" if role["keys"] > 1 else ""
            waits = "  waits for `sub fleet renew`" if role["pending"] else ""
            print(f"{printable(role['role']).ljust(24)} {role['version']:>5}  {until}{what}{waits}")
        for tenant, policies in facts["policies"].items():
            print(f"policies of {tenant}: {printable(', '.join(policies)) or 'none'}")
        for name in facts["passed_over"]:
            print(f"{printable(name)} {paint('is not signed by who should have: passed over', 'yellow')}")
        if facts["clock"]:
            print(paint(facts["clock"], "yellow"))
        for stop in facts["stops"]:
            print(f"stop {paint(_stop(stop), 'red')}")
    return 1 if any(role["expired"] for role in facts["roles"]) else 0
