"""The hint ledger: which rules refused, how often and whom, and what the agents did next (`fold.recovery`).

    rules = hint_rules(ledger, HintFilters(rule_id=["no-push"]))     most refusals first, as dicts

`sources` gives what only a client's transcript knows of calls since a time: actor and model message, by the client's id
of the call.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from subluminal.contracts.errors import CanonicalError
from subluminal.contracts.filters import HintFilters
from subluminal.contracts.moments import epoch_ms
from subluminal.contracts.vocabulary import ALLOW, PROMOTED, RUN_TERMINATED
from subluminal.ledger.fold.recovery import BY_TIME, CORRECTED, NOT_COUNTED, OUTCOMES, Made, Reaction, reactions
from subluminal.ledger.read.ledger import Ledger, Row
from subluminal.ledger.store.lines import LineReader


class Told(NamedTuple):
    """One call as a transcript has it: when, by whom, and in which message of the model."""

    at_ms: int
    actor: str
    message: str


# Ids of a client -> the calls that have it.
Messages = Mapping[str, Sequence[Told]]
Sources = Callable[[int], Messages]
MAX_EXAMPLES = 5
MAX_AGENTS = 10
MAX_HINTS = 20

_COLUMNS = (
    "c.id, c.call_id, c.server_name, c.tool_name, c.args_hash, c.decision, c.status, c.created_at, c.ended_at,"
    " c.rule_id, c.reason_code, c.summary, c.tool_use_id, c.start_event, p.shim_id"
)
# A call that another door tells of as well is told once; a further leg is part of its call.
_CALLS = (
    f"SELECT {_COLUMNS} FROM tool_calls c LEFT JOIN producers p USING (producer_no)"
    " WHERE c.run_id = ? AND c.id >= ? AND c.continues IS NULL AND c.id NOT IN (SELECT id FROM joined)"
    " ORDER BY c.created_at, c.id"
)
_REFUSED = (
    "SELECT run_id, min(id) FROM tool_calls INDEXED BY tool_calls_decision"
    " WHERE (decision <> 'ALLOW' OR status <> 'OK') AND decision <> 'ALLOW' AND id >= ? GROUP BY run_id"
)


def hint_rules(ledger: Ledger, filters: HintFilters | None = None, sources: Sources | None = None) -> list[Row]:
    """A refusal that no rule made goes by its reason code. What an operator stopped is none of theirs."""
    asked = {} if filters is None else filters.asked
    chosen = asked.get("rule_id")
    groups: dict[tuple[str | None, str], _Rule] = {}
    found = ledger.connection.execute(_REFUSED, (asked.get("since_ms", 0) << 16,)).fetchall()
    known: Messages = {} if sources is None or not found else sources(min(first for _, first in found) >> 16)
    for run_id, first in found:
        run = _Run(ledger, run_id, first, known)
        for reaction in reactions(run.made, run.row["status"]):
            refused = run.rows[reaction.refusal.key]
            key = (refused["rule_id"], refused["reason_code"] or "")
            if key[1] == RUN_TERMINATED or (chosen is not None and (key[0] or key[1]) not in chosen):
                continue
            if key not in groups:
                groups[key] = _Rule(*key)
            groups[key].add(run, reaction)
    return sorted(
        (group.as_dict() for group in groups.values()),
        key=lambda row: (-row["refused"], row["rule_id"] or "", row["reason_code"]),
    )


class _Run:
    """One run with a refusal: its calls from the first on, and the hints that were given."""

    def __init__(self, ledger: Ledger, run_id: str, first: int, known: Messages) -> None:
        sql = "SELECT run_id, run_no, agent_id, client, status FROM runs WHERE run_id = ?"
        self.row: Row = dict(ledger.connection.execute(sql, (run_id,)).fetchone())
        stored = [dict(row) for row in ledger.connection.execute(_CALLS, (run_id, first))]
        self.rows = {row["id"]: row for row in stored}
        self.hints = self._hints(ledger, first)
        self.made = [self._made(row) for row in stored]
        self._place(ledger, known)

    def _hints(self, ledger: Ledger, first: int) -> dict[int, Row]:
        sql = (
            "SELECT h.id, hint_text, hint_kind, suggested_args_json FROM tool_calls c CROSS JOIN hints h ON h.id = c.id"
            " WHERE c.run_id = ? AND c.id >= ?"
        )
        return {row["id"]: dict(row) for row in ledger.connection.execute(sql, (self.row["run_id"], first))}

    def _made(self, row: Row) -> Made:
        ended = row["ended_at"]
        call = Made(
            row["id"],
            (row["server_name"], row["tool_name"]),
            row["args_hash"],
            row["decision"],
            row["status"],
            epoch_ms(row["created_at"]),
            None if ended is None else epoch_ms(ended),
        )
        call.use_id = row["tool_use_id"]
        call.promoted = row["decision"] == ALLOW and row["reason_code"] == PROMOTED
        hint = self.hints.get(row["id"])
        if hint is not None and hint["suggested_args_json"]:
            call.suggested_hash = _hash_of(hint["suggested_args_json"])
        return call

    def _place(self, ledger: Ledger, known: Messages) -> None:
        """Whose each call is, and which message it came from."""
        lines = LineReader(ledger.connection) if self.row["client"] == "codex" else None
        for call in self.made:
            told = known.get(call.use_id or "")
            if told:
                # Several sessions may have the id: the call is the one that was told of when it was made.
                nearest = min(told, key=lambda one: (abs(one.at_ms - call.started_ms), one.actor))
                call.actor, call.message = nearest.actor, nearest.message
            elif lines is not None:
                call.actor = _thread(lines, self.row["run_no"], self.rows[call.key]["start_event"])


def _thread(lines: LineReader, run_no: int, start_event: int | None) -> str:
    """Codex names the thread, which is a sub-agent's own."""
    if start_event is None:
        return ""
    context = json.loads(lines.line(run_no, start_event))["call"].get("call_context")
    thread = context.get("threadId") if isinstance(context, dict) else None
    return thread if isinstance(thread, str) else ""


def _hash_of(suggested: str) -> str | None:
    from subluminal.contracts.canonical import args_hash

    try:
        return args_hash(suggested.encode())
    except CanonicalError:
        return None


class _Tally:
    """Refusals and what followed them."""

    def __init__(self) -> None:
        self.outcomes: Counter[str] = Counter()
        self.calls: list[int] = []
        self.as_hinted = 0

    def add(self, reaction: Reaction) -> None:
        self.outcomes[reaction.outcome] += 1
        self.as_hinted += reaction.as_hinted
        if reaction.calls is not None:
            self.calls.append(reaction.calls)

    def as_dict(self) -> Row:
        refused = self.outcomes.total()
        counted = refused - sum(self.outcomes[word] for word in NOT_COUNTED)
        corrected = self.outcomes[CORRECTED]
        return {
            "refused": refused,
            "outcomes": {word: self.outcomes[word] for word in OUTCOMES},
            "counted": counted,
            "as_hinted": self.as_hinted,
            "recovery_rate": corrected / counted if counted else None,
            "calls_to_recovery": sum(self.calls) / len(self.calls) if self.calls else None,
        }


class _Rule:
    def __init__(self, rule_id: str | None, reason_code: str) -> None:
        self.rule_id = rule_id
        self.reason_code = reason_code
        self.tally = _Tally()
        self.by_hint: dict[str, tuple[Row, _Tally]] = {}
        self.actions: Counter[str] = Counter()
        self.agents: Counter[str] = Counter()
        self.tools: Counter[str] = Counter()
        self.runs: set[str] = set()
        self.by_time = 0
        self.examples: list[Row] = []
        self.moments: list[str] = []

    def add(self, run: _Run, reaction: Reaction) -> None:
        row = run.rows[reaction.refusal.key]
        self.tally.add(reaction)
        self.actions[row["decision"]] += 1
        self.agents[run.row["agent_id"]] += 1
        self.tools[f"{row['server_name']}/{row['tool_name']}"] += 1
        self.runs.add(run.row["run_id"])
        self.by_time += reaction.by == BY_TIME
        self.moments = [min([*self.moments[:1], row["created_at"]]), max([*self.moments[1:], row["created_at"]])]
        hint = run.hints.get(row["id"])
        if hint is not None:
            self.by_hint.setdefault(hint["hint_text"], (hint, _Tally()))[1].add(reaction)
        self._example(run, row, reaction)

    def _example(self, run: _Run, row: Row, reaction: Reaction) -> None:
        """The newest, and of each outcome one as long as there is room."""
        following = None if reaction.next is None else run.rows[reaction.next.key]
        example = {
            "call_id": row["call_id"],
            "run_id": run.row["run_id"],
            "shim_id": row["shim_id"],
            "agent_id": run.row["agent_id"],
            "at": row["created_at"],
            "tool": f"{row['server_name']}/{row['tool_name']}",
            "summary": row["summary"],
            "outcome": reaction.outcome,
            "by": reaction.by,
            "calls_to_recovery": reaction.calls,
            "next_call_id": None if following is None else following["call_id"],
            "next_tool": None if following is None else f"{following['server_name']}/{following['tool_name']}",
        }
        alike = [one for one in self.examples if one["outcome"] == example["outcome"]]
        if alike and len(self.examples) >= MAX_EXAMPLES:
            self.examples.remove(min(alike, key=_newer))
        elif len(self.examples) >= MAX_EXAMPLES:
            repeated = Counter(one["outcome"] for one in self.examples)
            spare = [one for one in self.examples if repeated[one["outcome"]] > 1]
            if not spare:
                return
            self.examples.remove(min(spare, key=_newer))
        self.examples.append(example)

    def as_dict(self) -> Row:
        hints = sorted(self.by_hint.items(), key=lambda item: (-item[1][1].outcomes.total(), item[0]))
        return {
            "rule_id": self.rule_id,
            "reason_code": self.reason_code,
            **self.tally.as_dict(),
            "runs": len(self.runs),
            "by_time": self.by_time,
            "first_at": self.moments[0],
            "last_at": self.moments[1],
            "actions": dict(sorted(self.actions.items())),
            "agents": [{"agent_id": name, "refused": count} for name, count in _most(self.agents)],
            "tools": [{"tool": name, "refused": count} for name, count in _most(self.tools)],
            "hints": [
                {"hint_text": text, "hint_kind": hint["hint_kind"], **tally.as_dict()}
                for text, (hint, tally) in hints[:MAX_HINTS]
            ],
            "examples": sorted(self.examples, key=_newer, reverse=True),
        }


def _newer(example: Row) -> tuple[str, str]:
    return example["at"], example["call_id"]


def _most(counted: Counter[str]) -> list[tuple[str, int]]:
    return sorted(counted.items(), key=lambda item: (-item[1], item[0]))[:MAX_AGENTS]
