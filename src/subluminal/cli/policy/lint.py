"""`sub policy lint` and `sub policy compile`."""

from __future__ import annotations

import os
import sys

from subluminal.cli.options import Argument, Command, Option, Values
from subluminal.cli.policy.report import as_github, as_json, as_sarif
from subluminal.cli.policy.source import compiled, show_findings, source_of
from subluminal.cli.render.output import note, print_json
from subluminal.contracts.errors import UsageError
from subluminal.policy.edit.schema import stale_schema
from subluminal.policy.files import is_test, policy_files, tests_beside
from subluminal.policy.lint.findings import ERROR, NOTE, WARNING, Finding, InvalidPolicy, UnreadablePolicy, has_errors
from subluminal.policy.lint.load import load_bundle
from subluminal.policy.replay.cases import load_cases, policy_of
from subluminal.policy.sources import LaidSource, find_policies
from subluminal.reports.printable import count, printable

INLINE = "SUB_POLICY_JSON"


LINT_HELP = """Check policies: shape, names, patterns, limits that contradict each other, rules that cannot fire.

PATH is a policy, a test file (NAME.test.yaml), a directory to search for both, or - for standard input. Without
one, what is in force here is checked, with its tests. Every finding has a place and a fix.

\b
Exit codes:
  0  no errors
  1  errors, or with --strict warnings; notes never count
  2  usage error, or a file cannot be read

\b
Examples:
  sub policy lint
  sub policy lint policies/ci.yaml policies/ci.test.yaml
  sub policy lint --format github .
"""

LINT_OPTIONS = [
    Option("--format", "form", None, choices=("text", "json", "sarif", "github"), exact=True, default="text"),
    Option("--json", "as_json", "The same as --format json.", is_flag=True),
    Option("--strict", "strict", "Warnings count as errors.", is_flag=True),
]


def lint(values: Values) -> int:
    files = [file for path in values["paths"] for file in _files(path)] if values["paths"] else _in_force()
    findings, unreadable = _lint(files)
    _print(findings, files, "json" if values["as_json"] else values["form"])
    if not files:
        note("No policy is in force here. `sub policy init` writes one; `sub policy in-force` says where it looks.")
    if unreadable:
        return 2
    return (
        1 if has_errors(findings) or (values["strict"] and any(finding.level == WARNING for finding in findings)) else 0
    )


def _files(path: str) -> list[str]:
    if not os.path.isdir(path):
        return [path]
    found = policy_files(path)
    if not found:
        hint = "A policy is YAML or JSON with a policy_id; a test file is named NAME.test.yaml."
        raise UsageError(f"There is no policy in {path}", hint=hint)
    return found


def _in_force() -> list[str]:
    """The files, each with the tests beside it. One of the environment goes by the name of its variable."""
    found = []
    for source in find_policies(os.environ, os.getcwd()):
        if isinstance(source, LaidSource):
            continue  # compiled: its author has linted it
        if source.path is not None:
            path = _from_here(source.path)
            found += [path, *tests_beside(path)]
        elif source.inline is not None:
            found.append(INLINE)
    return found


def _from_here(path: str) -> str:
    relative = os.path.relpath(path)
    return path if relative.startswith(os.pardir) else relative


def _lint(files: list[str]) -> tuple[list[Finding], bool]:
    findings: list[Finding] = []
    unreadable = False
    for path in files:
        try:
            findings += _findings(path)
        except UnreadablePolicy as error:
            findings += error.findings
            unreadable = True
    return findings, unreadable


def _findings(path: str) -> list[Finding]:
    if path == INLINE:
        return load_bundle(os.environ[INLINE].encode("utf-8", "surrogateescape"), f"{INLINE}.json").findings
    if not is_test(path):
        return load_bundle(*source_of(path)).findings
    try:
        cases = load_cases(path)
    except UnreadablePolicy:
        raise
    except InvalidPolicy as invalid:
        return invalid.findings
    policy = policy_of(path, cases)
    if os.path.exists(policy):
        return []
    fix = "name it with policy: FILE, or write it; NAME.test.yaml tests NAME.yaml"
    return [Finding(ERROR, "no-policy", f"the policy that it tests is not there: {policy}", fix, path, 1, 1)]


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
        if files:
            note(f"{count(len(files), 'file')} checked: {verdict}")
        for path in dict.fromkeys(filter(None, map(stale_schema, files))):
            note(printable(f"{path} is of another version, and editors read it: sub policy schema -o {path}"))


COMPILE_HELP = """Compile a policy bundle into the snapshot that shims obey, and print it as JSON.

Defaults are stated and globs are in normal form. policy_hash does not depend on formatting, comments or key order;
it does depend on the order of the rules and on every value.

\b
Examples:
  sub policy compile policy.yaml
  sub policy compile policy.yaml -o snapshot.json
"""

COMPILE_OPTIONS = [
    Option("-o/--output", "output", "Write to this file instead of standard output.", metavar="OUT"),
    Option("--json", "_as_json", "Accepted for uniformity; the output is always JSON.", is_flag=True),
]


def compile(values: Values) -> int:
    snapshot, output = compiled(values["file"]), values["output"]
    if output is None:
        print_json(snapshot)
        return 0
    import msgspec

    from subluminal.cli.policy.files import write_file

    write_file(output, msgspec.json.encode(snapshot) + b"\n")
    name = f"{snapshot['policy_id']} {snapshot['version']}"
    note(printable(f"wrote {output}: {name}, policy_hash {snapshot['policy_hash']}"))
    return 0


LINT = Command("lint", lint, LINT_HELP, LINT_OPTIONS, Argument("paths", "[PATH]...", many=True))
COMPILE = Command("compile", compile, COMPILE_HELP, COMPILE_OPTIONS, Argument("file", "FILE", required=True))
