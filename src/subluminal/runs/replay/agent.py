"""An agent in a replay: its servers are those of the record, and it is started as always.

Claude Code and Codex are told on their command line; any other program finds them where it starts its servers with
`sub shim`, which then starts none. The client's own tools are refused by its hooks, where it has ours.
"""

from __future__ import annotations

import json
import os
import sys
import tomllib
from collections.abc import Sequence

from subluminal.contracts import events as ev
from subluminal.contracts.errors import UsageError
from subluminal.contracts.vocabulary import ALLOW, BUILTIN_SERVER
from subluminal.host.record.journal import list_journals
from subluminal.ledger.fold.reading import BadEvent, read_event
from subluminal.runs.launch import run_child
from subluminal.runs.replay.comparing import Builtin, Comparison
from subluminal.runs.replay.session import Options, Session, laid_over
from subluminal.runs.replay.tape import Tape


def replay_agent(
    tape: Tape, options: Options, command: list[str], *, stdout: int | None = None
) -> tuple[Comparison, int]:
    """What it came to, and the command's exit code."""
    with Session.new(tape, options) as session:
        words = _with_servers(command, session, tape)
        ended = run_child(words, laid_over(os.environ, session), end_others=list, stdout=stdout)
        return Comparison(tape, session.noted(), _builtin(session.journals)), ended.code


def serving(session: Session, server_name: str) -> list[str]:
    """The command of one server of the replay."""
    return [sys.executable, "-m", "subluminal", "replay", "--session", session.directory, "--serve", server_name]


def _with_servers(command: list[str], session: Session, tape: Tape) -> list[str]:
    client = os.path.basename(command[0])
    if client not in ("claude", "codex"):
        return command
    if session.options.passes:
        hint = "Use `sub replay RUN --serve SERVER --on-miss pass -- COMMAND` in a configuration of your own."
        raise UsageError(f"nothing is passed on for {client}: it is given the servers of the record only.", hint=hint)
    entries = {name: serving(session, name) for name in tape.servers}
    return [command[0], *(_for_claude if client == "claude" else _for_codex)(entries, command[1:]), *command[1:]]


def _for_claude(entries: dict[str, list[str]], given: Sequence[str]) -> list[str]:
    """`--strict-mcp-config` ends the list that `--mcp-config` takes, and leaves every other server out."""
    if any(word.split("=")[0] == "--mcp-config" for word in given):
        raise UsageError("--mcp-config cannot be given in a replay: the servers are those of the record.")
    servers = {name: {"command": words[0], "args": words[1:]} for name, words in entries.items()}
    return ["--mcp-config", json.dumps({"mcpServers": servers}), "--strict-mcp-config"]


def _for_codex(entries: dict[str, list[str]], given: Sequence[str]) -> list[str]:
    """Its settings are laid over the user's own file, so that servers which stand there are turned off by name."""
    words: list[str] = []
    for name in sorted(_of_codex() - entries.keys()):
        words += ["-c", f"mcp_servers.{name}.enabled=false"]
    for name, command in entries.items():
        if not name.replace("-", "").replace("_", "").isalnum():
            raise UsageError(f"Codex cannot be told of a server {name!r} on its command line.")
        table = f"{{command={json.dumps(command[0])}, args={json.dumps(command[1:])}, required=true}}"
        words += ["-c", f"mcp_servers.{name}={table}"]
    return words


def _of_codex() -> set[str]:
    """The servers that stand in the files which Codex reads here."""
    from subluminal.clients.base import Place
    from subluminal.clients.codex import CODEX

    found: set[str] = set()
    for file in CODEX.files(Place()):
        try:
            with open(file.path, "rb") as text:
                servers = tomllib.load(text).get("mcp_servers")
        except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError):
            continue
        found |= set(servers) if isinstance(servers, dict) else set()
    return found


def _builtin(journals: str) -> Builtin:
    """What hooks told of the client's own tools."""
    found = Builtin()
    for name in list_journals(journals):
        with open(os.path.join(journals, name), "rb") as file:
            for line in file:
                _hear(found, line)
    return found


def _hear(found: Builtin, line: bytes) -> None:
    try:
        event = read_event(line.rstrip(b"\n"))
    except BadEvent:
        return
    if isinstance(event, ev.RunStart):
        meta = event.run.meta
        found.hooks |= isinstance(meta, dict) and meta.get("server_name") == BUILTIN_SERVER
    elif isinstance(event, ev.ToolCallDecision) and event.call.server_name == BUILTIN_SERVER:
        if event.decision.action == ALLOW:
            found.ran += 1
        else:
            found.refused += 1
