"""One call that several doors saw (a shim, an in-process server, a hook): each keeps its own in the record.

For reading they are one, joined by the client's own id of the call and by what was called. A call without such an id is
never joined, and one door never sees a call twice: two calls of the same transport are two.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from subluminal.contracts.vocabulary import ACTION_STRICTNESS
from subluminal.ledger.fold.call import Call

# Rows of one run with the same id of the client's. One that is used more often names no call, so that whoever uses it
# over and over cannot make the store look at all of them each time.
MAX_ALIKE = 64


class JoinedCall:
    """`calls`: one of each door, in the order in which they were heard of."""

    __slots__ = ("calls",)

    def __init__(self, call: Call) -> None:
        self.calls = [call]

    @property
    def standing(self) -> Call:
        """The call of the door that speaks for all."""
        return max(self.calls, key=lambda call: weight(call.decision, call.status))

    @property
    def doors(self) -> list[str]:
        return [call.transport or "unknown" for call in self.calls]


def weight(decision: str | None, status: str | None) -> tuple[int, bool]:
    """The door with the highest speaks, the first of equals: the strictest decision, so that a call which a shim
    refused is not told as one that a hook had let through; then one that knows how the call ended."""
    return ACTION_STRICTNESS.get(decision or "", -1), status != "CANCELLED"


class Alike:
    """Which of the calls that are alike a door sees: the nth that one door sees is the nth of every other."""

    __slots__ = ("_seen",)

    def __init__(self) -> None:
        self._seen: Counter[tuple[object, ...]] = Counter()

    def call(self, key: tuple[object, ...], door: str | None) -> tuple[object, ...]:
        """The same for all that is one call. To be asked in the order in which it was heard of."""
        at_door = (*key, door or "unknown")
        self._seen[at_door] += 1
        return *key, self._seen[at_door]


def join(calls: Iterable[Call]) -> list[JoinedCall]:
    """In the order of the first of each."""
    given = list(calls)
    used = Counter((call.run_id, call.tool_use_id) for call in given)
    found: list[JoinedCall] = []
    by_call: dict[tuple[object, ...], JoinedCall] = {}
    alike = Alike()
    for call in given:
        key = call_key(call)
        whole = None
        if key is not None and used[call.run_id, call.tool_use_id] <= MAX_ALIKE:
            whole = alike.call(key, call.transport)
        if whole in by_call:
            by_call[whole].calls.append(call)
            continue
        found.append(JoinedCall(call))
        if whole is not None:
            by_call[whole] = found[-1]
    return found


def call_key(call: Call) -> tuple[str, ...] | None:
    """What the doors of one call have in common; None: it is joined with none."""
    if call.tool_use_id is None:
        return None
    return call.run_id, call.tool_use_id, call.server_name, call.tool_name, call.args_hash
