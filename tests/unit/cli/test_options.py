"""The small parser takes ordinary command lines, as click would read them; all others are click's."""

from __future__ import annotations

from typing import Any

import click
import pytest

from subluminal.cli.options import Argument, Command, Misused, Option, Values

OPTIONS = [
    Option("--all", "everything", "All.", is_flag=True),
    Option("-o/--output", "output", "A file.", metavar="OUT"),
    Option("--of", "of", "Some.", multiple=True),
    Option("--count", "count", "How many.", kind=int, bounds=(1, 9)),
    Option("--format", "form", None, choices=("text", "json"), exact=True, default="text"),
    Option("--decision", "decision", "A word.", choices=("ALLOW", "BLOCK")),
]
NONE: Values = {"everything": False, "output": None, "of": (), "count": None, "form": "text", "decision": None}
MANY = Argument("files", "[FILE]...", many=True)


def clicked(command: Command, args: list[str]) -> Any:
    """The values as click reads them, or what it says."""
    try:
        return command.click_command().main(args, prog_name="x", standalone_mode=False)
    except click.UsageError as error:
        return error.format_message()


def made(argument: Argument | None = None) -> Command:
    return Command("x", lambda values: values, "Help.", OPTIONS, argument)  # type: ignore[arg-type, return-value]


@pytest.mark.parametrize(
    ("argument", "line", "given"),
    [
        (None, "", {}),
        (None, "--all -o a --of 1 --of=2 --count 3", {"everything": True, "output": "a", "of": ("1", "2"), "count": 3}),
        (None, "--output=a --format json --decision bl", {"output": "a", "form": "json", "decision": "BLOCK"}),
        (MANY, "", {"files": ()}),
        (MANY, "a --all - b", {"files": ("a", "-", "b"), "everything": True}),
        (Argument("file", "FILE", required=True), "a", {"file": "a"}),
        (Argument("file", "[FILE]"), "", {"file": None}),
        (Argument("file", "[FILE]", otherwise="last"), "", {"file": "last"}),
        (Argument("file", "[FILE]", otherwise="last"), "a", {"file": "a"}),
    ],
)
def test_an_ordinary_line_is_read_as_click_reads_it(argument: Argument | None, line: str, given: Values) -> None:
    command = made(argument)
    assert command.parse(line.split()) == {**NONE, **given} == clicked(command, line.split())


@pytest.mark.parametrize(
    ("argument", "line", "said"),
    [
        (None, "--alll", "No such option"),
        (None, "surplus", "unexpected extra argument"),
        (None, "--count x", "not a valid integer"),
        (None, "--count 0", "not in the range 1<=x<=9"),
        (None, "--count 10", "not in the range 1<=x<=9"),
        (None, "--format TEXT", "is not one of 'text', 'json'"),
        (None, "--decision nope", "is not one of 'ALLOW', 'BLOCK'"),
        (None, "--output", "requires an argument"),
        (None, "--all=1", "does not take a value"),
        (Argument("file", "FILE", required=True), "", "Missing argument 'FILE'"),
        (Argument("file", "FILE", required=True), "a b", "unexpected extra argument"),
        (Argument("files", "FILE...", required=True, many=True), "", "Missing argument 'FILE...'"),
    ],
)
def test_a_mistake_is_left_to_click_which_names_it(argument: Argument | None, line: str, said: str) -> None:
    command = made(argument)
    assert command.parse(line.split()) is None
    assert said.lower() in clicked(command, line.split()).lower()


def test_what_a_command_finds_misused_is_said_by_click() -> None:
    def work(values: Values) -> int:
        raise Misused("These do not go together.")

    assert clicked(Command("x", work, "Help.", []), []) == "These do not go together."
