"""`sub proxy messages`: the API of a model to the client, its provider behind it."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from typing import TYPE_CHECKING, Any

import click

from subluminal.cli.proxy.listening import listening_options, plain_url, read_header, read_listening
from subluminal.contracts.errors import UsageError

if TYPE_CHECKING:
    from subluminal.adapters.listening.service import Listening
    from subluminal.adapters.listening.specs import ServerSpec


@click.command("messages", context_settings={"ignore_unknown_options": False})
@click.option("--upstream", metavar="URL", help="The provider's address, as its clients are given it.")
@click.option("--upstream-env", metavar="VARIABLE", help="The variable that holds it, where the address is a secret.")
@click.option(
    "--header-env",
    "header_envs",
    multiple=True,
    metavar="NAME=VARIABLE",
    help="Send the provider this header, such as its key, in place of the client's; repeat.",
)
@click.option(
    "--server-name", metavar="NAME", default="model", help="Whose settings and secrets of config.toml hold.  [model]"
)
@click.option("--until-stdin-ends", is_flag=True, hidden=True, help="End with whoever holds the other end of stdin.")
@listening_options
def messages_command(
    upstream: str | None,
    upstream_env: str | None,
    header_envs: tuple[str, ...],
    server_name: str,
    until_stdin_ends: bool,
    **listening: Any,
) -> int:
    """Stand between clients and the API of a model: Anthropic Messages and OpenAI Responses.

    Every tool call that the model emits is judged before the client can act on it. A refused call reaches the client
    under a name that it has no tool for, and the model reads why. It stays in the foreground and prints one line when
    it is ready; Ctrl-C ends it. On a loopback address it serves this user only; elsewhere it needs a token.

    \b
    Examples:
      sub proxy messages --upstream https://api.anthropic.com --listen 127.0.0.1:8701
      ANTHROPIC_BASE_URL=http://127.0.0.1:8701 claude
      sub proxy messages --upstream https://api.openai.com/v1 --listen 127.0.0.1:8702
      codex -c openai_base_url=http://127.0.0.1:8702/v1 -c features.enable_request_compression=false
      sub proxy messages --upstream https://api.anthropic.com --header-env x-api-key=REAL_KEY
    """
    from subluminal.http.loop import run

    options = read_listening(**listening)
    spec = _spec(options, server_name, upstream, upstream_env, header_envs)
    return run(_serve(options, spec, until_stdin_ends))


def _spec(
    options: Listening, server_name: str, url: str | None, url_env: str | None, header_envs: tuple[str, ...]
) -> ServerSpec:
    from subluminal.adapters.listening.specs import spec_of_url
    from subluminal.host.proxied import check_name

    check_name(server_name, "--server-name")
    if (url is None) == (url_env is None):
        raise UsageError("give the provider's address with --upstream URL, or with --upstream-env VARIABLE")
    named = url if url is not None else os.environ.get(url_env or "", "")
    plain_url("--upstream" if url is not None else f"the address in {url_env}", named)
    headers = [read_header(text) for text in header_envs]
    return spec_of_url(options.config, server_name, url, url_env, headers, None)


async def _serve(options: Listening, spec: ServerSpec, until_stdin_ends: bool) -> int:
    from subluminal.adapters.messages_api.service import serve

    if until_stdin_ends:
        asyncio.get_running_loop().add_reader(sys.stdin.fileno(), _read_stdin)
    return await serve(options, spec)


def _read_stdin() -> None:
    """Nothing is ever said there: what comes is its end."""
    if not os.read(sys.stdin.fileno(), 4096):
        asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
        os.kill(os.getpid(), signal.SIGTERM)
