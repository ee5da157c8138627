"""The shim's command line, parsed by hand: an argument library would cost more than everything else before spawn."""

from __future__ import annotations

from subluminal.contracts.errors import UsageError

USAGE = """\
Usage: sub shim --server-name NAME [OPTIONS] -- COMMAND [ARGS...]

Stands between an agent and one MCP server: starts COMMAND, passes messages both ways,
decides each tool call and records it. `sub import` writes this command for you.

Options:
  --server-name NAME   the server's name in the client's configuration (required)
  --client CLIENT      claude | codex | headless | custom
  --policy FILE        a policy bundle, instead of the user's and the repository's
  --events SINK        ledger (default) | stderr | file:PATH | dir:PATH | fd:N | none

Environment: SUB_HOME, SUB_POLICY, SUB_POLICY_JSON, SUB_EVENTS, and the identity variables
SUB_RUN_ID, SUB_AGENT_ID, SUB_ENV, SUB_CLIENT, SUB_PRINCIPAL, SUB_WORKLOAD (JSON).

Example:
  sub shim --server-name git --client claude -- uvx mcp-server-git --repository .
"""

_NAMES = {"--server-name": "server_name", "--client": "client", "--policy": "policy", "--events": "events"}


class Options:
    __slots__ = ("client", "command", "events", "help", "policy", "server_name")

    def __init__(self) -> None:
        self.server_name = ""
        self.client: str | None = None
        self.policy: str | None = None
        self.events: str | None = None
        self.command: list[str] = []
        self.help = False


def parse(argv: list[str]) -> Options:
    options = Options()
    index = 0
    while index < len(argv):
        word = argv[index]
        if word == "--":
            options.command = argv[index + 1 :]
            break
        if word in ("-h", "--help"):
            options.help = True
            return options
        name, equals, value = word.partition("=")
        if name not in _NAMES:
            raise UsageError(
                f"sub shim does not know {word!r}",
                hint="The server's own command follows after `--`; see sub shim --help.",
            )
        if not equals:
            index += 1
            if index == len(argv):
                raise UsageError(f"{name} needs a value", hint="See sub shim --help.")
            value = argv[index]
        setattr(options, _NAMES[name], value)
        index += 1
    if not options.server_name:
        raise UsageError("--server-name is missing", hint="See sub shim --help.")
    if not options.command:
        raise UsageError("there is no command after --", hint="See sub shim --help.")
    return options
