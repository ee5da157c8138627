"""What a fleet has laid on this machine: verified and compiled snapshots, and two lists that say which are in force.

`policies.laid` and `stops.laid` are each a line with the SHA-256 of what follows, and JSON. They name snapshots by
their `policy_hash`, which is the name of a snapshot's file and the hash of its bytes: a file that was changed, cut
short or taken away is found out, and a machine that has joined and lacks one has an invalid policy, never none. Whoever
can write in the home can also write a whole new list with its hash, and a shim believes it: the keeper, which has
verified signatures, compares what stands there with what it would lay at each look, and puts that back.

A list is replaced in one step when all that it names is there. `good_until_ms`: after that moment nobody has confirmed
its policies for `max_offline`; a stop has no such moment.

The shim of a machine that has joined imports this; it never sees a signature.
"""

from __future__ import annotations

import os
from time import time

import msgspec

from subluminal.contracts.digest import sha256_hex_once
from subluminal.contracts.errors import PolicyError
from subluminal.host.files import read_private
from subluminal.host.home import ensure_private_dir, laid_dir, laid_list, laid_snapshot

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

POLICIES, STOPS = "policies", "stops"
WHICH = (POLICIES, STOPS)
LAID_FORMAT = 1
MAX_LIST_BYTES = 1 << 20
MAX_LAID_BYTES = 40 << 20
_HEX = 64


class NotLaid(PolicyError):
    hint = "`sub fleet status` says why; the keeper (`sub fleet keep`) lays it anew as soon as it reaches the fleet."


class Laid(msgspec.Struct, omit_defaults=True):
    """`names` are the `policy_hash`es in order; `version` counts what was published; `known` is told, never judged."""

    names: list[str]
    version: int = 0
    laid_at_ms: int = 0
    good_until_ms: int = 0
    max_offline_ms: int = 0
    compiled_by: str = ""
    of: str = ""  # the hash of what it was made from
    known: list[dict[str, Any]] = []
    laid_format: int = LAID_FORMAT

    def overdue(self, wall_ms: int) -> str | None:
        """Why what it names cannot be relied on any more, as a clause."""
        if not self.good_until_ms or wall_ms < self.good_until_ms:
            return None
        from subluminal.contracts.moments import rfc3339
        from subluminal.core.engine.hints import duration

        since = rfc3339(self.good_until_ms - self.max_offline_ms)[:16] + "Z"
        return f"the fleet has not confirmed its policy since {since} (allowed: {duration(self.max_offline_ms)})"


# By path: the list and the facts of its file. It is looked for twice a second and rarely changes.
_read: dict[str, tuple[tuple[int, int, int, int], Laid]] = {}


def read_list(which: str, home: str | None = None) -> Laid:
    """Raises NotLaid where it is missing, altered or half written."""
    path = laid_list(which, home)
    try:
        facts = os.stat(path, follow_symlinks=False)
        # The time of change is the kernel's: whoever rewrites a file can set the other one back.
        stamp = facts.st_mtime_ns, facts.st_ctime_ns, facts.st_size, facts.st_ino
        kept = _read.get(path)
        if kept is not None and kept[0] == stamp:
            return kept[1]
        content = read_private(path, MAX_LIST_BYTES)
    except OSError as error:
        raise NotLaid(f"What the fleet has laid cannot be read: {path}: {error.strerror}.") from None
    laid = _checked(content, path)
    _read[path] = (stamp, laid)
    return laid


def _checked(content: bytes, path: str) -> Laid:
    stated, body = content[:_HEX], content[_HEX + 1 :]
    if sha256_hex_once(body).encode() != stated:
        raise NotLaid(f"What the fleet has laid was altered or is not whole: {path}.")
    try:
        # Not `type=Laid`: to look at annotations msgspec imports `typing`, which a shim does without.
        told: dict[str, Any] = msgspec.json.decode(body)
        if told.get("laid_format", LAID_FORMAT) == LAID_FORMAT and all(map(_is_hash, told["names"])):
            return Laid(**told)
    except (msgspec.DecodeError, TypeError, KeyError, AttributeError):
        pass
    raise NotLaid(f"What the fleet has laid is of another version of Subluminal: {path}.")


def _is_hash(name: Any) -> bool:
    return isinstance(name, str) and len(name) == _HEX and name.isascii() and name.isalnum()


def read_snapshot(path: str, overdue: str | None = None) -> dict[str, Any]:
    """A laid snapshot, which is believed because its bytes have the hash that is its name."""
    try:
        content = read_private(path, MAX_LAID_BYTES)
    except OSError as error:
        raise NotLaid(f"A policy that the fleet has laid cannot be read: {path}: {error.strerror}.") from None
    policy_hash = sha256_hex_once(content)
    if os.path.basename(path) != policy_hash + ".json":
        raise NotLaid(f"A policy that the fleet has laid was altered or is not whole: {path}.")
    try:
        snapshot: dict[str, Any] = msgspec.json.decode(content)
    except msgspec.DecodeError:
        raise NotLaid(f"A policy that the fleet has laid cannot be read: {path}.") from None
    snapshot["policy_hash"] = policy_hash
    if overdue is not None:
        snapshot["overdue"] = overdue
    return snapshot


def in_force(which: str, home: str) -> list[tuple[str, str | None]]:
    """Paths of the laid snapshots in order, each with why it is overdue; raises NotLaid."""
    laid = read_list(which, home)
    overdue = laid.overdue(int(time() * 1000))
    return [(laid_snapshot(name, home), overdue) for name in laid.names]


# -- laying, by the keeper and by `sub fleet join` -----------------------------------------------------------------


def lay(which: str, snapshots: list[dict[str, Any]], laid: Laid, home: str | None = None) -> bool:
    """Put the snapshots there, and then the list that names them. True: other policies are in force than before."""
    from subluminal.host.files import replace_file
    from subluminal.policy.compile.bundle import snapshot_bytes

    before = _names_or_none(which, home)
    ensure_private_dir(laid_dir(home), home)
    for snapshot in snapshots:
        path = laid_snapshot(snapshot["policy_hash"], home)
        if not _is_whole(path):
            replace_file(path, snapshot_bytes(snapshot), durable=True)
    laid.names = names_of(snapshots)
    replace_list(which, laid, home)
    _forget_others(home)
    return before != laid.names


def replace_list(which: str, laid: Laid, home: str | None = None) -> None:
    """Say something else of what is there already."""
    from subluminal.host.files import replace_file

    replace_file(laid_list(which, home), _list_bytes(laid), durable=True)


def names_of(snapshots: list[dict[str, Any]]) -> list[str]:
    return [snapshot["policy_hash"] for snapshot in snapshots]


def stands(which: str, laid: Laid, home: str | None = None) -> bool:
    """Whether exactly this list lies there now, and all that it names."""
    try:
        content = read_private(laid_list(which, home), MAX_LIST_BYTES)
    except OSError:
        return False
    return content == _list_bytes(laid) and all(_is_whole(laid_snapshot(name, home)) for name in laid.names)


def _list_bytes(laid: Laid) -> bytes:
    body = msgspec.json.encode(laid)
    return sha256_hex_once(body).encode() + b"\n" + body


def is_whole(which: str, home: str | None = None) -> bool:
    """Whether all that is laid is as it was laid."""
    try:
        return all(_is_whole(laid_snapshot(name, home)) for name in read_list(which, home).names)
    except PolicyError:
        return False


def _is_whole(path: str) -> bool:
    try:
        read_snapshot(path)
    except PolicyError:
        return False
    return True


def _names_or_none(which: str, home: str | None) -> list[str] | None:
    try:
        return read_list(which, home).names
    except PolicyError:
        return None


def _forget_others(home: str | None) -> None:
    """Snapshots that no list names. Where a list cannot be read nothing goes: it may name any of them."""
    named = [_names_or_none(which, home) for which in WHICH]
    if None in named:
        return
    kept = {os.path.basename(laid_snapshot(name, home)) for names in named for name in names or ()}
    _remove(laid_dir(home), lambda name: name.endswith(".json") and name not in kept)


def _remove(directory: str, unwanted: Callable[[str], bool]) -> None:
    for name in os.listdir(directory):
        if unwanted(name):
            try:
                os.unlink(os.path.join(directory, name))
            except OSError:
                pass
