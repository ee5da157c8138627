"""`sub policy init`."""

from __future__ import annotations

import os
import sys

import click

from subluminal.cli.policy.files import create_files
from subluminal.cli.policy.who import acting_here
from subluminal.cli.render.output import note, print_json
from subluminal.host.home import REPOSITORY_POLICY, bin_dir, ensure_private_dir, sub_home, user_policy
from subluminal.policy.closed import keep_markers
from subluminal.policy.edit.schema import SCHEMA_FILE, naming_its_schema, schema_bytes
from subluminal.policy.edit.template import STARTER, TEMPLATES, described, template_files
from subluminal.policy.in_force import policies_in_force
from subluminal.reports.printable import printable


@click.command("init")
@click.argument("path", metavar="[PATH]", required=False)
@click.option("--template", type=click.Choice(TEMPLATES), default=STARTER, help="Which policy to begin with.")
@click.option("--list", "list_", is_flag=True, help="List the templates and what they are for.")
@click.option("--user", is_flag=True, help="Write your own policy, SUB_HOME/policy.yaml.")
@click.option("--dry-run", is_flag=True, help="Print the policy instead of writing it.")
@click.option("--json", "as_json", is_flag=True, help="Print what was written, or the list, as JSON.")
def init_command(path: str | None, template: str, list_: bool, user: bool, dry_run: bool, as_json: bool) -> None:
    """Write a starter policy with comments, and its tests beside it. Existing files are never overwritten.

    PATH defaults to .subluminal/policy.yaml, which is in force for every agent started inside this repository. Its
    JSON Schema is written beside it and named in its first line, so that editors complete and check it; commit all
    three.

    \b
    Examples:
      sub policy init
      sub policy init --user                 for every repository of yours
      sub policy init --template filesystem  for servers that read and write files
      sub policy init --template ci policies/ci.yaml
    """
    if list_:
        _print_templates(as_json)
        return
    os.getcwd()  # raises where the directory is gone, before anything is written
    if user and path:
        raise click.UsageError("--user and PATH cannot be given together.")
    target = user_policy() if user else _target(path)
    files = template_files(template, target)
    files[target] = naming_its_schema(files[target])
    if dry_run:
        _print_draft(files, target, as_json)
        return
    if user:
        ensure_private_dir(sub_home())
    create_files(files)
    schema = os.path.join(os.path.dirname(target), SCHEMA_FILE)
    if not os.path.lexists(schema):
        create_files({schema: schema_bytes()})
        files[schema] = b""
    if os.path.isdir(bin_dir()):  # hooks may be in use, and their judge has not read it yet
        keep_markers(os.environ, os.getcwd())
    if as_json:
        print_json({"written": list(files)})
    for name in files:
        note(f"wrote {printable(name)}")
    note(printable(f"Next: sub policy lint {target}; sub policy test {os.path.dirname(target) or '.'}"))
    for line in _in_force(os.path.abspath(target)):
        note(printable(line))


def _in_force(path: str) -> list[str]:
    """Whether what was written counts for whoever starts an agent here."""
    for one in policies_in_force(os.environ, os.getcwd(), acting_here(None, None, None, None)):
        if one.source.path == path and one.left_out is not None:
            return [f"It is read here from now on, and does not apply to a run of yours: {one.left_out}."]
        if one.source.path == path:
            return ["It is in force here from now on; `sub policy in-force` says how it stacks with others."]
    return []


def _print_templates(as_json: bool) -> None:
    templates = described()
    if as_json:
        print_json({"templates": [{"name": name, "description": text} for name, text in templates.items()]})
        return
    width = max(map(len, templates))
    for name, text in templates.items():
        print(f"{name:{width}}  {text}")


def _print_draft(files: dict[str, bytes], target: str, as_json: bool) -> None:
    if as_json:
        print_json({"written": [], "would_write": list(files)})
    else:
        sys.stdout.write(files[target].decode())


def _target(path: str | None) -> str:
    if path is None:
        return REPOSITORY_POLICY
    if os.path.isdir(path):
        return os.path.join(path, "policy.yaml")
    if not path.endswith((".yaml", ".yml")):
        raise click.UsageError(f"{path}: templates are YAML, so its name must end in .yaml or .yml.")
    return path
