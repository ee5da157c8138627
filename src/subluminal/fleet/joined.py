"""Which fleet this machine has joined, and how: the one home for reading and writing `joined.json` (0600).

Credentials stand in it by reference, never as values.
"""

from __future__ import annotations

import os

import msgspec

from subluminal.contracts.errors import FleetError
from subluminal.contracts.moments import DAY_MS
from subluminal.host.files import read_private, replace_file
from subluminal.host.home import ensure_private_dir, fleet_dir, joined_file

MAX_OFFLINE_MS = 7 * DAY_MS
REFRESH_MS = 60_000
STOP_POLL_MS = 10_000
_MAX_BYTES = 1 << 16
# The code of an error, as a keeper's state has it: the credential is not where `Joined` says.
NO_CREDENTIAL = "no-credential"


class Joined(msgspec.Struct, kw_only=True, omit_defaults=True):
    """`token_env`, `token_file`, or `client_cert` with `client_key`: where the credential for the collector is found.
    `ca_file`: the authority of its own certificate, where that is no public one."""

    url: str
    tenant: str | None = None
    collector: str | None = None
    token_env: str | None = None
    token_file: str | None = None
    client_cert: str | None = None
    client_key: str | None = None
    ca_file: str | None = None
    max_offline_ms: int = MAX_OFFLINE_MS
    refresh_ms: int = REFRESH_MS
    stop_poll_ms: int = STOP_POLL_MS
    max_disk_bytes: int = 0  # of the home of a machine that ships; 0: no bound
    joined_at: str = ""


def read_joined(home: str | None = None) -> Joined | None:
    """None: this machine has joined no fleet."""
    path = joined_file(home)
    try:
        return msgspec.json.decode(read_private(path, _MAX_BYTES), type=Joined)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise FleetError(f"{path} cannot be read: {error.strerror}.") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        hint = "Run `sub fleet leave`, and join again."
        raise FleetError(f"{path} is not what `sub fleet join` has written: {error}.", hint=hint) from None


def require_joined(home: str | None = None) -> Joined:
    joined = read_joined(home)
    if joined is None:
        raise FleetError("This machine has joined no fleet.", hint="`sub fleet join URL --root FILE` joins one.")
    return joined


def write_joined(joined: Joined, home: str | None = None) -> None:
    ensure_private_dir(fleet_dir(home), home)
    replace_file(joined_file(home), msgspec.json.format(msgspec.json.encode(joined)) + b"\n", durable=True)


def has_left(joined: Joined, home: str) -> bool:
    """Joined no fleet any more, or another one since. A file that cannot be read says neither."""
    try:
        return getattr(read_joined(home), "joined_at", None) != joined.joined_at
    except FleetError:
        return False


def remove_joined(home: str | None = None) -> bool:
    try:
        os.unlink(joined_file(home))
    except FileNotFoundError:
        return False
    return True
