"""Learn on older runs, widen where newer ones ask, prove on the newest.

    oldest 60 %   learned                  what it is tried with: 20 %, in between
    oldest 80 %   learned again, as wide as the trial asked for        newest 20 %   the proof: never learned from

Widening stops at the target, and where nothing has a wider form: then the target is not reachable, which is said. What
is suggested in the end is learned from all runs at the widths that were proven.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from msgspec import Struct, field, json

from subluminal.control.suggest import SUPPORT
from subluminal.control.suggest.amounts import DEDUPE_MS
from subluminal.control.suggest.draft import Draft
from subluminal.control.suggest.drafting import draft
from subluminal.control.suggest.evidence import Call, Evidence, Run
from subluminal.control.suggest.judging import Judge
from subluminal.control.suggest.near_miss import near_misses
from subluminal.control.suggest.rule_parts import About
from subluminal.control.suggest.tool_rules import Levels
from subluminal.policy.compile.bundle import snapshot_of
from subluminal.policy.lint.load import checked_bundle

LEARN, TRY = 0.6, 0.8
# Fewer runs than these leave nothing to prove on: then all are learned from, and no figure is given.
MIN_PROVEN = 10
MAX_WIDENINGS = 40
# Newer runs bring more that is new: the trial has to stay below the target.
MARGIN = 0.75
DEFAULT_TARGET = 0.02

Progress = Callable[[str], None]


class Proof(Struct, eq=False):
    """On the newest runs. Shares are None where there was nothing to count."""

    runs: int = 0
    calls: int = 0
    refused: int = 0
    near: int = 0
    near_admitted: int = 0
    by_rule: dict[str, int] = field(default_factory=dict)
    admitted_by_change: dict[str, int] = field(default_factory=dict)

    @property
    def refusals(self) -> float | None:
        return self.refused / self.calls if self.calls else None

    @property
    def near_miss_admission(self) -> float | None:
        return self.near_admitted / self.near if self.near else None


class Suggestion(Struct, eq=False):
    draft: Draft
    snapshot: dict[str, Any]
    proof: Proof | None
    target: float
    levels: Levels
    runs: int
    calls: int
    first_ms: int
    last_ms: int

    @property
    def reached(self) -> bool | None:
        """None: not proven."""
        share = self.proof.refusals if self.proof else None
        return None if share is None else share <= self.target


def suggest(runs: list[Run], target: float = DEFAULT_TARGET, progress: Progress | None = None) -> Suggestion:
    """`runs` in the order of time."""
    tell = progress or (lambda _: None)
    levels: Levels = {}
    proof = None
    if len(runs) >= MIN_PROVEN:
        first, second = int(len(runs) * LEARN), int(len(runs) * TRY)
        tell(f"learning from {first} runs")
        levels = _widened(runs[:first], runs[first:second], target, tell)
        tell(f"proving on {len(runs) - second} runs")
        proof = prove(learned(runs[:second], levels)[2], runs[second:])
    tell(f"writing rules from {len(runs)} runs")
    made, snapshot, _ = learned(runs, levels)
    times = [call.at_ms for run in runs for call in run.calls if call.at_ms] or [0]
    calls = sum(len(run.calls) for run in runs)
    return Suggestion(made, snapshot, proof, target, levels, len(runs), calls, min(times), max(times))


def learned(runs: list[Run], levels: Levels) -> tuple[Draft, dict[str, Any], Judge]:
    made = draft(Evidence(runs), levels, _duplicates(runs))
    bundle = made.bundle("Suggested from what agents did; read it before it is in force.")
    snapshot = snapshot_of(checked_bundle(json.encode(bundle), "suggested.json"))
    return made, snapshot, Judge(snapshot)


def _widened(older: list[Run], newer: list[Run], target: float, tell: Progress) -> Levels:
    """How wide each argument has to be. Never narrower than it was when it was tried: more runs may make a set of what
    was a shape, and nobody has seen what that refuses."""
    levels: Levels = {}
    evidence, duplicates = Evidence(older), _duplicates(older)
    pending = [(number, call) for number, run in enumerate(newer) for call in run.calls if call.learn]
    most = MARGIN * target * len(pending)
    for _ in range(MAX_WIDENINGS):
        made = draft(evidence, levels, duplicates)
        bundle = made.bundle("a trial")
        judge = Judge(snapshot_of(checked_bundle(json.encode(bundle), "suggested.json")))
        refused = [(number, call, rule_id) for number, call in pending if (rule_id := judge.alone(call)) is not None]
        key = _asking_most(refused, made) if len(refused) > most else None
        if key is None:
            break
        pending = [(number, call) for number, call, _ in refused]  # a wider policy refuses nothing more
        levels[key] = max(levels.get(key, 0), made.limits[key].form) + 1
        tell(f"widening {key[0]}/{key[1]} {key[2]}")
    return {key: level for key, limit in made.limits.items() if (level := max(levels.get(key, 0), limit.form))}


def _asking_most(refused: list[tuple[int, Call, str]], made: Draft) -> About | None:
    """The argument that refused most, of those that enough runs asked for and that can be wider."""
    about = {drafted.rule["rule_id"]: drafted for drafted in made.rules}
    askers: dict[About, set[int]] = {}
    calls: dict[About, int] = {}
    for number, _, rule_id in refused:
        drafted = about.get(rule_id)
        if drafted is not None and drafted.about is not None and not (drafted.limit and drafted.limit.widest):
            askers.setdefault(drafted.about, set()).add(number)
            calls[drafted.about] = calls.get(drafted.about, 0) + 1
    wanted = [(calls[key], key) for key, runs in askers.items() if len(runs) >= SUPPORT]
    return max(wanted)[1] if wanted else None


def prove(judge: Judge, runs: Iterable[Run]) -> Proof:
    proof = Proof()
    let_through: list[Call] = []
    for run in runs:
        proof.runs += 1
        known = Run(run.run_id, run.origin, run.started_ms, [call for call in run.calls if call.learn])
        proof.calls += len(known.calls)
        refused = judge.refusals(known)
        for _, rule_id in refused:
            proof.by_rule[rule_id or "-"] = proof.by_rule.get(rule_id or "-", 0) + 1
        proof.refused += len(refused)
        out = {id(call) for call, _ in refused}
        let_through += [call for call in known.calls if id(call) not in out]
    for near, change in near_misses(let_through):
        proof.near += 1
        if judge.alone(near) is None:
            proof.near_admitted += 1
            proof.admitted_by_change[change] = proof.admitted_by_change.get(change, 0) + 1
    return proof


def _duplicates(runs: list[Run]) -> dict[tuple[str, str], int]:
    """Of each tool, in how many runs one call came twice within the window of dedupe."""
    found: dict[tuple[str, str], int] = {}
    for run in runs:
        last: dict[tuple[str, str, bytes], int] = {}
        twice: set[tuple[str, str]] = set()
        for call in run.calls:
            name = call.server_name, call.tool_name
            if name in twice:
                continue
            key = (*name, json.encode(call.args, order="deterministic"))
            if key in last and call.at_ms - last[key] <= DEDUPE_MS:
                twice.add(name)
            last[key] = call.at_ms
        for name in twice:
            found[name] = found.get(name, 0) + 1
    return found
