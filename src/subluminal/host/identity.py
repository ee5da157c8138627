"""Who is acting: identity from the environment, from an ancestor process, or derived from the client.

Some clients scrub the environment of their MCP servers, so `SUB_*` set by `sub run` may not arrive. Then the nearest
ancestor that carries it (or that registered itself under `SUB_HOME/run/`) lends it. With neither, the run id is
derived from the client process that spawned us, so that all shims of one agent session share one run.
Imported before the upstream is spawned: nothing heavy here.
"""

from __future__ import annotations

import os
import sys

from subluminal.contracts.identity import Identity, Source
from subluminal.contracts.vocabulary import CLIENTS, ENVS
from subluminal.host import home

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import MutableMapping
    from typing import Any

_MAX_ANCESTORS = 24
_SHELLS = frozenset(("sh", "bash", "dash", "zsh", "ash", "fish", "env", "npx", "uvx", "timeout"))
_CONTROL_PREFIX = "SUB_"
_MAX_WORKLOAD_CHARS = 16_384


def borrow_environment(environ: MutableMapping[str, str]) -> None:
    """Complete a scrubbed environment with the `SUB_*` variables of the run we belong to."""
    if "SUB_RUN_ID" in environ:
        return
    registered: set[str] | None = None
    for pid in ancestors():
        found = _environ_of(pid)
        if "SUB_RUN_ID" not in found:
            if registered is None:
                registered = _registrations()
            found = _registered_environ(pid) if str(pid) in registered else {}
        if "SUB_RUN_ID" in found:
            for name, value in found.items():
                environ.setdefault(name, value)
            return


def client_environment() -> dict[str, str]:
    """The variables of the processes above us, the nearest first: of the client, its shell, the job.

    What our own environment has beyond these was set by the entry of the client's configuration that starts us. Where
    the system shows no environment of other processes, this is what `sub run` wrote about itself.
    """
    found: dict[str, str] = {}
    registered = _registrations()
    for pid in (*ancestors(), 1):  # in a container, the first process has what its operator has set
        for entry in _environ_block(pid).split(b"\x00"):
            name, _, value = entry.decode("utf-8", "surrogateescape").partition("=")
            found.setdefault(name, value)
        for name, value in _registered_environ(pid).items() if str(pid) in registered else ():
            found.setdefault(name, value)
    return found


def _environ_of(pid: int) -> dict[str, str]:
    """The SUB_* variables of another process of ours; empty where the system does not show them."""
    block = _environ_block(pid)
    if b"SUB_RUN_ID=" not in block:
        return {}
    pairs = (entry.decode("utf-8", "surrogateescape").partition("=") for entry in block.split(b"\x00"))
    return {name: value for name, _, value in pairs if name.startswith(_CONTROL_PREFIX)}


def _environ_block(pid: int) -> bytes:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return file.read(1 << 20)
    except OSError:
        return b""


def _registrations() -> set[str]:
    try:
        home.keep_private(home.run_dir(), follow=False)
        return {name[:-5] for name in os.listdir(home.run_dir()) if name.endswith(".json")}
    except OSError:
        return set()


def _registered_environ(pid: int) -> dict[str, str]:
    """What `sub run` wrote about itself, if that pid is still the process that wrote it."""
    import json

    from subluminal.host.files import read_private

    try:
        entry = json.loads(read_private(home.registration_file(pid)))
        if entry["start"] != start_time(pid):
            return {}
        return {str(k): str(v) for k, v in entry["environ"].items() if str(k).startswith(_CONTROL_PREFIX)}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def ancestors() -> list[int]:
    """Parent first. Ends at pid 1 or where the system tells no more."""
    found: list[int] = []
    pid = os.getppid()
    while pid > 1 and len(found) < _MAX_ANCESTORS:
        found.append(pid)
        pid = _stat(pid)[1]
    return found


def _stat(pid: int) -> tuple[str, int, str]:
    """(command, parent pid, start time) of a process; ("", 0, "") when it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read()
    except OSError:
        return ("", 0, "") if sys.platform == "linux" else _ps(pid)
    # The command stands in parentheses and may hold anything, parentheses and spaces included.
    command = text[text.index(b"(") + 1 : text.rindex(b")")]
    fields = text[text.rindex(b")") + 2 :].split()
    return command.decode("utf-8", "replace"), int(fields[1]), fields[19].decode()


def _ps(pid: int) -> tuple[str, int, str]:
    """Where there is no /proc (macOS)."""
    import subprocess

    out = subprocess.run(
        ["ps", "-o", "ppid=,lstart=,comm=", "-p", str(pid)], capture_output=True, text=True, check=False
    ).stdout.split(None, 6)
    if len(out) < 7:
        return "", 0, ""
    return os.path.basename(out[6].strip()), int(out[0]), " ".join(out[1:6])


def start_time(pid: int) -> str:
    """Together with the pid, names one process for the life of the machine's boot."""
    return _stat(pid)[2]


def derived_run_id(host_id: str) -> str:
    """One run per client process: shells and launchers between it and us do not count."""
    from subluminal.contracts.digest import sha256_hex

    pid = os.getppid()
    command, parent, started = _stat(pid)
    while parent > 1 and command in _SHELLS:
        pid = parent
        command, parent, started = _stat(pid)
    return "run-" + sha256_hex(f"{host_id}\x00{_boot_id()}\x00{pid}\x00{started}".encode())[:24]


def _boot_id() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read().strip()
    except OSError:
        return ""


def new_id(prefix: str) -> str:
    """Unique and sorted by time: milliseconds, then 64 random bits."""
    import time

    return f"{prefix}{time.time_ns() // 1_000_000:012x}{os.urandom(8).hex()}"


def host_id() -> str:
    """Random, made once per machine and user, and kept in SUB_HOME."""
    from subluminal.host.files import open_private, read_private

    path = home.host_id_file()
    for _ in range(2):
        try:
            known = read_private(path, 64).decode("ascii").strip()
            if known:
                return known
        except (OSError, UnicodeDecodeError):
            pass
        fresh = os.urandom(16).hex()
        draft = f"{path}.{os.getpid()}"
        try:
            home.ensure_private_dir(home.sub_home())
            fd = open_private(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
            os.write(fd, fresh.encode())
            os.close(fd)
            try:
                os.link(draft, path)  # only one of several starting shims wins; the others read its id
            finally:
                os.unlink(draft)
        except FileExistsError:
            continue
        except OSError:
            break
    # No home to keep it in: still stable per machine where the system has an id of its own.
    from subluminal.contracts.digest import sha256_hex

    return sha256_hex(f"{_machine_id()}\x00{os.getuid()}".encode())[:32]


def _machine_id() -> str:
    try:
        with open("/etc/machine-id", encoding="ascii") as file:
            return file.read(64).strip()
    except (OSError, UnicodeDecodeError):
        return os.uname().nodename


def make_source() -> Source:
    return Source(host_id(), new_id("p"), new_id("s"))


def discover(environ: MutableMapping[str, str], host: str, client: str | None = None) -> Identity:
    """The identity envelope. Words outside the contract's lists become `custom` or `unknown`, never a new word."""
    named = environ.get("SUB_CLIENT") or client or "unknown"
    env = environ.get("SUB_ENV") or ("ci" if environ.get("CI") else "dev")
    known_client = named if named in CLIENTS else "custom"
    principal = environ.get("SUB_PRINCIPAL")
    workload = _given_workload(environ)
    if (principal is None or workload is None) and env == "ci":
        from subluminal.host import ci

        detected = ci.detect(environ)
        if detected is not None:
            principal = principal or detected.principal
            workload = workload if workload is not None else detected.workload
    return Identity(
        run_id=environ.get("SUB_RUN_ID") or derived_run_id(host),
        agent_id=environ.get("SUB_AGENT_ID") or known_client,
        client=known_client,
        env=env if env in ENVS else "unknown",
        principal=principal or environ.get("USER") or environ.get("LOGNAME") or None,
        workload=workload if workload is not None else _local_workload(environ),
    )


def _given_workload(environ: MutableMapping[str, str]) -> dict[str, Any] | None:
    text = environ.get("SUB_WORKLOAD")
    if not text:
        return None
    import json

    from subluminal.contracts.jsontext import to_json

    try:
        value = json.loads(text) if len(text) <= _MAX_WORKLOAD_CHARS else None
        to_json(value)  # it stands in every event: what cannot be written must not be taken
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        message = f"sub: SUB_WORKLOAD is not a JSON object of at most {_MAX_WORKLOAD_CHARS} characters; ignored"
        print(message, file=sys.stderr)
        return None
    return value


def _local_workload(environ: MutableMapping[str, str]) -> dict[str, Any] | None:
    """Kubernetes where we are in a pod, else the local user and repository."""
    if "KUBERNETES_SERVICE_HOST" in environ:
        pod: dict[str, Any] = {"pod": environ.get("HOSTNAME", "")}
        try:
            with open("/var/run/secrets/kubernetes.io/serviceaccount/namespace") as file:
                pod["namespace"] = file.read(256).strip()
        except OSError:
            pass
        return pod
    local: dict[str, Any] = {}
    user = environ.get("USER") or environ.get("LOGNAME")
    if user:
        local["user"] = user
    repository = repository_root(os.getcwd())
    if repository is not None:
        local["repo_path"] = repository
    return local or None


def repository_root(directory: str) -> str | None:
    """The nearest directory upwards that holds `.git`."""
    while True:
        if os.path.lexists(os.path.join(directory, ".git")):
            return directory
        parent = os.path.dirname(directory)
        if parent == directory:
            return None
        directory = parent
