"""The shim's command line."""

from __future__ import annotations

import pytest

from subluminal.adapters.stdio.options import REMOTE_OPTIONS, USAGE, parse, read_words
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
        (["--server-name", "a"], "no command after --, and no --url"),
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
    assert all(f"  {name} " in USAGE for name in [*(name for name, _, _ in options), *REMOTE_OPTIONS])


def test_a_server_behind_a_url_with_headers_from_variables() -> None:
    words = ["--server-name", "d", "--url", "https://e.test/mcp", "--header-env", "X-Key=KEY", "--header-env=X-B=VB"]
    options = parse([*words, "--bearer-env", "TOKEN", "--transport", "sse"])
    assert options.is_remote and options.command == []
    assert (options.url, options.url_env, options.transport) == ("https://e.test/mcp", None, "sse")
    assert options.header_envs == [("X-Key", "KEY"), ("X-B", "VB")]
    assert options.bearer_env == "TOKEN"
    assert parse(["--server-name", "d", "--url-env", "U"]).url_env == "U"
    assert parse(["--server-name", "d", "--url-env", "U"]).transport == "auto"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--url", "u", "--", "x"], "a URL and a command"),
        (["--url-env", "U", "--", "x"], "a URL and a command"),
        (["--url", "u", "--url-env", "U"], "--url and --url-env"),
        (["--header-env", "A=B", "--", "x"], "headers are for a server behind --url"),
        (["--bearer-env", "B", "--", "x"], "headers are for a server behind --url"),
        (["--url", "u", "--transport", "ws"], "'ws' is unknown"),
        (["--url", "u", "--header-env", "A"], "not NAME=VARIABLE"),
        (["--url", "u", "--header-env", "=B"], "not NAME=VARIABLE"),
        (["--url", "u", "--header-env", "Authorization=Bearer secret"], "not NAME=VARIABLE"),
    ],
)
def test_what_is_wrong_with_a_url_is_said_without_what_was_given(words: list[str], says: str) -> None:
    with pytest.raises(UsageError, match=says) as raised:
        parse(["--server-name", "a", *words])
    assert "secret" not in f"{raised.value} {raised.value.hint}"
