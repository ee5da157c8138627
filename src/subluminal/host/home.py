"""Where things live: `~/.subluminal`, or `SUB_HOME`. Directories are 0700, files 0600.

config.toml     settings
policy.yaml     the user's policy
ledger.db       the record (SQLite, with its -wal and -shm beside it)
ledger.heads    the witness of the ledger's hash chains
ledgerd.sock    where ledgerd listens
ledgerd.pid     its lock and its process number
ledgerd.log     its own log (and .1, the one before)
http_token      the bearer token of its HTTP API
host_id         this machine and user, in every event
spool/          one journal per shim, `<shim_id>.jsonl`, ingested by ledgerd exactly once
spool/rejected/ lines of journals that are no events
run/            run state shared between the shims of a run, `<hash>.state`; what its servers said of their tools,
                `<hash>.tools`; who runs an agent, `<pid>.json`
snapshots/      compiled policies, `<hash of the source>.json`
backups/        clients' files as they were before an import
secrets/        the file key store
headless/       journals of `sub run --headless` while it is on

A repository may have `.subluminal/` with a `policy.yaml` and a `config.toml` of its own.

No other module joins a name to the home. SUB_HOME is read at each call; whoever serves one home for long (ledgerd)
hands it in. The shim loads this before it spawns its server: nothing but `os`.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Protocol

    class Place(Protocol):
        def __call__(self, home: str | None = None) -> str: ...


DIRECTORY = ".subluminal"
REPOSITORY_POLICY = os.path.join(DIRECTORY, "policy.yaml")
REPOSITORY_CONFIG = os.path.join(DIRECTORY, "config.toml")


def sub_home(environ: Mapping[str, str] = os.environ) -> str:
    return environ.get("SUB_HOME") or os.path.join(environ.get("HOME") or os.path.expanduser("~"), DIRECTORY)


def ensure_private_dir(path: str) -> str:
    """Create a directory (and SUB_HOME above it) readable by its owner only."""
    # makedirs gives the mode to the last directory only.
    os.makedirs(sub_home(), mode=0o700, exist_ok=True)
    os.makedirs(path, mode=0o700, exist_ok=True)
    return path


_DIRECTORIES: list[Place] = []
_FILES: list[Place] = []


def _entry(kept: list[Place], name: str) -> Place:
    def place(home: str | None = None) -> str:
        return os.path.join(home or sub_home(), name)

    kept.append(place)
    return place


def private_places() -> list[tuple[str, int]]:
    """The home and every entry with the mode it should have; not all of them need be there."""
    directories = [sub_home(), *(place() for place in _DIRECTORIES), rejected_dir()]
    files = [*(place() for place in _FILES), heads_path(ledger_db())]
    return [(path, 0o700) for path in directories] + [(path, 0o600) for path in files]


config_file = _entry(_FILES, "config.toml")
user_policy = _entry(_FILES, "policy.yaml")
ledger_db = _entry(_FILES, "ledger.db")
ledger_socket = _entry(_FILES, "ledgerd.sock")
ledgerd_pid = _entry(_FILES, "ledgerd.pid")
ledgerd_log = _entry(_FILES, "ledgerd.log")
token_file = _entry(_FILES, "http_token")
host_id_file = _entry(_FILES, "host_id")
spool_dir = _entry(_DIRECTORIES, "spool")
run_dir = _entry(_DIRECTORIES, "run")
snapshot_dir = _entry(_DIRECTORIES, "snapshots")
backup_dir = _entry(_DIRECTORIES, "backups")
secret_dir = _entry(_DIRECTORIES, "secrets")
headless_dir = _entry(_DIRECTORIES, "headless")


def heads_path(ledger_db: str) -> str:
    """Beside its ledger, wherever that lies."""
    return os.path.splitext(ledger_db)[0] + ".heads"


def rejected_dir(spool: str | None = None) -> str:
    return os.path.join(spool or spool_dir(), "rejected")


def run_state_file(name: str, directory: str | None = None) -> str:
    return os.path.join(directory or run_dir(), f"{name}.state")


def tool_notes_file(name: str) -> str:
    return os.path.join(run_dir(), f"{name}.tools")


def registration_file(pid: int) -> str:
    return os.path.join(run_dir(), f"{pid}.json")


def snapshot_file(source_hash: str) -> str:
    return os.path.join(snapshot_dir(), source_hash + ".json")
