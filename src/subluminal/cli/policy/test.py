"""`sub policy test`."""

from __future__ import annotations

import os
import sys

from subluminal.cli.options import Argument, Command, Option, Values
from subluminal.cli.policy.files import write_file
from subluminal.cli.policy.source import show_findings
from subluminal.cli.render.output import note, paint, print_json
from subluminal.contracts.errors import UsageError
from subluminal.policy.compile.snapshot import read_source
from subluminal.policy.files import is_test, speaks_of_policy, tests_beside
from subluminal.policy.lint.findings import InvalidPolicy
from subluminal.policy.replay.cases import SUFFIXES, find_case_files
from subluminal.policy.replay.testing import FileResult, TestResult, run_file
from subluminal.reports.printable import count, printable

HELP = """Run test files against the real engine: call sequences with times, and the decisions they should meet.

PATH is a test file, a policy NAME.yaml with NAME.test.yaml beside it, or a directory to search for *.test.yaml
(default: here). NAME.test.yaml tests NAME.yaml unless it names another policy.

\b
Exit codes:
  0  all tests pass, or there is none
  1  a test fails, a file is broken, or --min-coverage or --fail-on-empty is not met
  2  usage error, or a file cannot be read

\b
Examples:
  sub policy test
  sub policy test .subluminal/policy.yaml --coverage
  sub policy test policies --run budget --junit report.xml
"""

OPTIONS = [
    Option("--run", "pattern", "Only tests whose name contains PATTERN.", metavar="PATTERN"),
    Option("--coverage", "coverage", "List the rules that no test matched.", is_flag=True),
    Option(
        "--min-coverage",
        "min_coverage",
        "Exit 1 if fewer rules matched.",
        metavar="PERCENT",
        kind=int,
        bounds=(0, 100),
    ),
    Option("--fail-on-empty", "fail_on_empty", "Exit 1 if no test was run.", is_flag=True),
    Option("--junit", "junit", "Write a JUnit XML report.", metavar="FILE"),
    Option("--json", "as_json", "One JSON object.", is_flag=True),
]


def test(values: Values) -> int:
    files, broken = _run(values["paths"], values["pattern"])
    if values["junit"]:
        from subluminal.cli.policy.report import as_junit  # XML, for those who ask for it

        write_file(values["junit"], as_junit(files))
    results = [result for file in files for result in file.results]
    failed = [result for result in results if result.failure]
    rules = [hit for file in files for hit in file.covered.values()]
    percent = 100 * sum(rules) // len(rules) if rules else 100
    if values["as_json"]:
        print_json({"files": [file.as_dict() for file in files], "tests": len(results), "failed": len(failed)})
    else:
        for file in files:
            _print_file(file, values["coverage"])
    if not results and broken:
        note("No test was run: mend what is named above, and run them again.")
    elif not results:
        note(f"No test was run. Test files are named *{SUFFIXES[0]}.")
    else:
        passed = len(results) - len(failed)
        note(f"{count(len(results), 'test')}: {passed} passed, {len(failed)} failed; {percent}% of rules")
    if values["fail_on_empty"] and not results:
        return 1
    min_coverage = values["min_coverage"]
    if min_coverage is not None and percent < min_coverage:
        note(f"{percent}% of the rules were matched by a test; --min-coverage asks for {min_coverage}%.")
        return 1
    return 1 if failed or broken else 0


def _run(paths: tuple[str, ...], pattern: str | None) -> tuple[list[FileResult], bool]:
    files: list[FileResult] = []
    broken = False
    for path in paths or (_here(),):
        for name in find_case_files(_tests_of(path)):
            try:
                files.append(run_file(name, pattern))
            except InvalidPolicy as invalid:
                if invalid.exit_code == 2 and name in paths:
                    hint = f"Name a test file (NAME{SUFFIXES[0]}), a policy that has one beside it, or a directory."
                    raise UsageError(f"{name} cannot be tested: {_why(invalid)}", hint=hint) from None
                show_findings(invalid.findings, sys.stderr)
                broken = True
    return files, broken


def _here() -> str:
    os.getcwd()  # a directory that is gone has no tests, and that is not the same as none
    return "."


def _tests_of(path: str) -> str:
    """Who names a policy means the tests beside it."""
    if is_test(path) or not os.path.isfile(path):
        return path
    beside = tests_beside(path)
    if not beside and speaks_of_policy(read_source(path)):
        hint = f"Write them into {os.path.splitext(path)[0]}{SUFFIXES[0]}; docs/policy.md has an example."
        raise UsageError(f"{path} is a policy, and has no tests beside it", hint=hint)
    return beside[0] if beside else path


def _why(invalid: InvalidPolicy) -> str:
    return invalid.findings[0].message.removeprefix("cannot read the policy: ")


def _print_file(file: FileResult, coverage: bool) -> None:
    if file.results:
        print(printable(file.path))
    for result in file.results:
        _print_result(result)
    missed = [rule_id for rule_id, hit in file.covered.items() if not hit]
    if coverage:
        matched = f"{len(file.covered) - len(missed)} of {count(len(file.covered), 'rule')}"
        print(f"  {matched} matched in {printable(file.policy)}")
        for rule_id in missed:
            print(f"    never matched: {printable(rule_id)}")


def _print_result(result: TestResult) -> None:
    if result.failure is None:
        print(f"  {paint('pass', 'green')}  {printable(result.name)}")
        return
    print(f"  {paint('FAIL', 'red', bold=True)}  {printable(result.name)}")
    print(f"        {printable(result.failure.text())}")
    print(f"        {printable(result.failure.summary)}")


TEST = Command("test", test, HELP, OPTIONS, Argument("paths", "[PATH]...", many=True))
