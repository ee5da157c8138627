"""The directory of one replay: a home of its own, the tape, and what its servers noted. It goes with the replay.

home/           SUB_HOME: the user's config.toml and policy.yaml as they are now, and state that starts at nothing
tape-N          what each server has to know of the recorded run, with its results
environ         what its processes must know, for clients that scrub the environment of their servers
used, noted     which recorded calls were answered; each call, with what it was and what was decided
journals/       events of the replay, which no ledger reads
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from subluminal.contracts.errors import UsageError
from subluminal.host import home
from subluminal.host.identity import new_id
from subluminal.runs.replay.tape import Tape

VARIABLE = "SUB_REPLAY"
_WHO = {
    "agent_id": "SUB_AGENT_ID",
    "client": "SUB_CLIENT",
    "env": "SUB_ENV",
    "principal": "SUB_PRINCIPAL",
    "workload": "SUB_WORKLOAD",
}


class Options(Struct, eq=False):
    """`policy`: in place of those in force. `passes`: calls that are not on record may go to the server itself."""

    policy: str | None = None
    ignore: list[str] = []
    repeat_last: bool = False
    passes: bool = False


class Noted(Struct, eq=False):
    """One call of a replay. `number`: the recorded call that it is."""

    server_name: str
    tool_name: str
    args_hash: str
    number: int | None
    how: str
    nearest: str | None
    keys: list[str]
    action: str
    rule_id: str | None
    reason_code: str


class _Kept(Struct, eq=False):
    environ: dict[str, str]
    options: Options
    run_id: str
    servers: list[str]


class Session:
    """`with Session.new(tape, options) as session:` makes one; `Session(directory)` is one that is on."""

    def __init__(self, directory: str) -> None:
        self.directory = directory
        try:
            with open(self._path("environ"), "rb") as file:
                kept = msgspec.json.decode(file.read(), type=_Kept)
        except (OSError, msgspec.MsgspecError):
            hint = "Such a directory is made by `sub replay RUN -- AGENT`, and goes with it."
            raise UsageError(f"{directory} is no replay that is on.", hint=hint) from None
        self.environ = kept.environ
        self.options = kept.options
        self._run_id = kept.run_id
        self._servers = kept.servers

    @classmethod
    def new(cls, tape: Tape, options: Options) -> Session:
        directory = tempfile.mkdtemp(prefix="sub-replay-")
        try:
            environ = _environment(directory, tape, options)
            for number, name in enumerate(tape.servers):
                _write(os.path.join(directory, f"tape-{number}"), msgspec.msgpack.encode(tape.of_server(name)))
            kept = _Kept(environ, options, tape.run_id, tape.servers)
            _write(os.path.join(directory, "environ"), msgspec.json.encode(kept))
            os.mkdir(os.path.join(directory, "journals"), 0o700)
            _make_home(environ["SUB_HOME"])
        except BaseException:
            shutil.rmtree(directory, ignore_errors=True)
            raise
        return cls(directory)

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.directory, ignore_errors=True)

    def _path(self, name: str) -> str:
        return os.path.join(self.directory, name)

    def tape(self, server_name: str) -> Tape:
        """Of this server."""
        if server_name not in self._servers:
            known = ", ".join(self._servers) or "none"
            raise UsageError(f"run {self._run_id} called no server {server_name!r}.", hint=f"On record: {known}.")
        with open(self._path(f"tape-{self._servers.index(server_name)}"), "rb") as file:
            return msgspec.msgpack.decode(file.read(), type=Tape)

    @property
    def used_file(self) -> str:
        return self._path("used")

    @property
    def journals(self) -> str:
        return self._path("journals")

    def note(self, noted: Noted) -> None:
        """In one write, so that processes lose none of each other's."""
        descriptor = os.open(self._path("noted"), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            os.write(descriptor, msgspec.json.encode(noted) + b"\n")
        finally:
            os.close(descriptor)

    def noted(self) -> list[Noted]:
        try:
            with open(self._path("noted"), "rb") as file:
                return [msgspec.json.decode(line, type=Noted) for line in file]
        except FileNotFoundError:
            return []


def _environment(directory: str, tape: Tape, options: Options) -> dict[str, str]:
    """The user's own settings, and the policy that they name; but who acts is who acted then: policies select by it."""
    environ = {name: word for name, word in os.environ.items() if name.startswith("SUB_")}
    for name in (*_WHO.values(), "SUB_RUN_META", "SUB_SECRET_BINDINGS"):
        environ.pop(name, None)
    who = {_WHO[name]: word for name, word in tape.identity.items() if word}
    if any("\0" in word for word in who.values()):
        hint = "`sub replay RUN --policy FILE` judges it without an agent."
        raise UsageError(f"Run {tape.run_id} cannot be replayed: who acted has a NUL in the name.", hint=hint)
    environ |= who
    if options.policy is not None:
        environ.pop("SUB_POLICY_JSON", None)
        environ["SUB_POLICY"] = options.policy
    if environ.get("SUB_POLICY"):
        environ["SUB_POLICY"] = os.path.abspath(environ["SUB_POLICY"])
    return environ | {
        "SUB_HOME": os.path.join(directory, "home"),
        "SUB_EVENTS": "dir:" + os.path.join(directory, "journals"),
        "SUB_RUN_ID": new_id("run-"),
        "SUB_RECORD_RESULTS": "off",
        VARIABLE: directory,
    }


def _make_home(directory: str) -> None:
    os.mkdir(directory, 0o700)
    for place in (home.config_file, home.user_policy):
        if os.path.exists(place()):
            with open(place(), "rb") as file:
                _write(place(directory), file.read())


def _write(path: str, data: bytes) -> None:
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
        file.write(data)


def laid_over(environ: Mapping[str, str], session: Session) -> dict[str, Any]:
    """An environment in which everything below belongs to the replay, and nothing to the user's own home."""
    return {**{name: word for name, word in environ.items() if not name.startswith("SUB_")}, **session.environ}
