"""A run as a timeline: its calls where they began, and between them what else happened, the agent's own words included.

An agent that runs under `sub agent run` reports the same tool calls as the shims. Where the client gave the call an id
(`call_context`), the two are one: the agent's report is not told again.
"""

from __future__ import annotations

from typing import Any

from subluminal.cli.render.call_lines import INDENT, call_lines, wrapped
from subluminal.cli.render.columns import PIPE_CELLS, cut, pad
from subluminal.cli.render.moments import between_ms, clock, date_and_clock, duration
from subluminal.cli.render.output import paint
from subluminal.cli.tail.call_state import CallState, apply, from_event
from subluminal.ledger.read.ledger import Ledger, known
from subluminal.reports.printable import printable

Row = dict[str, Any]
Item = dict[str, Any]
_Place = tuple[str, int]

# Under `call_context`, by which agents name a single call; the rest of it names threads.
_CALL_IDS = ("claudecode/toolUseId", "callId", "itemId")
_STATUS_COLOURS = {"SUCCEEDED": "green", "RUNNING": "cyan", "CANCELLED": "yellow"}


# -- what happened ----------------------------------------------------------------------------------------------------


def timeline(ledger: Ledger, run_id: str) -> list[Item]:
    """Items in order of time: `at`, `kind` ("call" or the type of the event) and what is known."""
    builder = _Builder()
    for event in ledger.timeline(run_id):
        builder.take(event)
    return builder.items()


class _Builder:
    def __init__(self) -> None:
        self._calls: dict[str, tuple[_Place, CallState]] = {}
        self._items: list[tuple[_Place, Item]] = []
        self._latest: dict[str, str] = {}
        self._count = 0
        self._servers: dict[str, str] = {}
        self._by_tool_id: dict[str, list[Row]] = {}

    def take(self, event: Row) -> None:
        kind = event["type"]
        call = event.get("call")
        place = self._place(event)
        if kind == "breaker_trip" or not isinstance(call, dict):
            self._item(kind, event, place)
            return
        known_call = self._calls.get(call["call_id"])
        if known_call is None:
            known_call = self._calls[call["call_id"]] = (place, from_event(event))
        apply(known_call[1], event)
        if kind == "tool_call_start":
            self._servers.setdefault(event["source"]["shim_id"], call["server_name"])
            context = call.get("call_context") or {}
            for name in _CALL_IDS:
                if isinstance(context.get(name), str):
                    self._by_tool_id.setdefault(context[name], []).append(call)

    def _place(self, event: Row) -> _Place:
        """Where it stands in time. What one shim reports never moves before what it reported earlier, though the clock
        was set back in between."""
        shim_id = event["source"]["shim_id"]
        moment = self._latest[shim_id] = max(self._latest.get(shim_id, ""), str(event["ts"]))
        self._count += 1
        return moment, self._count

    def _item(self, kind: str, event: Row, place: _Place) -> None:
        names = ("run", "policy", "load", "secret", "breaker", "health", "agent", "closed_by")
        item: Item = {"at": event["ts"], "kind": kind, "shim_id": (event.get("source") or {}).get("shim_id")}
        item.update({name: event[name] for name in names if name in event})
        if kind == "breaker_trip":
            item["call_id"] = event["call"]["call_id"]
        self._items.append((place, item))

    def items(self) -> list[Item]:
        for _, item in self._items:
            if item["shim_id"] in self._servers:
                item["server_name"] = self._servers[item["shim_id"]]
            if item["kind"] == "agent_event" and (call := self._recorded(item["agent"].get("data"))) is not None:
                item["call_id"] = call["call_id"]
        calls = [
            (place, {"at": c.row["created_at"], "kind": "call", **c.row, "state": c.state})
            for place, c in self._calls.values()
        ]
        # What happened in the same millisecond stays in the order of the chain.
        return [item for _, item in sorted([*self._items, *calls], key=lambda placed: placed[0])]

    def _recorded(self, data: Any) -> Row | None:
        """The call of a shim that the agent speaks of. Ids such as `item_2` begin anew with every thread of an agent,
        so the names must agree as well, as far as the agent tells them."""
        if not isinstance(data, dict) or not isinstance(data.get("id"), str):
            return None
        names = [name for name in ("server_name", "tool_name") if isinstance(data.get(name), str)]
        for call in self._by_tool_id.get(data["id"], []):
            if all(call[name] == data[name] for name in names):
                return call
        return None


# -- for a person -----------------------------------------------------------------------------------------------------


def lines(run: Row, items: list[Item], columns: int | None) -> list[str]:
    found = [*_head(run, columns), ""]
    for item in _joined(items):
        if item["kind"] == "call":
            found += call_lines(item, columns)
        else:
            found += _other(item, columns)
    return found


def _head(run: Row, columns: int | None) -> list[str]:
    took = between_ms(run["started_at"], run["ended_at"])
    counts = (
        f"{run['calls_total']}: {run['calls_allowed']} allowed, {run['calls_blocked']} blocked,"
        f" {run['calls_throttled']} throttled, {run['errors_total']} errors"
    )
    facts = [
        ("agent", f"{known(run['agent_id'])} ({run['client']}, {run['env']}), for {known(run['principal'])}"),
        ("started", date_and_clock(run["started_at"]) + (f", took {duration(took)}" if took is not None else "")),
        ("policy", _policy_of(run)),
        ("calls", counts),
    ]
    for title, values in (("workload", run["workload"]), ("meta", run["meta"])):
        if isinstance(values, dict) and values:
            facts.append((title, ", ".join(f"{name} {value}" for name, value in values.items())))
    title = paint(f"run {printable(run['run_id'])}  ", None, bold=True)
    room = PIPE_CELLS if columns is None else columns
    return [
        title + paint(run["status"], _STATUS_COLOURS.get(run["status"], "red")),
        *(cut(f"  {pad(name, 9)} {printable(text)}", room) for name, text in facts),
    ]


def _policy_of(run: Row) -> str:
    if run["policy_id"] is None:
        return "unknown: no shim has reported the start of this run"
    return f"{run['policy_id']} {run['policy_version']} ({run['mode']})  {run['policy_hash'][:16]}"


def _joined(items: list[Item]) -> list[Item]:
    """An agent's words come in pieces: neighbouring ones are told as one."""
    found: list[Item] = []
    for item in items:
        if _is_words(item) and found and _is_words(found[-1]):
            agent = found[-1]["agent"]
            found[-1] = {**found[-1], "agent": {**agent, "text": agent["text"] + item["agent"]["text"]}}
        else:
            found.append(item)
    return found


def _is_words(item: Item) -> bool:
    return (
        item["kind"] == "agent_event" and item["agent"].get("kind") == "TextOutput" and bool(item["agent"].get("text"))
    )


def _other(item: Item, columns: int | None) -> list[str]:
    word, text, colour = _told(item)
    if not text:
        return []
    first, *more = wrapped(printable(" ".join(text.split())), None if columns is None else columns - 11)
    head = paint(f"{clock(item['at'])}  ", "bright_black") + paint(pad(word, 9), colour)
    return [f"{head}  {first}", *(f"{INDENT}           {line}" for line in more)]


def _told(item: Item) -> tuple[str, str, str | None]:
    """(word, sentence, colour); no sentence: nothing a person would miss."""
    kind = item["kind"]
    server = item.get("server_name") or item.get("shim_id") or "?"
    if kind == "run_start":
        policy = item["run"]["policy"]
        return (
            "start",
            f"{server} ({item['run']['mode']}, policy {policy['policy_id']} {policy['policy_version']})",
            "blue",
        )
    if kind == "run_end":
        closed = " (its end was recorded by ledgerd)" if item.get("closed_by") else ""
        return "end", f"{server} {item['run']['status']}{closed}", "blue"
    if kind == "policy_loaded":
        return _policy(item)
    if kind == "breaker_trip":
        breaker = item["breaker"]
        return "breaker", f"{breaker['rule_id']} tripped ({breaker['reason_code']}, scope {breaker['scope']})", "yellow"
    if kind == "secret_injection":
        secret = item["secret"]
        done = "given as" if secret["success"] else "NOT given as"
        return "secret", f"{secret['secret_ref']} {done} {secret['inject_as']}", None if secret["success"] else "red"
    if kind == "agent_event":
        return _agent(item)
    return "", "", None


def _policy(item: Item) -> tuple[str, str, str | None]:
    load, policy = item.get("load") or {}, item["policy"]
    if load.get("ok", True):
        return "policy", f"{policy['policy_id']} {policy['policy_version']} loaded", "blue"
    return "policy", f"not loaded from {load.get('origin')}: {load.get('error')}", "red"


def _agent(item: Item) -> tuple[str, str, str | None]:
    agent = item["agent"]
    kind, data = agent.get("kind"), agent.get("data")
    data = data if isinstance(data, dict) else {}
    if kind == "TextOutput":
        return "says", agent.get("text") or "", "cyan"
    if kind == "Error":
        return "agent", agent.get("message") or "error", "red"
    if kind == "ToolCall" and "call_id" not in item and data.get("phase") == "start":
        return "agent", f"uses {data.get('name') or data.get('tool_name') or 'a tool'}", "bright_black"
    if kind == "Status" and str(agent.get("message") or "").startswith("completion"):
        return "agent", str(agent["message"]), "blue"
    return "", "", None
