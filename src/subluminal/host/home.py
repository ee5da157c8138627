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
state/          state of scopes that outlive a run: `wide.2.state`
run/            run state shared between the shims of a run, `<hash>.2.state`; what its servers said of their tools,
                `<hash>.tools`, and who lists which name, `<hash>.names`; where the run began, `<hash>.root`; who runs
                an agent, `<pid>.json`; where the judge of a client's hooks listens, `judge-<pid>-<start>.sock`
bin/            the hook command of clients
closed/         where a policy that fails closed is in force, for the hook command when it can ask nobody
snapshots/      compiled policies, `<hash of the source>.json`
backups/        clients' files as they were before an import
secrets/        the file key store
logins/         logins at remote servers: `<ref>` (tokens, where the file store keeps them), `<ref>.json` (what may be
                told of it), `<ref>.lock` (one refresh at a time)
results/        results that are kept (`record.results`): a directory for each run, `<hash>/<shim_id>.results`
tools/          what servers say of their tools: `<hash>.json`, one for each server as it is configured
tools.lock      what of it the user has approved
headless/       journals of `sub run --headless` while it is on
fleet/          of a machine that has joined a fleet
fleet/joined.json which fleet, and how
fleet/tuf/      what is trusted of its origin
fleet/policy/   policies and stops as they were verified and compiled: `policies.laid`, `stops.laid`, `<hash>.json`
fleet/state.json what its keeper has seen
fleet/keeper.log the keeper's log (and .1, the one before)
fleet/keeper.lock held by the keeper
fleet/laying.lock held while policies or stops are laid, and while the machine leaves
fleet/shipped.db how far the record was shipped
fleet/telemetry.json how far spans were sent; also where no fleet was joined

A repository may have `.subluminal/` with a `policy.yaml`, a `config.toml` and a `tools.lock` of its own.

Nothing is written through a symbolic link below the home, and a home of another user is refused: whoever owns it
decides our policy and where secrets go. The home itself, `config.toml`, `policy.yaml` and `ledger.db` may be links that
the user has made.

No other module joins a name to the home. SUB_HOME is read at each call; whoever serves one home for long (ledgerd)
hands it in. The shim loads this before it spawns its server: nothing but `os`.
"""

from __future__ import annotations

import os
from stat import S_IMODE, S_ISLNK, S_ISVTX

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Protocol

    class Place(Protocol):
        def __call__(self, home: str | None = None) -> str: ...


DIRECTORY = ".subluminal"
REPOSITORY_POLICY = os.path.join(DIRECTORY, "policy.yaml")
REPOSITORY_CONFIG = os.path.join(DIRECTORY, "config.toml")
REPOSITORY_TOOLS_LOCK = os.path.join(DIRECTORY, "tools.lock")
LOGIN_NOTE = ".json"


def sub_home(environ: Mapping[str, str] = os.environ) -> str:
    return environ.get("SUB_HOME") or os.path.join(environ.get("HOME") or os.path.expanduser("~"), DIRECTORY)


def ensure_private_dir(path: str, home: str | None = None) -> str:
    """Create a directory (and the home above it) readable by its owner only; PermissionError: it is not ours to use."""
    home = home or sub_home()
    # makedirs gives the mode to the last directory only.
    os.makedirs(home, mode=0o700, exist_ok=True)
    keep_private(home)
    os.makedirs(path, mode=0o700, exist_ok=True)
    if path.startswith(home.rstrip(os.sep) + os.sep):
        keep_private(path, follow=False)
    return path


def keep_private(path: str, *, follow: bool = True) -> None:
    """Refuse a directory that is another user's or (without `follow`) a link; close one that others could change."""
    status = os.stat(path, follow_symlinks=follow)
    if S_ISLNK(status.st_mode):
        raise refusal(path, "is a symbolic link, which is not followed here; remove it")
    if status.st_uid not in (os.geteuid(), 0):
        raise refusal(path, f"belongs to another user (uid {status.st_uid}); set SUB_HOME to a directory of yours")
    if status.st_mode & 0o022:
        _close(path, status)


def _close(path: str, status: os.stat_result) -> None:
    """Take from others the right to change a directory of ours. One that is there for all users (`/tmp`) is none."""
    mode = S_IMODE(status.st_mode)
    if mode & S_ISVTX or status.st_uid != os.geteuid():
        raise refusal(path, f"is open to all users ({mode:04o}); set SUB_HOME to a directory of yours")
    try:
        os.chmod(path, mode & ~0o022)
    except OSError:
        pass
    now = S_IMODE(os.stat(path).st_mode)
    done = f"they no longer can ({now:04o})" if not now & 0o022 else "that cannot be changed on this file system"
    message = f"sub: {path} could be changed by other users ({mode:04o}); {done}. Look at what is in it: sub doctor\n"
    try:
        os.write(2, message.encode("utf-8", "replace"))
    except OSError:
        pass


def refusal(path: str, why: str) -> PermissionError:
    """What stands at `path` is not ours to use."""
    from errno import EPERM

    return PermissionError(EPERM, why, path)


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
telemetry_file = _entry(_FILES, os.path.join("fleet", "telemetry.json"))
spool_dir = _entry(_DIRECTORIES, "spool")
run_dir = _entry(_DIRECTORIES, "run")
state_dir = _entry(_DIRECTORIES, "state")
snapshot_dir = _entry(_DIRECTORIES, "snapshots")
backup_dir = _entry(_DIRECTORIES, "backups")
secret_dir = _entry(_DIRECTORIES, "secrets")
login_dir = _entry(_DIRECTORIES, "logins")
headless_dir = _entry(_DIRECTORIES, "headless")
bin_dir = _entry(_DIRECTORIES, "bin")
closed_dir = _entry(_DIRECTORIES, "closed")
known_tools_dir = _entry(_DIRECTORIES, "tools")
results_dir = _entry(_DIRECTORIES, "results")
tools_lock_file = _entry(_FILES, "tools.lock")
fleet_dir = _entry(_DIRECTORIES, "fleet")
joined_file = _entry(_FILES, os.path.join("fleet", "joined.json"))
fleet_state_file = _entry(_FILES, os.path.join("fleet", "state.json"))
fleet_lock_file = _entry(_FILES, os.path.join("fleet", "keeper.lock"))
laying_lock_file = _entry(_FILES, os.path.join("fleet", "laying.lock"))
fleet_tuf_dir = _entry(_DIRECTORIES, os.path.join("fleet", "tuf"))
keeper_log = _entry(_FILES, os.path.join("fleet", "keeper.log"))
laid_dir = _entry(_DIRECTORIES, os.path.join("fleet", "policy"))
shipped_db = _entry(_FILES, os.path.join("fleet", "shipped.db"))


def heads_path(ledger_db: str) -> str:
    """Beside its ledger, wherever that lies."""
    return os.path.splitext(ledger_db)[0] + ".heads"


def rejected_dir(spool: str | None = None) -> str:
    return os.path.join(spool or spool_dir(), "rejected")


def run_state_file(name: str, directory: str | None = None) -> str:
    return os.path.join(directory or run_dir(), f"{name}.state")


def wide_state_file(home: str | None = None) -> str:
    return os.path.join(state_dir(home), "wide.2.state")


def promotes_file(name: str) -> str:
    return os.path.join(run_dir(), f"{name}.promotes")


def tool_notes_file(name: str) -> str:
    return os.path.join(run_dir(), f"{name}.tools")


def known_tools_file(name: str) -> str:
    return os.path.join(known_tools_dir(), f"{name}.json")


def known_tools_lock() -> str:
    return os.path.join(known_tools_dir(), ".lock")


def run_results_dir(name: str, home: str | None = None) -> str:
    return os.path.join(results_dir(home), name)


def run_names_file(name: str) -> str:
    return os.path.join(run_dir(), f"{name}.names")


def run_root_file(name: str) -> str:
    return os.path.join(run_dir(), f"{name}.root")


def derived_run_file(name: str) -> str:
    return os.path.join(run_dir(), f"{name}.id")


def registration_file(pid: int) -> str:
    return os.path.join(run_dir(), f"{pid}.json")


def login_note(ref: str) -> str:
    return os.path.join(login_dir(), ref + LOGIN_NOTE)


def login_lock(ref: str) -> str:
    return os.path.join(login_dir(), ref + ".lock")


def judge_socket_name(pid: int, started: str) -> str:
    """Below `run_dir`, under the client's process. What a system tells of a start may hold spaces and colons."""
    return f"judge-{pid}-{''.join(char if char.isalnum() else '_' for char in started)}.sock"


def judges_lock() -> str:
    return os.path.join(run_dir(), "judges.lock")


def snapshot_file(source_hash: str) -> str:
    return os.path.join(snapshot_dir(), source_hash + ".json")


def laid_list(which: str, home: str | None = None) -> str:
    """Which of the laid snapshots are in force: of `policies`, or of `stops`."""
    return os.path.join(laid_dir(home), which + ".laid")


def laid_snapshot(policy_hash: str, home: str | None = None) -> str:
    return os.path.join(laid_dir(home), policy_hash + ".json")


def repository_files(directory: str, relative: str) -> list[str]:
    """Where this file stands between a directory and the root of its repository, outermost first; outside of a
    repository, the directory's own: nothing says how far up the project goes."""
    found = []
    start = directory = os.path.abspath(directory)
    while True:
        path = os.path.join(directory, relative)
        if is_present(path):
            found.append(path)
        if is_present(os.path.join(directory, ".git")):
            return found[::-1]
        parent = os.path.dirname(directory)
        if parent == directory:
            return [path for path in found if path == os.path.join(start, relative)]
        directory = parent


def is_present(path: str) -> bool:
    """There, or not known to be absent: a directory we may not search must not read as "nothing there"."""
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True
