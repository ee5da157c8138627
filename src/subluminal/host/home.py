"""Where things live: `~/.subluminal`, or `SUB_HOME`. Directories are 0700, files 0600.

config.toml  policy.yaml  ledger.db  host_id
ledgerd.sock  ledgerd.pid  ledgerd.log
spool/       one journal per shim, ingested by ledgerd exactly once
run/         run state shared between the shims of a run; registered `sub run` processes
snapshots/   compiled policies, by the hash of their source
backups/     clients' files as they were before an import
secrets/     the file key store
"""

from __future__ import annotations

import os


def sub_home() -> str:
    return os.environ.get("SUB_HOME") or os.path.join(os.path.expanduser("~"), ".subluminal")


def ensure_private_dir(path: str) -> str:
    """Create a directory (and SUB_HOME above it) readable by its owner only."""
    # makedirs gives the mode to the last directory only.
    os.makedirs(sub_home(), mode=0o700, exist_ok=True)
    os.makedirs(path, mode=0o700, exist_ok=True)
    return path


def ledger_db() -> str:
    return os.path.join(sub_home(), "ledger.db")


def ledger_socket() -> str:
    return os.path.join(sub_home(), "ledgerd.sock")


def spool_dir() -> str:
    return os.path.join(sub_home(), "spool")


def run_dir() -> str:
    return os.path.join(sub_home(), "run")


def snapshot_dir() -> str:
    return os.path.join(sub_home(), "snapshots")


def config_file() -> str:
    return os.path.join(sub_home(), "config.toml")


def user_policy() -> str:
    return os.path.join(sub_home(), "policy.yaml")
