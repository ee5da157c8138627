"""One recorded call put to a policy again: after the calls of its run before it, with what is left of its arguments.

The record holds arguments as a preview, masked and cut. Where the preview hashes to `args_hash` it is all of them.
Else what it shows is used, and every rule that looks at a value it does not show is in doubt: said, never guessed away.
"""

from __future__ import annotations

import re
from typing import Any

from msgspec import Struct
from msgspec.json import encode

from subluminal.contracts.canonical import digest, read_args
from subluminal.contracts.errors import CanonicalError
from subluminal.contracts.history import RecordedCall, RecordedRun
from subluminal.contracts.toolcall import ToolCall
from subluminal.contracts.vocabulary import ALLOW, RUN_TERMINATED, TOOL_NOT_LISTED
from subluminal.policy.replay.explain import Explanation
from subluminal.policy.replay.simulate import Simulation, as_recorded, decision_dict
from subluminal.policy.selectors import left_out

_MASK = b"[REDACTED:"
_FIRST_SEGMENT = re.compile(r"(?:\\.|[^.\[\\])*")
# Of a trace: such a rule was not asked about the arguments.
_NOT_ASKED = ("does not match", "disabled", "does not apply", "not asked")


class Remains(Struct, eq=False):
    """What the record holds of a call's arguments. `why` they are not all there, or None; `masked`: of these keys."""

    value: dict[str, Any] | None
    why: str | None = None
    masked: frozenset[str] | None = None


def remains_of(call: RecordedCall) -> Remains:
    preview = call.args_preview
    if not preview:
        return Remains(None, "the record has none of its arguments")
    try:
        value, canonical = read_args(preview.encode())
    except (CanonicalError, UnicodeEncodeError):
        return Remains(None, f"the record has only the beginning of its arguments ({call.bytes_in:,} bytes)")
    if not isinstance(value, dict):
        return Remains(None, "what the record has of its arguments is no JSON object")
    if digest(canonical) == call.args_hash:
        return Remains(value)
    masked = frozenset(key for key, member in value.items() if _MASK in encode([key, member]))
    why = (
        f"values are masked in the record ({', '.join(sorted(masked))})" if masked else "they do not have its args_hash"
    )
    return Remains(value, why, masked or None)


class Rejudged(Struct, eq=False):
    """`before`: how many calls of the run came before it. `doubtful`: rules that look at what the record lacks.

    `classes_unknown`: classes that rules ask for, and of which the record does not tell whether the tool had them.
    """

    explanation: Explanation
    remains: Remains
    before: int
    doubtful: list[str]
    classes_unknown: list[str] = []

    def as_dict(self) -> dict[str, Any]:
        return {
            **self.explanation.as_dict(),
            "arguments": {"complete": self.remains.why is None, "why": self.remains.why},
            "calls_before": self.before,
            "doubtful_rules": self.doubtful,
            "classes_unknown": self.classes_unknown,
            "certain": not self.doubtful and not self.classes_unknown,
        }


def rejudge(
    snapshot: dict[str, Any],
    run: RecordedRun,
    call: RecordedCall,
    *,
    of_repository: bool = False,
    decided_by: str | None = None,
) -> Rejudged:
    """`decided_by`: the hash of the policy that decided it then; what that one asked for is among the tags."""
    earlier = [other for other in run.calls[: run.calls.index(call)] if _was_judged(other)]
    start_ms = min([call.at_ms, *(other.at_ms for other in earlier)])
    simulation = Simulation(snapshot, run.identity, start_ms, of_repository=of_repository)
    wanted = simulation.stack.listing.wanted
    now = 0
    for other in earlier:
        now = max(now, other.at_ms - start_ms)  # a wall clock may be set back
        verdict = simulation.decide(_as_call(other, run, wanted), remains_of(other).value, other.args_hash, now)
        if other.action == ALLOW and other.ended_ms is not None:
            ended = max(now, other.ended_ms - start_ms)
            simulation.settle(verdict, ok=other.status == "OK", latency_ms=other.latency_ms or 0, at_ms=ended)
    remains = remains_of(call)
    verdict, trace = simulation.judge(
        _as_call(call, run, wanted), remains.value, call.args_hash, max(now, call.at_ms - start_ms)
    )
    explanation = Explanation(snapshot, decision_dict(verdict.decision), trace, verdict.tags)
    explanation.left_out = left_out(snapshot["selectors"], run.identity)
    doubtful = _doubtful(snapshot, trace, remains)
    unknown = frozenset() if decided_by == snapshot["policy_hash"] else classes_unknown(call, wanted)
    return Rejudged(explanation, remains, len(earlier), doubtful, sorted(unknown))


def classes_unknown(call: RecordedCall, wanted: frozenset[str]) -> frozenset[str]:
    """Of those that rules ask for: the ones of which the record does not tell whether the tool had them."""
    return wanted - call.stood_told - call.tags


def _was_judged(call: RecordedCall) -> bool:
    return call.action is not None and (call.reason_code != RUN_TERMINATED or call.rule_id is not None)


def _as_call(call: RecordedCall, run: RecordedRun, wanted: frozenset[str]) -> ToolCall:
    """Classes that a policy may have given are left out: the one that judges now gives its own."""
    classes = (call.tags - (run.policy_tags or frozenset())) | (call.stood & wanted)
    known = None if call.reason_code == TOOL_NOT_LISTED else classes
    made = ToolCall(call.server_name, call.tool_name, None, call.bytes_in, risk_classes=known)
    as_recorded(made, call)
    return made


def _doubtful(snapshot: dict[str, Any], trace: list[dict[str, Any]], remains: Remains) -> list[str]:
    if remains.why is None:
        return []
    asked = {record["rule_id"] for record in trace if not by_name(str(record["why"]))}
    rules = [rule for rule in snapshot["rules"] if rule["rule_id"] in asked]
    return [rule["rule_id"] for rule in rules if any(_in_doubt(args, remains) for args in _looked_at(rule))]


def by_name(why: str) -> bool:
    """Whether a rule of a trace had no say by its names or because it is off."""
    words = ("server_name", "tool_name", "risk_class", "the policy")
    return why.startswith(("disabled", "not asked")) or (why.startswith(words) and any(w in why for w in _NOT_ASKED))


def _looked_at(rule: dict[str, Any]) -> list[dict[str, Any]]:
    """Every `args` of the rule: of its match, its exception, and the alternatives of both."""
    matches = [rule["match"], rule.get("unless", {})]
    matches += [alternative for match in matches for alternative in match.get("any_of", [])]
    return [match["args"] for match in matches if "args" in match]


def _in_doubt(args: dict[str, Any], remains: Remains) -> bool:
    if remains.masked is None or "bytes" in args:
        return True
    keys = [key for field, keys in args.items() if field != "bytes" for key in keys]
    return any(key in remains.masked or _first(key) in remains.masked for key in keys)


def _first(path: str) -> str:
    found = _FIRST_SEGMENT.match(path)
    return re.sub(r"\\(.)", r"\1", found[0]) if found else path
