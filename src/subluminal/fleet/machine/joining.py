"""Join a fleet and leave it. A machine has joined when what the fleet demands is laid, and not before."""

from __future__ import annotations

import os
import shutil
from time import time_ns
from urllib.parse import urlsplit

from subluminal.contracts.errors import FleetError
from subluminal.fleet.extras import require_extra
from subluminal.fleet.joined import Joined, read_joined, remove_joined, write_joined
from subluminal.fleet.machine.laying import lay_policies, lay_stops, laying
from subluminal.fleet.machine.origin import ANCHOR, STOPS_APART, Origin
from subluminal.fleet.published import checked_tenant
from subluminal.host.clock import utc_now
from subluminal.host.files import replace_file
from subluminal.host.home import (
    ensure_private_dir,
    fleet_dir,
    fleet_state_file,
    fleet_tuf_dir,
    is_present,
    laid_dir,
)

_MAX_ROOT_BYTES = 512_000
_ASIDE = ".left"


def join(joined: Joined, root: str, home: str) -> None:
    """Verify, lay, and only then say that this machine has joined. Where anything is refused, nothing is left."""
    require_extra("tuf", "cryptography")
    before = read_joined(home)
    if before is not None:
        raise FleetError(f"This machine has joined {before.url} already.", hint="`sub fleet leave` leaves it.")
    check_url(joined.url)
    if joined.tenant is not None:
        checked_tenant(joined.tenant)
    anchor = _anchor(root)
    ensure_private_dir(fleet_dir(home), home)
    try:
        _forget(home)
        ensure_private_dir(fleet_tuf_dir(home), home)
        replace_file(os.path.join(fleet_tuf_dir(home), ANCHOR), anchor, durable=True)
        now_ms = time_ns() // 1_000_000
        lay_policies(Origin(joined.url, home), joined, home, now_ms)
        lay_stops(Origin(joined.url, home, STOPS_APART), joined, home, now_ms)
        joined.joined_at = utc_now()
        write_joined(joined, home)
    except BaseException:
        if read_joined(home) is None:
            _forget(home)
        raise


def leave(home: str) -> bool:
    """What the fleet has laid is no longer in force here. What was shipped, and how far, stays on record."""
    if not is_present(fleet_dir(home)):
        return False
    with laying(home):
        had = remove_joined(home)
        _forget(home)
    return had


def left_behind(home: str) -> list[str]:
    """What `leave` would take away."""
    directories = [laid_dir(home), fleet_tuf_dir(home)]
    paths = [*(path + _ASIDE for path in directories), *directories, fleet_state_file(home)]
    return [path for path in paths if os.path.lexists(path)]


def check_url(url: str) -> None:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise FleetError(f"{url!r} is no address of an origin.", hint="It begins with https:// (or http://).")
    if parts.username or parts.password or parts.query:
        raise FleetError("An origin's address holds no password and no query: what it shows is signed, not secret.")


def _anchor(path: str) -> bytes:
    """Root metadata that its own keys have signed."""
    from tuf.api.exceptions import RepositoryError
    from tuf.api.metadata import Metadata, Root

    try:
        with open(path, "rb") as file:
            data = file.read(_MAX_ROOT_BYTES)
        metadata = Metadata[Root].from_bytes(data)
        metadata.signed.verify_delegate("root", metadata.signed_bytes, metadata.signatures)
    except OSError as error:
        raise FleetError(f"{path} cannot be read: {error.strerror}.") from None
    except (RepositoryError, ValueError, AttributeError) as error:
        hint = "It is the root.json of the repository, from whoever keeps the fleet."
        raise FleetError(f"{path} is no root of a fleet: {error}.", hint=hint) from None
    return data


def _forget(home: str) -> None:
    for path in left_behind(home):
        if os.path.islink(path) or not os.path.isdir(path):
            os.unlink(path)
            continue
        # A keeper may be fetching into it until it sees that its machine has left: under another name nobody writes.
        aside = path.removesuffix(_ASIDE) + _ASIDE
        os.rename(path, aside)
        shutil.rmtree(aside)
