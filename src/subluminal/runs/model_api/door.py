"""`sub proxy messages` beside the command of a run: there before it, and gone with it.

It has a session of its own, because a Ctrl-C is for the command. It ends when its stdin does: that happens by itself
where we are killed.
"""

from __future__ import annotations

import json
import select
import subprocess
import sys
from collections.abc import Mapping

from subluminal.contracts.errors import SubluminalError, UsageError
from subluminal.host.config import load_config
from subluminal.host.secrets.bindings import env_names, placeholder
from subluminal.http.urls import read_url
from subluminal.runs.model_api.routes import ask_directly, routes

# Whose bindings of config.toml are the provider's keys.
_SERVER = "model"
START_S = 20.0
# It lets answers go on for 3 s, and the command that they are for has ended.
END_S = 5.0


class Doors:
    """`command` is what is to be started; `environ`, the run's own, has what it needs."""

    def __init__(self, command: list[str], environ: dict[str, str], upstream: str | None) -> None:
        self.command = command
        self._doors: list[_Door] = []
        self._routes = routes(command, environ, upstream)
        try:
            for route in self._routes:
                _check(route.upstream)
                door = _Door(route.upstream, environ)
                self._doors.append(door)
                door.wait_ready()
            for route, door in zip(self._routes, self._doors, strict=True):
                self.command = route.told(self.command, environ, door.base)
        except BaseException:
            self.close()
            raise
        ask_directly(environ)
        _keep_keys(environ)

    def have_ended(self) -> bool:
        """Asked now and then. Without them the command asks at an address that anybody may take."""
        return any(door.has_ended() for door in self._doors)

    def close(self) -> None:
        for route in self._routes:
            route.close()
        for door in self._doors:
            door.let_end()
        for door in self._doors:
            door.wait_ended()


def _check(upstream: str) -> None:
    """Before it stands on a command line: what a user has in it beside host and path is for no other user to read."""
    try:
        read_url(upstream)
    except SubluminalError as error:
        message = str(error).replace("the server's URL", "the address of the model's API")
        raise UsageError(
            message, hint="Write it as https://host[:port]/path, without user name, password or query."
        ) from None
    if "?" in upstream:
        raise UsageError("the address of the model's API has a query", hint="Give scheme, host and path only.")


def _keep_keys(environ: dict[str, str]) -> None:
    """The door has the provider's key by now: the command's environment has a word in its place."""
    config = load_config(environ)
    server = config.server(_SERVER)
    others = {binding.secret_ref for binding in config.other_bindings(_SERVER)}
    for binding in () if server.bindings_from_environ else server.secret_bindings:
        if binding.source == "env" and binding.secret_ref not in others:
            for name in env_names(binding.secret_ref):
                if name in environ:
                    environ[name] = placeholder(binding.secret_ref)


_UPSTREAM = "SUB_MODEL_UPSTREAM"


class _Door:
    def __init__(self, upstream: str, environ: Mapping[str, str]) -> None:
        # -P: what lies in the directory of the run is no part of us.
        words = [sys.executable, "-P", "-m", "subluminal", "proxy", "messages", "--json", "--until-stdin-ends"]
        self.base = ""
        self._process = subprocess.Popen(
            [*words, "--server-name", _SERVER, "--upstream-env", _UPSTREAM],  # its path may be a secret
            env={**environ, _UPSTREAM: upstream},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )

    def wait_ready(self) -> None:
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], START_S)
        line = self._process.stdout.readline() if ready else b""
        try:
            self.base = "http://" + json.loads(line)["listening"]
        except (ValueError, KeyError, TypeError):
            raise SubluminalError(
                "the door before the model's API could not be started, and without it the command is not",
                hint="See what it said above; `sub proxy messages --upstream URL` starts it alone.",
            ) from None

    def has_ended(self) -> bool:
        """It says nothing more after its first line, so what there is to read is the end."""
        assert self._process.stdout is not None
        return bool(select.select([self._process.stdout], [], [], 0)[0])

    def let_end(self) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()

    def wait_ended(self) -> None:
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        finally:
            if self._process.stdout is not None:
                self._process.stdout.close()
