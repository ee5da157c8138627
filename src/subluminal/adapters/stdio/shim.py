"""`sub shim`: start the upstream first, import the rest while it starts.

Everything imported up to `spawn` is on the critical path of every agent's start: clients drop the tools of servers
that are not ready within about a second. The heavy part, `relay`, loads while the server does its own loading.
"""

from __future__ import annotations

import os
import sys

from subluminal.adapters.stdio.options import USAGE, Options, parse
from subluminal.adapters.upstream.process import spawn
from subluminal.contracts.errors import SubluminalError, UsageError
from subluminal.host.config import Config, ServerConfig, load_config
from subluminal.host.identity import borrow_environment, keep_home
from subluminal.host.secrets.bindings import spawn_environ

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

    from subluminal.adapters.upstream.reach import Reach
    from subluminal.adapters.upstream.server import Server
    from subluminal.contracts.errors import SecretError
    from subluminal.host.secrets.bindings import Resolved
    from subluminal.host.secrets.confirmation import Withheld
    from subluminal.host.secrets.headers import RemoteHeaders
    from subluminal.producer.producer import Producer

# What a shell answers when a command cannot be found or run.
EXIT_NOT_FOUND = 127
EXIT_NOT_RUNNABLE = 126
EXIT_INTERNAL = 70
EXIT_INTERRUPTED = 130
# The directory of the replay that everything below belongs to: see `runs.replay.session`.
REPLAY = "SUB_REPLAY"


class ServerSetup:
    """What must be known before the server is started: settings, its environment, and its secrets."""

    __slots__ = ("child_environ", "config", "errors", "injections", "reach", "secrets", "server", "withheld", "words")

    def __init__(self, options: Options) -> None:
        self.config: Config = load_config(os.environ, of_entry=True)
        self.server: ServerConfig = self.config.server(options.server_name)
        self.words = options.command or [options.url or options.url_env or ""]
        self.withheld: Withheld | None = None
        self.reach: Reach | None = None
        self.child_environ: dict[str, str] = {}
        resolved: Resolved | RemoteHeaders
        if options.is_remote:
            from subluminal.adapters.stdio.reach import reach_of

            self.reach = reach_of(options, self.server, self.config)
            self.withheld = self.reach.withheld
            resolved = self.reach.resolved
        else:
            resolved = self._resolve_environ(options.command)
            self.child_environ = resolved.child_environ
        self.secrets = resolved.secrets
        self.injections = resolved.injections
        self.errors: list[SecretError] = resolved.errors

    def _resolve_environ(self, command: list[str]) -> Resolved:
        if self.server.secret_bindings:
            from subluminal.host.secrets.confirmation import withheld

            self.withheld = withheld(self.server, self.config, command, os.environ)
        kept_back = () if self.withheld is None else self.withheld.bindings
        return spawn_environ(os.environ, self.server, self.config.other_bindings(self.server.name), kept_back)


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
    if REPLAY in os.environ:
        _become_replay(options)
    insisted = os.environ.get("SUB_CORE")
    borrow_environment(os.environ)
    if os.environ.get("SUB_CORE") != insisted:
        _check_core(os.environ["SUB_CORE"])
    keep_home(os.environ)
    _keep_events_to_ourselves(options.events or os.environ.get("SUB_EVENTS") or "")
    setup = ServerSetup(options)
    for warning in setup.config.warnings:
        _say(warning)
    if setup.withheld is not None:
        _say(str(setup.withheld))
        _say(f"  {setup.withheld.hint}")
    if setup.errors:
        # A server that lacks a secret is not started: the record says so, then the user is told.
        _open_producer(options, setup).close("FAILED")
        raise setup.errors[0]
    if setup.reach is not None:
        from subluminal.adapters.stdio.reach import connect_to

        _leave(_relay(options, setup, connect_to(setup.reach, options, setup.config)))
    try:
        upstream = spawn(options.command, setup.child_environ)
    except OSError as fault:
        _say(f"{options.server_name}: cannot start {options.command[0]!r}: {fault.strerror}")
        return EXIT_NOT_FOUND if isinstance(fault, FileNotFoundError) else EXIT_NOT_RUNNABLE
    return _relay(options, setup, upstream)


def _become_replay(options: Options) -> NoReturn:
    """Below `sub replay RUN -- AGENT` no server is started: its place is taken by what is on record of it.

    An entry of a client's configuration must not say so: whoever wrote it could send its calls past policy and record.
    Nor is the server started then, for the user may mean it.
    """
    from subluminal.host.identity import client_environment

    if client_environment().get(REPLAY) != os.environ[REPLAY]:
        hint = "`sub replay RUN -- AGENT` sets it for the agent; take it out of the server's entry."
        raise UsageError(f"{options.server_name}: {REPLAY} is not the client's own, so nothing is started", hint=hint)
    ours = [sys.executable, "-m", "subluminal", "replay", "--session", os.environ[REPLAY]]
    os.execv(sys.executable, [*ours, "--serve", options.server_name, "--", *options.command])


def _relay(options: Options, setup: ServerSetup, upstream: Server) -> int:
    try:
        from subluminal.host.msgspec_import import import_msgspec

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


def _leave(code: int) -> NoReturn:
    """At once: a thread may be waiting for the name of a host, and nobody shall wait for that thread."""
    sys.stderr.flush()
    os._exit(code)


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
    if setup.reach is not None:
        setup.reach.masked_by(producer.gate.masking.learn)
    producer.open({"server_name": options.server_name}, setup.injections)
    return producer


def _check_core(wanted: str) -> None:
    """The run that we belong to insists on a core: if it cannot be had here, no server is started."""
    from subluminal.native.loading import CoreError, load

    try:
        load(wanted)
    except CoreError as error:
        raise UsageError(f"The run that this shim belongs to: {error.message}", hint=error.hint) from None


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
