"""What every proxy is told on its command line: where it listens, for whom, and where the record goes."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from subluminal.contracts.errors import PolicyError, SubluminalError, UsageError

if TYPE_CHECKING:
    from subluminal.adapters.listening.service import Listening

MIN_TOKEN_CHARS = 16
DEFAULT_LISTEN = "127.0.0.1:0"

_OPTIONS = (
    click.option("--listen", metavar="HOST:PORT", help="Where to listen; port 0 takes a free one.  [127.0.0.1:0]"),
    click.option("--public-url", metavar="URL", help="How clients reach this address, if it is not where it listens."),
    click.option("--token-env", metavar="VARIABLE", help="Serve only who sends its value as Subluminal-Token."),
    click.option("--policy", metavar="FILE", help="Also under this policy."),
    click.option("--events", metavar="SINK", help="Where events go: ledger, stderr, file:PATH, fd:N.  [ledger]"),
    click.option("--json", "as_json", is_flag=True, help="The line that says it is ready, as a JSON object."),
)


def listening_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options, for `read_listening`."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def read_listening(
    listen: str | None,
    public_url: str | None,
    token_env: str | None,
    policy: str | None,
    events: str | None,
    as_json: bool,
) -> Listening:
    """Raises UsageError for what cannot be meant. Warnings of the configuration are said."""
    from subluminal.adapters.listening.service import Listening
    from subluminal.host.config import load_config

    config = load_config(os.environ)
    for warning in config.warnings:
        print(f"sub: {warning}", file=sys.stderr)
    host, port = _address(listen or DEFAULT_LISTEN)
    _check_policies(policy)
    return Listening(
        config,
        host=host,
        port=port,
        public_url=_public(public_url),
        token=_token(token_env),
        policy=policy,
        events=events,
        as_json=as_json,
    )


def _check_policies(policy: str | None) -> None:
    """What is wrong is said now, and not when the first client comes; one that is named here must be right."""
    from subluminal.policy.sources import find_for_visitor

    for source in find_for_visitor(os.environ, os.getcwd(), policy, {}, None):
        try:
            source.load()
        except PolicyError as error:
            if source.origin == "--policy":
                raise
            print(f"sub: {error}", file=sys.stderr)
            print("  No call is allowed until that is mended.", file=sys.stderr)


def read_header(text: str) -> tuple[str, str]:
    name, separator, variable = text.partition("=")
    if not separator or not name or not variable:
        raise UsageError(f"--header-env {text}: write it as NAME=VARIABLE")
    return name, variable


def _address(text: str) -> tuple[str, int]:
    host, separator, port = text.rpartition(":")
    host = host.strip("[]")
    if not separator or not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise UsageError(f"--listen {text}: write it as HOST:PORT", hint="For example 127.0.0.1:8700, or [::1]:0.")
    return host, int(port)


def _public(url: str | None) -> str | None:
    return None if url is None else plain_url("--public-url", url)


def plain_url(option: str, url: str) -> str:
    """A URL without a query, as an option names it. What it says does not quote it: it may hold a secret."""
    from subluminal.http.urls import read_url

    try:
        read_url(url)
    except SubluminalError as error:
        said = str(error).replace("the server's URL", "it")
        hint = "Write it as https://host[:port]/path, in ASCII, without user name, password or fragment."
        raise UsageError(f"{option}: {said}", hint=hint) from None
    if "?" in url:
        raise UsageError(f"{option} has a query; give scheme, host and path only")
    return url


def _token(variable: str | None) -> str | None:
    if variable is None:
        return None
    value = os.environ.get(variable, "")
    if len(value) < MIN_TOKEN_CHARS or not value.isascii() or not value.isprintable():
        raise UsageError(
            f"{variable} does not hold a token of at least {MIN_TOKEN_CHARS} printable characters",
            hint="For example: export TOKEN=$(openssl rand -hex 16)",
        )
    return value
