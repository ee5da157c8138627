"""One call that several doors saw (a shim, an in-process server, a hook): each keeps its own in the record.

For reading they are one, joined by the client's own id of the call and by what was called. A call without such an id is
never joined, and one door never sees a call twice: two calls of the same transport are two.
"""

from __future__ import annotations

from collections.abc import Iterable

from subluminal.contracts.vocabulary import ACTION_STRICTNESS
from subluminal.ledger.fold.call import Call


class JoinedCall:
    """`calls`: one of each door, in the order in which they were heard of."""

    __slots__ = ("calls",)

    def __init__(self, call: Call) -> None:
        self.calls = [call]

    @property
    def standing(self) -> Call:
        """The call of the door whose decision stands: the strictest, the first of equals."""
        return max(self.calls, key=lambda call: ACTION_STRICTNESS.get(call.decision or "", -1))

    @property
    def doors(self) -> list[str]:
        return [call.transport or "unknown" for call in self.calls]


def join(calls: Iterable[Call]) -> list[JoinedCall]:
    """In the order of the first of each."""
    found: list[JoinedCall] = []
    by_key: dict[tuple[str, ...], list[JoinedCall]] = {}
    for call in calls:
        key = _key(call)
        alike = [] if key is None else by_key.setdefault(key, [])
        place = next((joined for joined in alike if (call.transport or "unknown") not in joined.doors), None)
        if place is not None:
            place.calls.append(call)
        else:
            joined = JoinedCall(call)
            found.append(joined)
            alike.append(joined)
    return found


def _key(call: Call) -> tuple[str, ...] | None:
    if call.tool_use_id is None:
        return None
    return call.run_id, call.tool_use_id, call.server_name, call.tool_name, call.args_hash
