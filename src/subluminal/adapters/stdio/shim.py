"""`sub shim`: start the upstream first, import the rest while it starts.

Everything imported up to `spawn` is on the critical path of every agent's start: clients drop the tools of servers
that are not ready within about a second. The heavy part, `relay`, loads while the server does its own loading.
"""

from __future__ import annotations

import os
import sys

from subluminal.adapters.stdio.options import USAGE, Options, parse
from subluminal.adapters.upstream.process import spawn
from subluminal.contracts.errors import SubluminalError
from subluminal.host.config import Config, ServerConfig, load_config
from subluminal.host.identity import borrow_environment, keep_home
from subluminal.host.secrets.bindings import spawn_environ

TYPE_CHECKING = False
if TYPE_CHECKING:
    from subluminal.contracts.errors import SecretError
    from subluminal.host.secrets.confirmation import Withheld
    from subluminal.producer.producer import Producer

# What a shell answers when a command cannot be found or run.
EXIT_NOT_FOUND = 127
EXIT_NOT_RUNNABLE = 126
EXIT_INTERNAL = 70
EXIT_INTERRUPTED = 130


class ServerSetup:
    """What must be known before the server is started: settings, its environment, and its secrets."""

    __slots__ = ("child_environ", "config", "errors", "injections", "secrets", "server", "withheld")

    def __init__(self, server_name: str, command: list[str]) -> None:
        self.config: Config = load_config(os.environ, of_entry=True)
        self.server: ServerConfig = self.config.server(server_name)
        self.withheld: Withheld | None = None
        if self.server.secret_bindings:
            from subluminal.host.secrets.confirmation import withheld

            self.withheld = withheld(self.server, self.config, command, os.environ)
        kept_back = () if self.withheld is None else self.withheld.bindings
        resolved = spawn_environ(os.environ, self.server, self.config.other_bindings(server_name), kept_back)
        self.child_environ = resolved.child_environ
        self.secrets = resolved.secrets
        self.injections = resolved.injections
        self.errors: list[SecretError] = resolved.errors


def main(argv: list[str]) -> int:
    try:
        options = parse(argv)
        if options.help:
            sys.stdout.write(USAGE)
            return 0
        return _run(options)
    except SubluminalError as error:
        _say(str(error))
        if error.hint:
            _say(f"  {error.hint}")
        return error.exit_code
    except KeyboardInterrupt:  # before the relay has its own handlers; the watchdog ends the server
        return EXIT_INTERRUPTED


def _run(options: Options) -> int:
    borrow_environment(os.environ)
    keep_home(os.environ)
    _keep_events_to_ourselves(options.events or os.environ.get("SUB_EVENTS") or "")
    setup = ServerSetup(options.server_name, options.command)
    for warning in setup.config.warnings:
        _say(warning)
    if setup.withheld is not None:
        _say(str(setup.withheld))
        _say(f"  {setup.withheld.hint}")
    if setup.errors:
        # A server that lacks a secret is not started: the record says so, then the user is told.
        _open_producer(options, setup).close("FAILED")
        raise setup.errors[0]
    try:
        upstream = spawn(options.command, setup.child_environ)
    except OSError as fault:
        _say(f"{options.server_name}: cannot start {options.command[0]!r}: {fault.strerror}")
        return EXIT_NOT_FOUND if isinstance(fault, FileNotFoundError) else EXIT_NOT_RUNNABLE
    try:
        from subluminal.adapters.stdio.msgspec_import import import_msgspec

        import_msgspec()
        from subluminal.adapters.stdio.relay import Relay

        return Relay(options.server_name, upstream, setup, _open_producer(options, setup)).run()
    except SubluminalError:
        raise
    except Exception as fault:
        # The text of an exception may quote what passed through us; its type and place never do.
        place = fault.__traceback__
        while place is not None and place.tb_next is not None:
            place = place.tb_next
        where = f"{place.tb_frame.f_code.co_filename}:{place.tb_lineno}" if place is not None else "?"
        _say(f"{options.server_name}: internal error {type(fault).__name__} at {where}; please report it")
        return EXIT_INTERNAL


def _open_producer(options: Options, setup: ServerSetup) -> Producer:
    from subluminal.producer.producer import assemble

    producer = assemble(
        os.environ,
        client=options.client,
        events=options.events,
        policy=options.policy,
        secrets=setup.secrets,
        config=setup.config,
        of_entry=True,
        command=options.command,
    )
    producer.open({"server_name": options.server_name}, setup.injections)
    return producer


def _keep_events_to_ourselves(sink: str) -> None:
    """The server must not inherit the descriptor that our events go to: it could write events of its own."""
    if sink.startswith("fd:"):
        from subluminal.host.record.sinks import descriptor

        if (fd := descriptor(sink)) > 2:
            os.set_inheritable(fd, False)


def _say(message: str) -> None:
    """To stderr, never stdout: that belongs to the protocol."""
    try:
        os.write(2, f"sub: {message}\n".encode("utf-8", "replace"))
    except OSError:
        pass
