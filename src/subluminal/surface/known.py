"""What was seen of one server as it is configured, version by version: pure, and kept by `host.tools.known`.

`latest` moves with every list. `accepted` is what a quarantine compares with: it moves along until a run has guarded
the item (`changed_tools: quarantine` was in force), and from then on by approval alone, so that no unguarded run can
wave a change through for a guarded one.

A server that answers differently each time is `unsteady`: it went back to an earlier version twice, or three lists in a
row were each another. That is said once and stays so until somebody approves; nothing turns with each list.
"""

from __future__ import annotations

from msgspec import Struct

from subluminal.surface.differences import Version, is_same

TYPE_CHECKING = False
if TYPE_CHECKING:
    from subluminal.surface.items import Item

FORMAT = 1
# The oldest go first; the ledger has all of them.
MAX_VERSIONS = 8
UNSTEADY_RETURNS = 2
UNSTEADY_STREAK = 3
# Rewriting the file for the date alone is not worth more often than this.
FRESH_CHARS = len("2026-01-01T00")


class Seen(Version, eq=False):
    first_seen: str = ""
    first_run: str = ""
    last_seen: str = ""
    client: str = ""


class Known(Struct, eq=False):
    """One item; versions in the order in which they were first seen."""

    kind: str
    name: str
    latest: str
    accepted: str
    versions: list[Seen]
    guarded: bool = False
    returns: int = 0
    streak: int = 0
    unsteady: bool = False
    approved: str = ""  # what somebody has looked at and accepted, if anybody did

    def version(self, fingerprint: str) -> Seen | None:
        return next((each for each in self.versions if each.fingerprint == fingerprint), None)

    @property
    def last(self) -> Seen:
        return self.version(self.latest) or self.versions[-1]

    @property
    def base(self) -> Seen:
        """What a guarded run compares with."""
        return self.version(self.accepted) or self.versions[0]

    @property
    def first_run(self) -> str:
        return self.versions[0].first_run


class KnownServer(Struct, eq=False):
    """`launch` tells servers of one name apart that are started or reached in different ways."""

    server_name: str
    launch: str
    items: dict[str, Known] = {}
    format: int = FORMAT


class News(Struct, eq=False):
    """What a list told that was not known. `was`: the version before, if there was one."""

    item: Item
    was: str = ""


def see(server: KnownServer, item: Item, shown: str, at: str, run_id: str, client: str) -> tuple[bool, News | None]:
    """Take in one item; whether anything is to be written, and what is news. `shown` is its definition, masked."""
    known = server.items.get(item.key)
    seen = Seen(item.fingerprint, item.fields, shown, at, run_id, at, client)
    if known is None:
        server.items[item.key] = Known(item.kind, item.name, item.fingerprint, item.fingerprint, [seen])
        return True, News(item)
    last = known.last
    if is_same(item.kind, last, seen):
        known.streak = 0
        stale = last.last_seen[:FRESH_CHARS] != at[:FRESH_CHARS]
        last.last_seen = at
        return stale, None
    earlier = next((each for each in known.versions if is_same(item.kind, each, seen)), None)
    told = known.unsteady
    known.streak += 1
    if earlier is not None:
        known.returns += 1
        earlier.last_seen = at
    else:
        _add(known, seen)
    known.unsteady = told or known.returns >= UNSTEADY_RETURNS or known.streak >= UNSTEADY_STREAK
    known.latest = seen.fingerprint if earlier is None else earlier.fingerprint
    if not known.guarded:
        known.accepted = known.latest
    return True, None if told else News(item, last.fingerprint)


def approve(known: Known, fingerprint: str) -> None:
    """Somebody has looked at it."""
    known.accepted = known.approved = fingerprint
    known.unsteady = False
    known.returns = known.streak = 0


def _add(known: Known, seen: Seen) -> None:
    known.versions.append(seen)
    if len(known.versions) > MAX_VERSIONS:
        kept = (known.accepted, known.latest, seen.fingerprint, known.versions[0].fingerprint)
        oldest = next(each for each in known.versions if each.fingerprint not in kept)
        known.versions.remove(oldest)
