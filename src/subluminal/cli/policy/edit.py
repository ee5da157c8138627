"""`sub policy init` and `sub policy fmt`."""

from __future__ import annotations

import difflib
import os
import sys

import click

from subluminal.cli.policy.files import create_files, write_file
from subluminal.cli.policy.source import source_of
from subluminal.cli.render.output import note, print_json
from subluminal.host.home import REPOSITORY_POLICY, ensure_private_dir, sub_home, user_policy
from subluminal.policy.edit.layout import format_policy
from subluminal.policy.edit.schema import SCHEMA_FILE, naming_its_schema, schema_bytes
from subluminal.policy.edit.starter import starter_files
from subluminal.policy.sources import find_policies
from subluminal.reports.printable import printable


@click.command("init")
@click.argument("path", metavar="[PATH]", required=False)
@click.option("--user", is_flag=True, help="Write your own policy, SUB_HOME/policy.yaml.")
@click.option("--dry-run", is_flag=True, help="Print the policy instead of writing it.")
@click.option("--json", "as_json", is_flag=True, help="Print what was written as JSON.")
def init_command(path: str | None, user: bool, dry_run: bool, as_json: bool) -> None:
    """Write a starter policy with comments, and its tests beside it. Existing files are never overwritten.

    PATH defaults to .subluminal/policy.yaml, which is in force for every agent started inside this repository. Its
    JSON Schema is written beside it and named in its first line, so that editors complete and check it; commit all
    three.

    \b
    Examples:
      sub policy init
      sub policy init --user            for every repository of yours
      sub policy init policies/ci.yaml  wherever you like
    """
    if user and path:
        raise click.UsageError("--user and PATH cannot be given together.")
    target = user_policy() if user else _target(path)
    files = starter_files(target)
    files[target] = naming_its_schema(files[target])
    if dry_run:
        sys.stdout.write(files[target].decode())
        return
    if user:
        ensure_private_dir(sub_home())
    create_files(files)
    schema = os.path.join(os.path.dirname(target), SCHEMA_FILE)
    if not os.path.lexists(schema):
        create_files({schema: schema_bytes()})
        files[schema] = b""
    if as_json:
        print_json({"written": list(files)})
    for name in files:
        note(f"wrote {printable(name)}")
    note(printable(f"Next: sub policy lint {target}; sub policy test {os.path.dirname(target) or '.'}"))
    if os.path.abspath(target) in [source.path for source in find_policies(os.environ, os.getcwd())]:
        note("It is in force here from now on; `sub policy in-force` says how it stacks with others.")


def _target(path: str | None) -> str:
    if path is None:
        return REPOSITORY_POLICY
    if os.path.isdir(path):
        return os.path.join(path, "policy.yaml")
    if not path.endswith((".yaml", ".yml")):
        raise click.UsageError(f"{path}: the starter is YAML, so its name must end in .yaml or .yml.")
    return path


@click.command("fmt")
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@click.option("--check", is_flag=True, help="Change nothing; exit 1 if a file is not formatted.")
@click.option("--dry-run", is_flag=True, help="Change nothing; print what would change as a diff.")
@click.option("--json", "as_json", is_flag=True, help="Print the names of the files that change as JSON.")
def fmt_command(files: tuple[str, ...], check: bool, dry_run: bool, as_json: bool) -> int:
    """Format policy files in place: indentation, spacing, line ends. Comments, key order and meaning stay.

    With --check nothing is written, and the exit code is 1 if a file would change.

    \b
    Examples:
      sub policy fmt .subluminal/policy.yaml
      sub policy fmt --check policies/*.yaml
    """
    changed = []
    for path in files:
        source, name = source_of(path)
        formatted = format_policy(source, name)
        if path == "-":
            sys.stdout.write(formatted.decode())
        elif formatted != source:
            changed.append(path)
            if dry_run:
                _print_diff(path, source, formatted)
            elif not check:
                write_file(path, formatted)
    if as_json:
        print_json({"changed": changed, "written": not (check or dry_run)})
    else:
        verb = "would change" if check or dry_run else "formatted"
        for path in changed:
            note(f"{verb} {printable(path)}")
    return 1 if check and changed else 0


def _print_diff(path: str, old: bytes, new: bytes) -> None:
    lines = difflib.unified_diff(
        old.decode("utf-8", "replace").split("\n"), new.decode().split("\n"), path, f"{path} (formatted)", lineterm=""
    )
    for line in lines:
        print(printable(line.replace("\t", " ")))
