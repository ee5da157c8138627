"""What the shells are offered for an argument or option beside its words: runs, calls' servers and tools, secrets,
clients, topics, files. Looked up when a key is pressed, so nothing here may fail, write, or take long.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import click
from click.shell_completion import CompletionItem

Answer = list[CompletionItem]
Lookup = Callable[[str], Answer]
_RUNS = 30


def _plain(names: list[str], incomplete: str) -> Answer:
    return [CompletionItem(name) for name in dict.fromkeys(names) if name.startswith(incomplete)]


def _runs(incomplete: str) -> Answer:
    from subluminal.cli.render.moments import short_time
    from subluminal.contracts.short_ids import LAST, short
    from subluminal.ledger.read.ledger import open_or_empty

    with open_or_empty() as ledger:
        rows = ledger.runs(limit=_RUNS).rows
    found = [CompletionItem(LAST, help="the latest run"), CompletionItem(LAST + "~1", help="the one before")]
    for row in rows:
        about = f"{row['agent_id']}, {short_time(row['started_at'])}, {row['status']}"
        found += [CompletionItem(name, help=about) for name in dict.fromkeys((short(row["run_id"]), row["run_id"]))]
    return [item for item in found if item.value.startswith(incomplete)]


def _recorded(column: str) -> Lookup:
    def lookup(incomplete: str) -> Answer:
        from subluminal.ledger.read.ledger import open_or_empty

        with open_or_empty() as ledger:
            rows = ledger.connection.execute(f"SELECT DISTINCT {column} FROM server_tools ORDER BY 1").fetchall()
        return _plain([str(row[0]) for row in rows], incomplete)

    return lookup


def _servers(incomplete: str) -> Answer:
    from subluminal.clients.survey import survey

    configured = [entry.name for file in survey() for entry in file.entries]
    known = [item.value for item in _recorded("server_name")("")]
    return _plain([*configured, *known], incomplete)


def _clients(incomplete: str) -> Answer:
    from subluminal.clients.registry import CLIENTS

    return [CompletionItem(name, help=client.title) for name, client in CLIENTS.items() if name.startswith(incomplete)]


def _secrets(incomplete: str) -> Answer:
    from subluminal.host.secrets.keystore import open_store

    return _plain([entry.secret_ref for entry in open_store("file", os.environ).refs()], incomplete)


def _topics(incomplete: str) -> Answer:
    from subluminal.cli.about.help import TOPICS
    from subluminal.cli.commands import COMMANDS

    return _plain([*TOPICS, *COMMANDS], incomplete)


def _reasons(incomplete: str) -> Answer:
    from subluminal.contracts.vocabulary import REASON_CODES

    return _plain(list(REASON_CODES), incomplete)


def _listed(names: Callable[[], list[str]]) -> Lookup:
    """The last of several that are joined by commas."""

    def lookup(incomplete: str) -> Answer:
        before, comma, last = incomplete.rpartition(",")
        return [CompletionItem(before + comma + name) for name in names() if name.startswith(last)]

    return lookup


def _groups() -> list[str]:
    from subluminal.cli.record.query import GROUP_WORDS
    from subluminal.ledger.read.ledger import GROUPS

    return [*GROUP_WORDS, *(name for name in GROUPS if name not in GROUP_WORDS)]


def _call_columns() -> list[str]:
    from subluminal.cli.record.query import COLUMNS

    return [column.word for column in COLUMNS]


def _files(incomplete: str) -> Answer:
    return [CompletionItem(incomplete, type="file")]


_PATHS = (
    "against", "bundle", "events", "file", "files", "more", "new", "old", "output", "path", "paths", "policy", "report",
    "sources",
)  # fmt: skip
# (command, parameter) or parameter alone -> what it may be.
LOOKUPS: dict[str, Lookup] = {
    "run": _runs,
    "run_id": _runs,
    "target": _runs,
    "verify what": _runs,
    "server": _servers,
    "servers": _servers,
    "server_name": _servers,
    "tool_name": _recorded("tool_name"),
    "tool": _recorded("tool_name"),
    "import client": _clients,
    "restore client": _clients,
    "adopt client": _clients,
    "confirm client": _clients,
    "secret_ref": _secrets,
    "help words": _topics,
    "reason_code": _reasons,
    "group_by": _listed(_groups),
    "query columns": _listed(_call_columns),
    **dict.fromkeys(_PATHS, _files),
}


def offered(command: click.Command) -> click.Command:
    """The command, answering for its parameters. Words that it knows itself stay its own."""
    for parameter in command.params:
        lookup = LOOKUPS.get(f"{command.name} {parameter.name}") or LOOKUPS.get(parameter.name or "")
        if lookup is not None and not isinstance(parameter.type, (click.Choice, click.Path)):
            parameter._custom_shell_complete = _guarded(lookup)
    return command


def _guarded(lookup: Lookup) -> Callable[[click.Context, click.Parameter, str], Answer]:
    def answer(context: click.Context, parameter: click.Parameter, incomplete: str) -> Answer:
        try:
            return lookup(incomplete)
        except Exception:  # a key that was pressed shall not print a traceback over the command line
            return []

    return answer
