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
    from collections.abc import Iterable, Iterator, Mapping, MutableMapping
    from typing import Any

_MAX_ANCESTORS = 24
_CONTROL_PREFIX = "SUB_"
_MAX_WORKLOAD_CHARS = 16_384
# Mounted into every pod that does not forbid it; a client that scrubs our environment does not take it away.
_SERVICE_ACCOUNT_DIR = "/var/run/secrets/kubernetes.io/serviceaccount"


def borrow_environment(environ: MutableMapping[str, str], of: int | None = None) -> None:
    """Complete a scrubbed environment with the `SUB_*` variables of the run we belong to, or another process (`of`)."""
    if "SUB_RUN_ID" in environ:
        return
    above = ancestors() if of is None else upwards(process_facts(of)[1])
    for name, value in run_environment(above).items():
        environ.setdefault(name, value)


def run_environment(pids: Iterable[int]) -> dict[str, str]:
    """The `SUB_*` variables of the first of these processes that carries a run, or has registered one."""
    registered: set[str] | None = None
    for pid in pids:
        found = _environ_of(pid)
        if "SUB_RUN_ID" not in found:
            if registered is None:
                registered = _registrations()
            found = _registered_environ(pid) if str(pid) in registered else {}
        if "SUB_RUN_ID" in found:
            return found
    return {}


def keep_home(environ: MutableMapping[str, str]) -> None:
    """A HOME that an entry sets is its server's. Where no SUB_HOME says otherwise, ours stays below the client's."""
    if environ.get("SUB_HOME"):
        return
    for pid in upwards(os.getppid()):
        block = b"\x00" + _environ_block(pid)
        if b"\x00HOME=" in block:
            theirs = os.fsdecode(block.partition(b"\x00HOME=")[2].partition(b"\x00")[0])
            if theirs and theirs != environ.get("HOME"):
                environ["SUB_HOME"] = home.sub_home({"HOME": theirs})
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


def environment_of(pid: int) -> dict[str, str]:
    """What another process was started with; empty where the system does not show it."""
    entries = (os.fsdecode(entry).partition("=") for entry in _environ_block(pid).split(b"\x00") if b"=" in entry)
    return {name: value for name, _, value in entries if name}


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
    return list(upwards(os.getppid()))


def upwards(pid: int) -> Iterator[int]:
    for _ in range(_MAX_ANCESTORS):
        if pid <= 1:
            return
        yield pid
        pid = process_facts(pid)[1]


def process_facts(pid: int) -> tuple[str, int, str]:
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
    return process_facts(pid)[2]


def new_id(prefix: str) -> str:
    """Unique and sorted by time: milliseconds, then 64 random bits."""
    import time

    return f"{prefix}{time.time_ns() // 1_000_000:012x}{os.urandom(8).hex()}"


def host_id() -> str:
    """Random, made once per machine and user, and kept in SUB_HOME."""
    from subluminal.host.files import keep_first

    try:
        known = keep_first(home.host_id_file(), os.urandom(16).hex().encode(), 64).decode("ascii", "replace").strip()
        if known and known.isascii():
            return known
    except OSError:
        pass
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


def discover(
    environ: MutableMapping[str, str], host: str, client: str | None = None, directory: str | None = ""
) -> Identity:
    """The identity envelope. Words outside the contract's lists become `custom` or `unknown`, never a new word.

    `directory` is where whoever acts works: where we do, if nothing is said; None: nobody knows.
    """
    named = environ.get("SUB_CLIENT") or client or "unknown"
    env = environ.get("SUB_ENV") or default_env(environ)
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
        run_id=environ.get("SUB_RUN_ID") or _derived_run_id(host),
        agent_id=environ.get("SUB_AGENT_ID") or known_client,
        client=known_client,
        env=env if env in ENVS else "unknown",
        principal=principal or user_name(environ),
        workload=workload if workload is not None else _own_workload(environ, directory),
        meta=_given_meta(environ),
    )


def without_entry(identity: Identity) -> list[Identity]:
    """Who acts by the client's environment, without the variables of the entry that starts us; and its `--client`."""
    environ = {**client_environment(), "SUB_RUN_ID": identity.run_id, "SUB_RUN_META": ""}
    return [discover(environ, "", client) for client in (identity.client, None)]


def _derived_run_id(host: str) -> str:
    from subluminal.host.client_process import derived_run_id

    return derived_run_id(host)


def default_env(environ: Mapping[str, str]) -> str:
    """Where nobody says: `ci` in a CI job, `prod` in a pod, `dev` elsewhere. A CI job may run in a pod."""
    return "ci" if is_ci(environ) else "prod" if _in_pod(environ) else "dev"


def is_ci(environ: Mapping[str, str]) -> bool:
    """`CI=false` is no CI: people write it to have a tool behave as at their desk."""
    return is_set(environ, "CI")


def is_set(environ: Mapping[str, str], name: str) -> bool:
    return environ.get(name, "").strip().lower() not in ("", "0", "false", "no", "off")


def _in_pod(environ: Mapping[str, str]) -> bool:
    return "KUBERNETES_SERVICE_HOST" in environ or os.path.isdir(_SERVICE_ACCOUNT_DIR)


def user_name(environ: Mapping[str, str]) -> str:
    """The user's name; that of the uid where no variable has one (services, containers), or the number."""
    named = environ.get("USER") or environ.get("LOGNAME")
    if named:
        return named
    import pwd

    uid = os.getuid()
    try:
        return pwd.getpwuid(uid).pw_name or f"uid:{uid}"
    except KeyError:
        return f"uid:{uid}"


def _given_meta(environ: Mapping[str, str]) -> dict[str, Any] | None:
    text = environ.get("SUB_RUN_META")
    if not text:
        return None
    from subluminal.host.run_meta import MetaFault, parse_meta

    try:
        return parse_meta(text)
    except MetaFault as fault:
        _say(f"SUB_RUN_META is ignored: {fault}")
        return None


def _say(message: str) -> None:
    """To stderr: stdout may belong to the protocol."""
    print(f"sub: {message}", file=sys.stderr)


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
        _say(f"SUB_WORKLOAD is not a JSON object of at most {_MAX_WORKLOAD_CHARS} characters; ignored")
        return None
    return value


def _own_workload(environ: Mapping[str, str], directory: str | None) -> dict[str, Any]:
    """The pod where we are in one, else the local user and repository."""
    if _in_pod(environ):
        from subluminal.host import pod

        return pod.describe(environ, _SERVICE_ACCOUNT_DIR, _say)
    local: dict[str, Any] = {"user": user_name(environ)}
    repository = None if directory is None else repository_root(directory or os.getcwd())
    if repository is not None:
        local["repo_path"] = repository
    return local


def is_local(workload: Mapping[str, Any]) -> bool:
    """What `_own_workload` says of a desk: each process there finds its own repository."""
    return "user" in workload or "repo_path" in workload


def repository_root(directory: str) -> str | None:
    """The nearest directory upwards that holds `.git`."""
    while True:
        if os.path.lexists(os.path.join(directory, ".git")):
            return directory
        parent = os.path.dirname(directory)
        if parent == directory:
            return None
        directory = parent
