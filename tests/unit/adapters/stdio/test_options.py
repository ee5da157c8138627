"""The shim's command line."""

from __future__ import annotations

import pytest

from subluminal.adapters.stdio.options import USAGE, parse, read_words
from subluminal.contracts.errors import UsageError


def test_options_are_given_in_either_spelling_and_the_last_one_counts() -> None:
    options = parse(["--server-name=a=b", "--policy", "p", "--server-name", "-x", "--", "cmd", "--", "--policy"])
    assert (options.server_name, options.policy, options.command) == ("-x", "p", ["cmd", "--", "--policy"])


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["--nope=1", "--", "x"], "does not know '--nope=1'"),
        (["--server-name"], "--server-name needs a value"),
        (["--client", "claude", "--", "x"], "--server-name is missing"),
        (["--server-name", "a", "--"], "no command after --"),
        (["--server-name", "a"], "no command after --"),
    ],
)
def test_what_is_wrong_is_said_in_a_sentence(argv: list[str], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        parse(argv)


def test_help_may_be_asked_for_anywhere_before_the_command() -> None:
    assert parse(["--client", "x", "-h", "--nope"]).help
    assert not parse(["--server-name", "-h", "--", "x"]).help


def test_every_option_is_in_the_help() -> None:
    options, start = read_words(["--server-name", "a", "--client", "b", "--policy", "c", "--events", "d", "--", "x"])
    assert start == 9
    assert all(f"  {name} " in USAGE for name, _, _ in options)
