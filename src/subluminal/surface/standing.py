"""What one thing that a server says is, by what is known of it and by the locks: its state and its classes.

Two who may demand pins: the user (and the organisation), whose lock is in SUB_HOME, and the repository, whose lock is
committed with it. The strictest wins, and a repository's lock alone never satisfies the user: what only the repository
has approved is `unpinned_by_user`, and `changed_for_user` if the user has seen another version. Rules of the user's and
the organisation's policies mean these words too when they say `unpinned` or `changed`; the repository's own do not.

    new        nobody has seen it under this SUB_HOME before this run
    changed    it differs from its pin; where there is none, from the last version seen, or from the one that this
               session was sent before; or its server answers differently each time
    unpinned   it is in no lock
"""

from __future__ import annotations

from msgspec import Struct

from subluminal.contracts.vocabulary import CHANGED, CHANGED_FOR_USER, NEW, UNPINNED, UNPINNED_BY_USER
from subluminal.surface.differences import Version, is_same

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from subluminal.surface.items import Item
    from subluminal.surface.known import Known
    from subluminal.surface.pins import Pin

PINNED, SEEN = "pinned", "seen"


class Standing(Struct, eq=False):
    """`was`: what it differs from, where it has changed. `why`: a clause that says against what."""

    state: str
    classes: frozenset[str]
    was: Version | None = None
    why: str = ""


def standing(
    item: Item,
    known: Known | None,
    user: Pin | None,
    repository: Sequence[Pin],
    run_id: str,
    *,
    base: Version | None,
    sent: Version | None = None,
    sticky: bool = False,
) -> Standing:
    """`base`: the version seen before this run; `sent`: the one that this session was sent before; `sticky`: it was
    found changed since, and nobody has approved it."""
    now = Version(item.fingerprint, item.fields)
    classes = set()
    if known is None or known.first_run == run_id:
        classes.add(NEW)
    if user is None:
        classes.add(UNPINNED_BY_USER if repository else UNPINNED)
    broken = next((pin for pin in (user, *repository) if pin is not None and not is_same(item.kind, pin, now)), None)
    moved, why = (None, "") if user is not None else _moved(item, known, now, base, sent, sticky)
    if broken is not None:
        classes.add(CHANGED)
        return Standing(CHANGED, frozenset(classes), broken, "it differs from its pin")
    if moved is not None:
        classes.add(CHANGED_FOR_USER if repository else CHANGED)
        return Standing(CHANGED, frozenset(classes), moved, why)
    state = PINNED if user is not None or repository else NEW if NEW in classes else SEEN
    return Standing(state, frozenset(classes))


def _moved(
    item: Item, known: Known | None, now: Version, base: Version | None, sent: Version | None, sticky: bool
) -> tuple[Version | None, str]:
    if known is not None and known.unsteady:
        other = next((each for each in known.versions if not is_same(item.kind, each, now)), None)
        return other or known.base, "its server answers differently each time"
    if base is not None and not is_same(item.kind, base, now):
        return base, "it differs from the version seen before"
    if sent is not None and not is_same(item.kind, sent, now):
        return sent, "it differs from the version that this session was sent"
    if sticky and base is not None:
        return base, "it has changed in this session"
    return None, ""
