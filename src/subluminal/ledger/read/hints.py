"""The hint ledger: which rules refused, how often and whom, and what the agents did next (`fold.recovery`).

rules = hint_rules(ledger, HintFilters(rule_id=["no-push"]))     most refusals first, as dicts
"""

from __future__ import annotations

import sqlite3
from collections import Counter

from subluminal.contracts.filters import HintFilters
from subluminal.ledger.fold.recovery import BY_TIME, Reaction
from subluminal.ledger.read.ledger import Ledger, Row
from subluminal.ledger.read.refused import RefusedRun, Sources, Tally, Transcripts, first_refusal, lowest_number

MAX_EXAMPLES = 5
MAX_AGENTS = 10
MAX_HINTS = 20

_REFUSED = (
    "SELECT run_id, min(id) FROM tool_calls INDEXED BY tool_calls_decision"
    " WHERE (decision <> 'ALLOW' OR status <> 'OK') AND decision <> 'ALLOW' AND id >= ? GROUP BY run_id"
)


def hint_rules(ledger: Ledger, filters: HintFilters | None = None, sources: Sources | None = None) -> list[Row]:
    """A refusal that no rule made goes by its reason code."""
    asked = {} if filters is None else filters.asked
    chosen = asked.get("rule_id")
    groups: dict[tuple[str | None, str], _Rule] = {}
    found = _refused(ledger, asked.get("run_id"), asked.get("since_ms", 0))
    transcripts = Transcripts(sources, min(found.values(), default=0))
    for run_id, first in found.items():
        run = RefusedRun(ledger, run_id, first, transcripts)
        for reaction in run.reactions():
            refused = run.rows[reaction.refusal.key]
            key = (refused["rule_id"], refused["reason_code"] or "")
            if chosen is not None and (key[0] or key[1]) not in chosen:
                continue
            if key not in groups:
                groups[key] = _Rule(*key)
            groups[key].add(run, reaction)
    return sorted(
        (group.as_dict() for group in groups.values()),
        key=lambda row: (-row["refused"], row["rule_id"] or "", row["reason_code"]),
    )


def _refused(ledger: Ledger, run_ids: list[str] | None, since_ms: int) -> dict[str, int]:
    """The runs with a refusal since then, and the number of the first."""
    if run_ids is None:
        return dict(ledger.connection.execute(_REFUSED, (lowest_number(since_ms),)).fetchall())
    firsts = {run_id: first_refusal(ledger, run_id, since_ms) for run_id in run_ids}
    return {run_id: first for run_id, first in firsts.items() if first is not None}


class _Rule:
    def __init__(self, rule_id: str | None, reason_code: str) -> None:
        self.rule_id = rule_id
        self.reason_code = reason_code
        self.tally = Tally()
        self.by_hint: dict[str, tuple[sqlite3.Row, Tally]] = {}
        self.actions: Counter[str] = Counter()
        self.agents: Counter[str] = Counter()
        self.tools: Counter[str] = Counter()
        self.runs: set[str] = set()
        self.by_time = 0
        self.examples: list[Row] = []
        self.moments: list[str] = []

    def add(self, run: RefusedRun, reaction: Reaction) -> None:
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
            self.by_hint.setdefault(hint["hint_text"], (hint, Tally()))[1].add(reaction)
        self._example(run, row, reaction)

    def _example(self, run: RefusedRun, row: sqlite3.Row, reaction: Reaction) -> None:
        """The newest, and of each outcome one as long as there is room."""
        following = None if reaction.next is None else run.rows[reaction.next.key]
        example = {
            "call_id": row["call_id"],
            "run_id": run.row["run_id"],
            "shim_id": run.shim_ids.get(row["producer_no"]),
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
