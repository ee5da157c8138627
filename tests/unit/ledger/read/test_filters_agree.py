"""Whoever is asked, a filter selects the same calls: the query engine, what follows the ledger, and a plain loop."""

from __future__ import annotations

import json
import sqlite3
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from harness.ledger import BASE_MS, EventMaker
from subluminal.contracts.filters import Filters
from subluminal.contracts.globs import glob_tokens
from subluminal.contracts.vocabulary import ACTIONS, CLIENTS, ENVS, ERROR_CLASSES, SEVERITIES, STATUSES
from subluminal.ledger.daemon.live import Follower, follow_request
from subluminal.ledger.read import plan
from subluminal.ledger.read.ledger import Ledger
from subluminal.ledger.read.wanted import Wanted
from subluminal.ledger.store.writer import Store

HARD = "gG_p[]!^-*?\\/éÉ\0😀 "
names = st.sampled_from(["git_push", "git_status", "Git", "a[b]", "[", "*", "\\", "e\u0301"]) | st.text(
    HARD, max_size=6
)
calls = st.fixed_dictionaries(
    {
        "server": names,
        "tool": names,
        "preview": names,
        "action": st.sampled_from([None, *ACTIONS]),
        "would": st.sampled_from([None, "BLOCK", "THROTTLE"]),
        "rule_id": st.sampled_from([None, "deny", "Deny"]),
        "reason_code": st.sampled_from(["DEFAULT_ALLOW", "X"]),
        "severity": st.sampled_from(SEVERITIES),
        "status": st.sampled_from([None, *STATUSES]),
        "error_class": st.sampled_from([None, *ERROR_CLASSES]),
        "message": names,
        "latency_ms": st.integers(0, 4),
    }
)
runs = st.fixed_dictionaries(
    {
        "agent_id": st.sampled_from(["a", "b"]),
        "client": st.sampled_from(CLIENTS),
        "env": st.sampled_from(ENVS),
        "principal": st.sampled_from([None, "ann"]),
        "calls": st.lists(calls, min_size=2, max_size=5),
    }
)


class Maker(EventMaker):
    """Calls of every kind, by an agent of any identity."""

    def __init__(self, number: int, identity: dict[str, Any]) -> None:
        super().__init__(f"run-{number}", f"shim-{number}", identity=False)
        self._identity = {name: value for name, value in identity.items() if value is not None and name != "calls"}

    def event(self, kind: str, **members: Any) -> bytes:
        return super().event(kind, **self._identity, **members)

    def one(self, call: dict[str, Any]) -> list[bytes]:
        lines = [self.start(call["tool"], call["server"], preview=call["preview"])]
        if call["action"]:
            explain = {"summary": call["message"], "reason_code": call["reason_code"]}
            said = {"rule_id": call["rule_id"], "severity": call["severity"], "explain": explain}
            would = {**said, "action": call["would"]}
            lines.append(self.decision(call["action"], **said, **({"would": would} if call["would"] else {})))
        if call["status"]:
            error = {"class": call["error_class"], "message": call["message"]} if call["error_class"] else None
            members = {"error": error} if error else {}
            line = json.loads(self.end(call["status"], preview=call["message"], **members))
            lines.append(json.dumps({**line, "latency_ms": call["latency_ms"]}).encode())
        return lines


def wildcards(name: str) -> st.SearchStrategy[str]:
    """A pattern that is near this name: some of its characters are wildcards."""

    def one(char: str) -> st.SearchStrategy[str]:
        return st.sampled_from([char, char, char, "?", "*", f"[{char}]", f"[!{char}]", f"[^{char}]", "[!p]", "[a-z]"])

    return st.tuples(*map(one, name)).map("".join)


patterns = (names | names.flatmap(wildcards)).filter(lambda glob: "-" not in glob or "[a-z]" in glob)


def some(values: Any) -> st.SearchStrategy[list[Any]]:
    return st.lists(values, min_size=1, max_size=2)


VALUES: dict[str, st.SearchStrategy[Any]] = {
    "run_id": some(st.sampled_from(["run-0", "run-1", "none"])),
    "agent_id": some(st.sampled_from(["a", "c"])),
    "client": some(st.sampled_from(CLIENTS)),
    "env": some(st.sampled_from(ENVS)),
    "principal": some(st.just("ann")),
    "server_name": some(patterns),
    "tool_name": some(patterns),
    "decision": some(st.sampled_from(ACTIONS)),
    "would_action": some(st.sampled_from(ACTIONS[1:])),
    "status": some(st.sampled_from([*STATUSES, "PENDING"])),
    "rule_id": some(st.just("deny")),
    "reason_code": some(st.just("X")),
    "severity": some(st.sampled_from(SEVERITIES)),
    "error_class": some(st.sampled_from(ERROR_CLASSES)),
    "args_hash": some(st.integers(1, 3).map("{:064x}".format)),
    "min_latency_ms": st.integers(0, 4),
    "text": st.sampled_from([*"éÉgG\0[\\*", ""]) | names,
    "since_ms": st.integers(BASE_MS - 2, BASE_MS + 12),
    "until_ms": st.integers(BASE_MS - 2, BASE_MS + 12),
}
# Few at a time, or nothing is ever found.
asked = st.lists(st.sampled_from(sorted(VALUES)), min_size=1, max_size=2, unique=True).flatmap(
    lambda chosen: st.fixed_dictionaries({name: VALUES[name] for name in chosen})
)


def plainly(conditions: dict[str, Any], call: dict[str, Any], run: dict[str, Any]) -> bool:
    """What the documentation says, one condition after the other."""
    facts = {**run, **call}
    return all(_holds(name, value, facts) for name, value in conditions.items())


def _holds(name: str, value: Any, facts: dict[str, Any]) -> bool:
    if name in ("server_name", "tool_name"):
        return any(_matches(glob_tokens(glob), facts[name]) for glob in value)
    if name == "status":
        let_through = facts["decision"] in (None, "ALLOW")
        return "PENDING" in value if facts["status"] is None else facts["status"] in value and let_through
    if name == "min_latency_ms":
        return facts["latency_ms"] is not None and facts["latency_ms"] >= value
    if name in ("since_ms", "until_ms"):
        seconds, millis = facts["created_at"].rstrip("Z").split(".")
        ms = BASE_MS // 1000 * 1000 + (int(seconds[-2:]) - 20) * 1000 + int(millis)
        return bool(ms >= value) if name == "since_ms" else bool(ms < value)
    if name == "text":
        columns = ("tool_name", "server_name", "summary", "error_message", "rule_id", "call_id")
        found = [facts[column] for column in columns] + [facts["args_preview"], facts["result_preview"]]
        escaped = json.dumps(value)[1:-1]
        return any(
            _lower(text) in _lower(there)
            for place, there in enumerate(found)
            if there is not None
            for text in ([value, escaped] if place > 5 else [value])
        )
    return facts[name] in value


def _lower(text: str) -> str:
    return "".join(char.lower() if char.isascii() else char for char in text)


def _matches(tokens: list[str], name: str) -> bool:
    if not tokens:
        return not name
    if tokens[0] == "*":
        return any(_matches(tokens[1:], name[i:]) for i in range(len(name) + 1))
    if not name:
        return False
    body = tokens[0][1:-1].removeprefix("!")
    within = any("a" <= name[0] <= "z" for _ in range("a-z" in body)) or name[0] in body.replace("a-z", "")
    taken = within != tokens[0].startswith("[!") if len(tokens[0]) > 1 else tokens[0] in ("?", name[0])
    return taken and _matches(tokens[1:], name[1:])


def followed(ledger: Ledger, conditions: dict[str, Any]) -> set[str]:
    """Calls whose last event a follower of the live stream gets."""
    follower = Follower(follow_request({"control": "follow", "after": 0, **conditions}), 0)
    got, last = set(), {}
    for _, event in ledger.arrivals(0, limit=10_000):
        if "call" in event:
            last[event["call"]["call_id"]] = event["source"]["shim_id"], event["source"]["seq"]
    lines, more = follower.next_lines(ledger.connection)
    assert not more
    for event in map(json.loads, lines):
        got.add((event["source"]["shim_id"], event["source"]["seq"]))
    return {call_id for call_id, place in last.items() if place in got}


@settings(max_examples=100, deadline=None)
@given(st.lists(runs, min_size=1, max_size=2), st.lists(asked, min_size=6, max_size=12))
def test_a_filter_selects_the_same_calls_wherever_it_is_asked(
    recorded: list[dict[str, Any]], questions: list[dict[str, Any]]
) -> None:
    store = Store("")  # a temporary database of SQLite's own
    lines = []
    for number, run in enumerate(recorded):
        maker = Maker(number, run)
        lines += [maker.run_start()] + [line for call in run["calls"] for line in maker.one(call)]
    store.write(lambda: [store.add(line) for line in lines])
    store.connection.row_factory = sqlite3.Row
    limit = plan._MAX_BRANCHES
    with Ledger(store.connection) as ledger:
        whole = [ledger.call(call["call_id"], call["run_id"]) for call in ledger.calls(limit=1000).rows]
        for conditions in questions:
            expected = agree(ledger, whole, conditions)
            try:
                plan._MAX_BRANCHES = 0  # as if there were too many tools for a branch each
                assert ledger.count(Filters(**conditions)) == len(expected)
            finally:
                plan._MAX_BRANCHES = limit


def agree(ledger: Ledger, whole: list[dict[str, Any]], conditions: dict[str, Any]) -> set[str]:
    filters = Filters(**conditions)
    runs = {run["run_id"]: run for run in ledger.runs().rows}
    expected = {call["call_id"] for call in whole if plainly(conditions, call, runs[call["run_id"]])}
    assert {call["call_id"] for call in ledger.calls(filters, limit=1000).rows} == expected
    assert ledger.count(filters) == len(expected)
    for by in ("tool_name", "reason_code"):
        assert sum(group["calls"] for group in ledger.group(filters, by=[by])) == len(expected)
    wanted = Wanted(filters)
    of_runs = {run_id for run_id in runs if wanted.run(ledger.connection, run_id)}
    assert {call["call_id"] for call in whole if call["run_id"] in of_runs and wanted.call(call)} == expected
    assert followed(ledger, conditions) == expected
    return expected
