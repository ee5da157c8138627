"""`sub policy in-force`."""

from __future__ import annotations

import os
import sys

from subluminal.cli.options import Command, Option, Values
from subluminal.cli.policy.who import IDENTITY_OPTIONS, acting_here, given_identity
from subluminal.cli.render.call_lines import INDENT, wrapped
from subluminal.cli.render.columns import cut, pad, terminal_columns
from subluminal.cli.render.output import paint, print_json
from subluminal.contracts.identity import Identity
from subluminal.host.home import DIRECTORY, REPOSITORY_POLICY, sub_home, user_policy
from subluminal.policy.in_force import InForce, policies_in_force, set_aside
from subluminal.policy.sources import ORGANISATION_POLICY, PolicySource
from subluminal.reports.printable import count, printable

_INDENT = "   "


HELP = """Say which policies a run that is started here obeys, where each comes from, and how they stack.

Who acts is taken from the environment, as for a run; the options try another. An entry of a client's configuration
can add a policy of its own, which is not seen here: `sub doctor` looks at entries.

\b
Exit codes:
  0  all of them load, or there is none
  1  one does not, so every tool call is refused until it is mended
  2  usage error

\b
Examples:
  sub policy in-force
  sub policy in-force --client claude --env ci
  sub policy in-force --json | jq '.policies[] | select(.valid | not)'
"""

OPTIONS = [*IDENTITY_OPTIONS, Option("--json", "as_json", "One JSON object.", is_flag=True)]


def in_force(values: Values) -> int:
    identity = acting_here(**given_identity(values))
    cwd = os.getcwd()
    found = policies_in_force(os.environ, cwd, identity)
    aside = set_aside(os.environ, cwd)
    if values["as_json"]:
        who = {name: getattr(identity, name) for name in ("agent_id", "client", "env", "principal", "workload")}
        policies = [{"order": number, **one.as_dict()} for number, one in enumerate(found, 1)]
        others = [{"origin": source.origin, "path": source.path} for source in aside]
        print_json({"directory": cwd, "identity": who, "policies": policies, "set_aside": others})
    else:
        sys.stdout.write("\n".join(_lines(found, aside, identity, cwd, terminal_columns())).rstrip("\n") + "\n")
    return 1 if any(one.fault is not None for one in found) else 0


def _lines(
    found: list[InForce], aside: list[PolicySource], identity: Identity, cwd: str, columns: int | None
) -> list[str]:
    who = f"agent_id {identity.agent_id}, client {identity.client}, env {identity.env}"
    lines = [_cut(f"directory  {_short(cwd)}", columns), _cut(f"run        {who}", columns), ""]
    if not found:
        return [*lines, *_misnamed(cwd, columns), *_none(columns)]
    cells = max(len(one.source.origin) for one in found)
    for number, one in enumerate(found, 1):
        lines += [*_policy(number, one, cells, columns), ""]
    for source in aside:
        named = "SUB_POLICY" if os.environ.get("SUB_POLICY") else "SUB_POLICY_JSON"
        lines += _wrapped(f"not in force: {source.origin} {_short(source.path or '')} ({named} is set)", columns, "")
    lines += [""] if aside else []
    return lines + _misnamed(cwd, columns) + _stacking(found, columns)


def _policy(number: int, one: InForce, cells: int, columns: int | None) -> list[str]:
    where = _short(one.source.path) if one.source.path else "in the environment"
    head = f"{number}  {pad(one.source.origin, cells)}  "
    lines = [paint(head, None, bold=True) + _cut(where, None if columns is None else columns - len(head))]
    if one.fault is not None:
        lines += [_INDENT + paint("does not load: every tool call is refused until it is mended", "red")]
        lines += _wrapped(str(one.fault), columns)
        if one.fault.hint:
            lines += _wrapped(one.fault.hint, columns)
        if len(one.errors) > 1 and one.source.path:
            lines += _wrapped(f"All of them: sub policy lint {_short(one.source.path)}", columns)
        return lines
    assert one.snapshot is not None
    facts = [f"{one.snapshot['policy_id']} {one.snapshot['version']}", one.snapshot["mode"]]
    facts += [count(len(one.snapshot["rules"]), "rule"), f"hash {one.snapshot['policy_hash'][:12]}"]
    lines += _wrapped(", ".join(facts), columns)
    if one.left_out:
        lines += [_INDENT + paint("does not apply to this run:", "yellow"), *_wrapped(one.left_out, columns)]
    return lines


def _stacking(found: list[InForce], columns: int | None) -> list[str]:
    if any(one.fault is not None for one in found):
        return []
    applied = [one for one in found if one.left_out is None]
    if not applied:
        text = "None applies to this run: every call is allowed and recorded. Try another with --client, --env, ..."
        return _wrapped(text, columns, "")
    modes = {one.snapshot["mode"] for one in applied if one.snapshot}
    ids = [one.snapshot["policy_id"] for one in found if one.snapshot]
    twice = sorted({name for name in ids if ids.count(name) > 1})
    text = "Every call is judged by it." if len(applied) == 1 else "Every call is judged by each, and the strictest"
    text += "" if len(applied) == 1 else " decision wins: one can tighten another and never loosen it."
    text += " It only observes: nothing is refused." if modes == {"observe"} and len(applied) == 1 else ""
    text += " All only observe: nothing is refused." if modes == {"observe"} and len(applied) > 1 else ""
    same = f"Two have the policy_id {twice[0]}: decisions cite both alike, so give each its own." if twice else ""
    other = "Who runs may decide otherwise: try it with --agent-id, --client, --env and --workload."
    texts = [text, same, other if len(applied) < len(found) else ""]
    return [line for text in texts if text for line in _wrapped(text, columns, "")]


def _misnamed(cwd: str, columns: int | None) -> list[str]:
    """A policy whose name is almost right is the one that its author takes to be in force."""
    found = []
    for directory in (os.path.join(cwd, DIRECTORY), sub_home()):
        for name in ("policy.yml", "policy.json", "policies.yaml"):
            path = os.path.join(directory, name)
            if os.path.exists(path):
                found += _wrapped(f"{_short(path)} is not read: a policy is in force as policy.yaml.", columns, "")
    return [*(paint(line, "yellow") for line in found), ""] if found else []


def _none(columns: int | None) -> list[str]:
    looked = f"Looked for {ORGANISATION_POLICY}, {_short(user_policy(sub_home()))} and {REPOSITORY_POLICY}"
    return [
        *_wrapped("No policy is in force here: every call is allowed and recorded.", columns, ""),
        *_wrapped(f"{looked} (here, and above up to the directory that holds .git).", columns, ""),
        "",
        "  sub policy init          write one for this repository, with its tests",
        "  sub policy init --user   write one for everything you do",
    ]


def _short(path: str) -> str:
    """As people write it: from here, or from their home."""
    here, home = os.getcwd() + os.sep, os.path.expanduser("~") + os.sep
    if path.startswith(here):
        return printable(path[len(here) :])
    return printable("~" + os.sep + path[len(home) :] if path.startswith(home) else path)


def _cut(text: str, columns: int | None) -> str:
    return text if columns is None else cut(printable(text), columns)


def _wrapped(text: str, columns: int | None, indent: str = _INDENT) -> list[str]:
    room = None if columns is None else columns + len(INDENT) - len(indent)
    return [indent + line for line in wrapped(printable(text), room)]


IN_FORCE = Command("in-force", in_force, HELP, OPTIONS)
