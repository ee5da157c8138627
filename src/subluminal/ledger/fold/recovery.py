"""What an agent did after a call of its was refused: the rule, and nothing else.

    actor       who was refused: a thread of the client where the client names one, else the run
    candidates  the actor's next calls that come from a model message after the refused one's result. Which message a
                call is from is known where transcripts tell (`by: ids`); else a call that started after the refusal had
                been answered is taken for one (`by: time`), and calls of the same message, which clients send one after
                another, are too. Further legs of a call and the same call sent again by its client are none.
    window      the first five of them

    corrected   the same tool, other arguments, went well; of a throttled call also the same: it was waited for
    repeated    the same tool again, and nothing of it went well
    other_tool  another tool
    gave_up     nothing more, and the run succeeded
    ended       nothing more, and the run did not succeed
    promoted    an operator let the tool through after it (`sub promote --session`): not counted
    open        the run goes on, and the window is not full

The best outcome stands, in this order. A call that went well is the correction of one refusal only: the nearest that
awaits one. From where the same tool was refused again on, the later refusal awaits it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from operator import attrgetter

from subluminal.contracts.vocabulary import ALLOW, THROTTLE
from subluminal.ledger.fold.joined import MAX_ALIKE

WINDOW = 5
CORRECTED, REPEATED, OTHER_TOOL, GAVE_UP, ENDED = "corrected", "repeated", "other_tool", "gave_up", "ended"
PROMOTED, OPEN = "promoted", "open"
OUTCOMES = (CORRECTED, REPEATED, OTHER_TOOL, GAVE_UP, ENDED, PROMOTED, OPEN)
NOT_COUNTED = (PROMOTED, OPEN)
BY_IDS, BY_TIME = "ids", "time"


class Made:
    """One call of a run, known by `key`. `message`: the model message that made it, where that is known."""

    __slots__ = (
        "actor", "args_hash", "decision", "ended_ms", "key", "message", "promoted", "started_ms", "status",
        "suggested_hash", "tool", "use_id",
    )  # fmt: skip

    def __init__(
        self,
        key: int,
        tool: tuple[str, str],
        args_hash: str,
        decision: str | None,
        status: str | None,
        started_ms: int,
        ended_ms: int | None,
    ) -> None:
        self.key = key
        self.tool = tool
        self.args_hash = args_hash
        self.decision = decision
        self.status = status
        self.started_ms = started_ms
        self.ended_ms = ended_ms
        self.promoted = False  # let through by a promote
        self.use_id: str | None = None
        self.actor = ""
        self.message: str | None = None
        self.suggested_hash: str | None = None

    @property
    def refused(self) -> bool:
        return self.decision is not None and self.decision != ALLOW

    @property
    def went_well(self) -> bool:
        return self.decision == ALLOW and self.status == "OK"

    @property
    def answered_ms(self) -> int:
        return self.started_ms if self.ended_ms is None else self.ended_ms


class Reaction:
    """What followed `refusal`. `calls`: to recovery, the correcting one included; `by`: how that is known."""

    __slots__ = ("as_hinted", "by", "calls", "next", "outcome", "refusal", "window")

    def __init__(self, refusal: Made, window: list[Made], by: str) -> None:
        self.refusal = refusal
        self.window = window
        self.by = by
        self.outcome = OPEN
        self.calls: int | None = None
        self.next: Made | None = window[0] if window else None
        self.as_hinted = False

    def awaits(self, call: Made) -> bool:
        """Whether `call` would be its correction."""
        if self.outcome == CORRECTED or not call.went_well:
            return False
        return call.tool == self.refusal.tool and (
            call.args_hash != self.refusal.args_hash or self.refusal.decision == THROTTLE
        )

    def corrected(self, call: Made) -> None:
        self.outcome, self.next = CORRECTED, call
        self.calls = self.window.index(call) + 1
        self.as_hinted = self.refusal.suggested_hash == call.args_hash


def reactions(calls: Sequence[Made], run_status: str, window: int = WINDOW) -> list[Reaction]:
    """Of each refusal of one run, in order. `calls` in order of time, without further legs."""
    by_actor: dict[str, list[Made]] = {}
    for call in calls:
        by_actor.setdefault(call.actor, []).append(call)
    used = Counter(call.use_id for call in calls if call.use_id is not None)
    # An id that is used over and over names no call (`fold.joined`): else each refusal would pass over all the others.
    names_none = {use_id for use_id, times in used.items() if times > MAX_ALIKE}
    made = [
        _reaction(theirs, place, window, names_none)
        for theirs in by_actor.values()
        for place, call in enumerate(theirs)
        if call.refused
    ]
    made.sort(key=lambda reaction: (reaction.refusal.started_ms, reaction.refusal.key))
    reached: dict[int, list[Reaction]] = {}
    for reaction in made:
        if any(call.promoted and call.tool == reaction.refusal.tool for call in reaction.window):
            reaction.outcome = PROMOTED
            continue
        for call in reaction.window:
            if call.refused and call.tool == reaction.refusal.tool:
                break
            reached.setdefault(call.key, []).append(reaction)
    for call in calls:
        nearest = next((each for each in reversed(reached.get(call.key, ())) if each.awaits(call)), None)
        if nearest is not None:
            nearest.corrected(call)
    for reaction in made:
        if reaction.outcome not in (CORRECTED, PROMOTED):
            reaction.outcome = _otherwise(reaction, run_status, window)
    return made


def _reaction(calls: list[Made], place: int, window: int, names_none: set[str]) -> Reaction:
    refusal = calls[place]
    own = None if refusal.use_id in names_none else refusal.use_id
    found: list[Made] = []
    by = BY_IDS if refusal.message is not None else BY_TIME
    answered = bisect_left(calls, refusal.answered_ms, lo=place + 1, key=attrgetter("started_ms"))
    for later in range(answered, len(calls)):
        call = calls[later]
        if own is not None and call.use_id == own:
            continue
        if refusal.message is not None and call.message is not None:
            if call.message == refusal.message:
                continue
        else:
            by = BY_TIME
        found.append(call)
        if len(found) == window:
            break
    return Reaction(refusal, found, by)


def _otherwise(reaction: Reaction, run_status: str, window: int) -> str:
    if run_status == "RUNNING" and len(reaction.window) < window:
        return OPEN
    if any(call.tool == reaction.refusal.tool for call in reaction.window):
        return REPEATED
    if reaction.window:
        return OTHER_TOOL
    return GAVE_UP if run_status == "SUCCEEDED" else ENDED
