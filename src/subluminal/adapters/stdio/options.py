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
  --policy FILE        a policy bundle, in addition to the user's and the repository's
  --events SINK        ledger (default) | stderr | file:PATH | dir:PATH | fd:N | none

Environment: SUB_HOME, SUB_POLICY, SUB_POLICY_JSON, SUB_EVENTS, and the identity variables
SUB_RUN_ID, SUB_AGENT_ID, SUB_ENV, SUB_CLIENT, SUB_PRINCIPAL, SUB_WORKLOAD (JSON),
SUB_RUN_META (JSON, or key=value,key=value); in a pod also the downward API's, see docs/identity.md.

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
        setattr(options, _NAMES[name], value)
    options.command = argv[start:]
    if not options.server_name:
        raise UsageError("--server-name is missing", hint="See sub shim --help.")
    if not options.command:
        raise UsageError("there is no command after --", hint="See sub shim --help.")
    return options
