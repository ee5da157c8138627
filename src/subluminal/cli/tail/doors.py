"""Calls that several doors see, while they are seen: one of them is shown (`ledger.fold.joined`)."""

from __future__ import annotations

from collections import OrderedDict

from subluminal.ledger.fold.call import Call
from subluminal.ledger.fold.joined import JoinedCall, call_key

Key = tuple[str, str, str]  # Call.key

# Calls of which another door may still tell: the oldest are forgotten first.
MAX_KEPT = 10_000


class Doors:
    def __init__(self) -> None:
        self._of_call: OrderedDict[Key, JoinedCall] = OrderedDict()
        self._latest: OrderedDict[tuple[str, ...], JoinedCall] = OrderedDict()

    def standing(self, call: Call) -> Call:
        """The call that speaks for this one; itself where no other door has seen it."""
        return self._joined(call).standing

    def stands(self, call: Call) -> bool:
        """Whether it is known and speaks for itself."""
        joined = self._of_call.get(call.key)
        return joined is not None and joined.standing is call

    def place(self, call: Call) -> Key:
        """Where it is shown: that of the first door."""
        return self._joined(call).calls[0].key

    def _joined(self, call: Call) -> JoinedCall:
        key = call_key(call)
        if key is None:
            return JoinedCall(call)
        joined = self._of_call.get(call.key)
        if joined is None:
            joined = self._latest.get(key)
            if joined is not None and (call.transport or "unknown") not in joined.doors:
                joined.calls.append(call)
            else:  # one door never sees a call twice
                joined = self._latest[key] = JoinedCall(call)
            self._of_call[call.key] = joined
            if len(self._of_call) > MAX_KEPT:
                self._of_call.popitem(last=False)
            if len(self._latest) > MAX_KEPT:
                self._latest.popitem(last=False)
        elif call not in joined.calls:  # read again from the ledger
            joined.calls = [call if one.key == call.key else one for one in joined.calls]
        return joined
