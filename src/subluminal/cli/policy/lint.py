"""`sub policy lint` and `sub policy compile`."""

from __future__ import annotations

import sys

import click

from subluminal.cli.policy.report import as_github, as_json, as_sarif
from subluminal.cli.policy.source import compiled, show_findings, source_of
from subluminal.cli.render.output import note, print_json
from subluminal.policy.lint.findings import ERROR, NOTE, WARNING, Finding, UnreadablePolicy, has_errors
from subluminal.policy.lint.load import load_bundle
from subluminal.reports.printable import count, printable


@click.command("lint")
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@click.option("--format", "form", type=click.Choice(["text", "json", "sarif", "github"]), default="text")
@click.option("--json", "as_json_flag", is_flag=True, help="The same as --format json.")
@click.option("--strict", is_flag=True, help="Warnings count as errors.")
def lint_command(files: tuple[str, ...], form: str, as_json_flag: bool, strict: bool) -> int:
    """Check policy bundles: shape, names, patterns, limits that contradict each other, rules that cannot fire.

    Every finding has a place and a fix. Exit code 1 if there are errors (or, with --strict, warnings); 2 if a file
    cannot be read. FILE may be - for standard input.

    \b
    Examples:
      sub policy lint .subluminal/policy.yaml
      sub policy lint --format github policies/*.yaml
    """
    findings, unreadable = _lint(files)
    _print(findings, list(files), "json" if as_json_flag else form)
    if unreadable:
        return 2
    return 1 if has_errors(findings) or (strict and any(finding.level == WARNING for finding in findings)) else 0


def _lint(files: tuple[str, ...]) -> tuple[list[Finding], bool]:
    findings: list[Finding] = []
    unreadable = False
    for path in files:
        try:
            findings += load_bundle(*source_of(path)).findings
        except UnreadablePolicy as error:
            findings += error.findings
            unreadable = True
    return findings, unreadable


def _print(findings: list[Finding], files: list[str], form: str) -> None:
    if form == "json":
        print_json(as_json(findings, files))
    elif form == "sarif":
        print_json(as_sarif(findings))
    elif form == "github":
        for finding in findings:
            print(as_github(finding))
    else:
        show_findings(findings, sys.stdout)
        errors, warnings, notes = (sum(one.level == level for one in findings) for level in (ERROR, WARNING, NOTE))
        verdict = f"{count(errors, 'error')}, {count(warnings, 'warning')}" if findings else "no findings"
        verdict += f", {count(notes, 'note')}" if notes else ""
        note(f"{count(len(files), 'file')} checked: {verdict}")


@click.command("compile")
@click.argument("file", metavar="FILE")
@click.option("-o", "--output", metavar="OUT", help="Write to this file instead of standard output.")
@click.option("--json", "_as_json", is_flag=True, help="Accepted for uniformity; the output is always JSON.")
def compile_command(file: str, output: str | None, _as_json: bool) -> None:
    """Compile a policy bundle into the snapshot that shims obey, and print it as JSON.

    Defaults are stated and globs are in normal form. policy_hash does not depend on formatting, comments or key order;
    it does depend on the order of the rules and on every value.

    \b
    Examples:
      sub policy compile policy.yaml
      sub policy compile policy.yaml -o snapshot.json
    """
    snapshot = compiled(file)
    if output is None:
        print_json(snapshot)
        return
    import msgspec

    from subluminal.cli.policy.files import write_file

    write_file(output, msgspec.json.encode(snapshot) + b"\n")
    name = f"{snapshot['policy_id']} {snapshot['version']}"
    note(printable(f"wrote {output}: {name}, policy_hash {snapshot['policy_hash']}"))
