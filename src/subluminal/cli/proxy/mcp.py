"""`sub proxy mcp`: MCP over HTTP to the client, a URL or a command behind it."""

from __future__ import annotations

from shutil import which
from typing import TYPE_CHECKING, Any

import click

from subluminal.cli.proxy.listening import listening_options, read_header, read_listening
from subluminal.contracts.errors import UsageError

if TYPE_CHECKING:
    from subluminal.adapters.listening.specs import ServerSpec
    from subluminal.host.config import Config


@click.command("mcp", context_settings={"ignore_unknown_options": False})
@click.option("--server-name", metavar="NAME", help="Serve this one, at /mcp/NAME; else those of config.toml.")
@click.option("--url", metavar="URL", help="The server's address.")
@click.option("--url-env", metavar="VARIABLE", help="The variable that holds it, where the address is a secret.")
@click.option(
    "--header-env", "header_envs", multiple=True, metavar="NAME=VARIABLE", help="Send the server this header; repeat."
)
@click.option("--bearer-env", metavar="VARIABLE", help="Send the server `Authorization: Bearer` with its value.")
@listening_options
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def mcp_command(
    server_name: str | None,
    url: str | None,
    url_env: str | None,
    header_envs: tuple[str, ...],
    bearer_env: str | None,
    command: tuple[str, ...],
    **listening: Any,
) -> int:
    """Serve MCP over HTTP, in front of a URL or of a command.

    Every call is judged and recorded as in `sub shim`. It stays in the foreground and prints one line when it is ready;
    Ctrl-C ends it. On a loopback address it serves this user only; elsewhere it needs a token.

    \b
    Examples:
      sub proxy mcp --server-name docs --url https://docs.example/mcp
      sub proxy mcp --server-name docs --url https://docs.example/mcp --bearer-env DOCS_TOKEN --listen 127.0.0.1:8700
      sub proxy mcp --server-name files -- npx server-filesystem /srv
      sub proxy mcp                      all of [proxy.servers] in config.toml
    """
    from subluminal.adapters.http.service import serve
    from subluminal.http.loop import run

    options = read_listening(**listening)
    specs = _servers(options.config, server_name, url, url_env, header_envs, bearer_env, list(command))
    return run(serve(options, specs))


def _servers(
    config: Config,
    server_name: str | None,
    url: str | None,
    url_env: str | None,
    header_envs: tuple[str, ...],
    bearer_env: str | None,
    command: list[str],
) -> list[ServerSpec]:
    """What the command line names, or everything in `config.toml`."""
    from subluminal.adapters.listening.specs import spec_of_command, spec_of_url
    from subluminal.host.proxied import check_name

    named = bool(url or url_env)
    if named and command:
        raise UsageError("give either --url or a command after --, not both")
    if server_name is None:
        if named or command or header_envs or bearer_env:
            raise UsageError("--server-name is needed with --url and with a command")
        return _configured(config)
    check_name(server_name, "--server-name")
    if command:
        if which(command[0]) is None:
            raise UsageError(f"{server_name}: there is no program {command[0]!r}")
        return [spec_of_command(config, server_name, command)]
    if not named:
        raise UsageError(f"nothing is said of where {server_name} is", hint="Give --url URL, or its command after --.")
    headers = [read_header(text) for text in header_envs]
    return [spec_of_url(config, server_name, url, url_env, headers, bearer_env)]


def _configured(config: Config) -> list[ServerSpec]:
    from subluminal.adapters.listening.specs import spec_of_command, spec_of_url
    from subluminal.host.proxied import proxied_servers

    specs = [
        spec_of_command(config, own.name, own.command)
        if own.command
        else spec_of_url(config, own.name, own.url, own.url_env, list(own.header_env.items()), own.bearer_env)
        for own in proxied_servers(config)
    ]
    if not specs:
        raise UsageError(
            "no server is named, neither here nor in config.toml",
            hint="sub proxy mcp --server-name NAME --url URL, or [proxy.servers.NAME] with url or command.",
        )
    return specs
