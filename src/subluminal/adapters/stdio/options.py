"""The shim's command line, parsed by hand: an argument library would cost more than everything else before spawn."""

from __future__ import annotations

from subluminal.contracts.errors import UsageError

USAGE = """\
Usage: sub shim --server-name NAME [OPTIONS] -- COMMAND [ARGS...]
       sub shim --server-name NAME [OPTIONS] (--url URL | --url-env VARIABLE)

Stands between an agent and one MCP server: starts COMMAND, or speaks to the server behind
URL, passes messages both ways, decides each tool call and records it. `sub import` writes
this command for you.

Options:
  --server-name NAME   the server's name in the client's configuration (required)
  --client CLIENT      claude | codex | headless | custom
  --policy FILE        a policy bundle, in addition to the user's and the repository's
  --events SINK        ledger (default) | stderr | file:PATH | dir:PATH | fd:N | none
  --url URL            the address of a server that is reached over HTTP
  --url-env VARIABLE   the same, in a variable: a command line can be read by every process
  --header-env NAME=VARIABLE
                       a header for that server; its value is in the variable (repeatable)
  --bearer-env VARIABLE
                       Authorization: Bearer, with the token in the variable
  --transport KIND     auto (default) | http | sse (the transport of MCP 2024-11-05)

Environment: SUB_HOME, SUB_POLICY, SUB_POLICY_JSON, SUB_EVENTS, and the identity variables
SUB_RUN_ID, SUB_AGENT_ID, SUB_ENV, SUB_CLIENT, SUB_PRINCIPAL, SUB_WORKLOAD (JSON),
SUB_RUN_META (JSON, or key=value,key=value); in a pod also the downward API's, see docs/identity.md.

Example:
  sub shim --server-name git --client claude -- uvx mcp-server-git --repository .
  sub shim --server-name docs --url https://mcp.example/mcp --bearer-env DOCS_TOKEN
"""

# Each takes a value; of an option that is given twice the last one counts, but for headers.
_NAMES = {
    "--server-name": "server_name", "--client": "client", "--policy": "policy", "--events": "events", "--url": "url",
    "--url-env": "url_env", "--header-env": "header_envs", "--bearer-env": "bearer_env", "--transport": "transport",
}  # fmt: skip
# What they say is the server itself, as the words after `--` are.
REMOTE_OPTIONS = ("--url", "--url-env", "--header-env", "--bearer-env", "--transport")
TRANSPORTS = ("auto", "http", "sse")


class Options:
    """`header_envs` are pairs of a header's name and the variable that holds its value."""

    __slots__ = (
        "bearer_env", "client", "command", "events", "header_envs", "help", "policy", "server_name", "transport", "url",
        "url_env",
    )  # fmt: skip

    def __init__(self) -> None:
        self.server_name = ""
        self.client: str | None = None
        self.policy: str | None = None
        self.events: str | None = None
        self.command: list[str] = []
        self.url: str | None = None
        self.url_env: str | None = None
        self.header_envs: list[tuple[str, str]] = []
        self.bearer_env: str | None = None
        self.transport = "auto"
        self.help = False

    @property
    def is_remote(self) -> bool:
        return self.url is not None or self.url_env is not None


def read_words(words: list[str]) -> tuple[list[tuple[str, str | None, int]], int]:
    """Name, value (None: it has none) and place of each option, and where the server's command begins.

    Nothing is judged here: `clients` reads the entries of users with it, who may have written anything.
    """
    found: list[tuple[str, str | None, int]] = []
    index = 0
    while index < len(words):
        if words[index] == "--":
            return found, index + 1
        name, equals, value = words[index].partition("=")
        if name in _NAMES and not equals and index + 1 < len(words):
            index += 1
            equals, value = "=", words[index]
        found.append((name, value if equals else None, index))
        index += 1
    return found, index


def parse(argv: list[str]) -> Options:
    options = Options()
    found, start = read_words(argv)
    for name, value, place in found:
        if value is None and name in ("-h", "--help"):
            options.help = True
            return options
        if name not in _NAMES:
            raise UsageError(
                f"sub shim does not know {argv[place]!r}",
                hint="The server's own command follows after `--`; see sub shim --help.",
            )
        if value is None:
            raise UsageError(f"{name} needs a value", hint="See sub shim --help.")
        if name == "--header-env":
            options.header_envs.append(_header(value))
        else:
            setattr(options, _NAMES[name], value)
    options.command = argv[start:]
    if not options.server_name:
        raise UsageError("--server-name is missing", hint="See sub shim --help.")
    _check_server(options)
    return options


def _header(text: str) -> tuple[str, str]:
    name, equals, variable = text.partition("=")
    if not equals or not name or not (variable.isascii() and variable.isidentifier()):
        # The text may hold what should have been in a variable.
        raise UsageError("--header-env is not NAME=VARIABLE", hint="For example: --header-env X-Api-Key=DOCS_KEY")
    return name, variable


def _check_server(options: Options) -> None:
    """A server is a command or a URL: one of them."""
    if options.is_remote and options.command:
        raise UsageError("there is a URL and a command", hint="Give one of them; see sub shim --help.")
    if options.url is not None and options.url_env is not None:
        raise UsageError("there are --url and --url-env", hint="Give one of them; see sub shim --help.")
    if not options.is_remote:
        if not options.command:
            raise UsageError("there is no command after --, and no --url", hint="See sub shim --help.")
        if options.header_envs or options.bearer_env is not None:
            raise UsageError("headers are for a server behind --url", hint="See sub shim --help.")
    if options.transport not in TRANSPORTS:
        hint = f"Use one of {', '.join(TRANSPORTS)}."
        raise UsageError(f"--transport {options.transport!r} is unknown", hint=hint)
