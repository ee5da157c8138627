"""What a replay came to, held against the record: the same calls, other calls, other decisions.

The same agent on the same record gives the same bytes: nothing here is of the replay itself but what it decided, and
everything stands in the order of the record, or by name.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from subluminal.runs.replay.answering import can_answer
from subluminal.runs.replay.session import Noted
from subluminal.runs.replay.tape import Tape, Taped


class Builtin(Struct, eq=False):
    """Tools of the client itself. Where no hook told of them, nobody knows what the client ran."""

    hooks: bool = False
    refused: int = 0
    ran: int = 0


class Comparison:
    def __init__(self, tape: Tape, noted: list[Noted], builtin: Builtin | None = None) -> None:
        self.tape = tape
        self.builtin = builtin
        self.replayed = len(noted)
        self.repeated = sum(each.how == "repeated" for each in noted)
        matched = {each.number: each for each in noted if each.number is not None and each.how != "repeated"}
        self.pairs = [(call, matched[call.number]) for call in tape.calls if call.number in matched]
        self.same = [call for call, now in self.pairs if _decision(now) == call.decision]
        self.other_decisions = [(call, now) for call, now in self.pairs if _decision(now) != call.decision]
        self.other_calls = sorted((each for each in noted if each.number is None), key=_by_name)
        self.not_made = [call for call in tape.calls if call.number not in matched]
        passed = [call for call, now in self.pairs if now.action == "ALLOW"]
        self.unanswered = [call for call in passed if not can_answer(call)]
        self.masked = sum(call.state == "masked" for call in passed)
        self.ignoring = sum(each.how == "ignoring" for each in noted)

    @property
    def differs(self) -> bool:
        """Whether anything was not as it is on record. Answers that are masked are as they are on record."""
        return bool(self.other_decisions or self.other_calls or self.not_made or self.unanswered or self.repeated)

    def as_dict(self) -> dict[str, Any]:
        counts = {
            "recorded": len(self.tape.calls),
            "replayed": self.replayed,
            "same": len(self.same),
            "other_decisions": len(self.other_decisions),
            "other_calls": len(self.other_calls),
            "not_made": len(self.not_made),
            "unanswered": len(self.unanswered),
            "repeated": self.repeated,
            "ignoring": self.ignoring,
            "masked": self.masked,
        }
        return {
            "run_id": self.tape.run_id,
            "same": not self.differs,
            "calls": counts,
            "other_decisions": [
                {**_named(call), "was": call.decision, "now": _decision(now)} for call, now in self.other_decisions
            ],
            "other_calls": [_other(each) for each in self.other_calls],
            "not_made": [_named(call) for call in self.not_made],
            "unanswered": [{**_named(call), "state": _state(call)} for call in self.unanswered],
            "builtin": self._builtin(),
            "elsewhere": dict(sorted(self.tape.elsewhere.items())),
        }

    def _builtin(self) -> dict[str, Any] | None:
        if self.builtin is None:
            return None
        facts = {"hooks": self.builtin.hooks, "refused": self.builtin.refused, "ran": self.builtin.ran}
        return {"recorded": self.tape.builtin, **facts}


def _state(call: Taped) -> str:
    return "refused_then" if call.action != "ALLOW" else call.state


def _decision(now: Noted) -> dict[str, str | None]:
    return {"action": now.action, "rule_id": now.rule_id, "reason_code": now.reason_code}


def _named(call: Taped) -> dict[str, Any]:
    return {"call_id": call.call_id, "server_name": call.server_name, "tool_name": call.tool_name}


def _other(each: Noted) -> dict[str, Any]:
    names = {"server_name": each.server_name, "tool_name": each.tool_name, "args_hash": each.args_hash}
    nearest = None if each.nearest is None else {"call_id": each.nearest, "keys": each.keys}
    return {**names, **_decision(each), "nearest": nearest}


def _by_name(each: Noted) -> tuple[str, str, str, str]:
    return each.server_name, each.tool_name, each.args_hash, each.action
