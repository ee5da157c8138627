"""A run as a timeline: its calls where they began, and between them what else happened, the agent's own words included.

An agent that runs under `sub agent run` reports the same tool calls as the shims. Where the client gave the call an id
(`call_context`), the two are one: the agent's report names the call. A call that several doors saw is told once.
"""

from __future__ import annotations

from typing import Any

from subluminal.contracts.tool_use import call_ids
from subluminal.ledger.fold.call import Call, Plain, begin
from subluminal.ledger.fold.joined import JoinedCall, join
from subluminal.ledger.fold.ownership import is_foreign
from subluminal.ledger.read.call_row import as_row
from subluminal.ledger.read.ledger import Ledger, Row
from subluminal.ledger.read.policy_rules import differing

Item = dict[str, Any]
_Place = tuple[str, int]
_Key = tuple[str, str, str]  # Call.key

_TOLD = (
    "run", "policy", "load", "secret", "breaker", "health", "agent", "settings", "model", "tools", "promote",
    "closed_by",
)  # fmt: skip


def timeline(ledger: Ledger, run_id: str) -> list[Item]:
    """Items in order of time: `at`, `kind` ("call" or the type of the event) and what is known."""
    builder = Builder()
    for event in ledger.timeline(run_id):
        builder.take(Plain(event))
    items = builder.items()
    _compare_policies(ledger, items)
    return items


def _compare_policies(ledger: Ledger, items: list[Item]) -> None:
    """A policy that a shim has read again has `before`, the one it had, and `rules`: which of them differ, if known."""
    had: dict[tuple[str, str], Row] = {}
    compared: dict[tuple[str, str], dict[str, list[str]] | None] = {}
    for item in items:
        if item["kind"] != "policy_loaded" or not (item.get("load") or {}).get("ok", True):
            continue
        policy = item["policy"]
        before = had.get((item["shim_id"], policy["policy_id"]))
        had[item["shim_id"], policy["policy_id"]] = policy
        if before is None:
            continue
        item["before"] = before
        hashes = before["policy_hash"], policy["policy_hash"]
        if hashes[0] != hashes[1]:
            if hashes not in compared:
                compared[hashes] = differing(ledger, *hashes)
            item["rules"] = compared[hashes]


def doors(joined: JoinedCall) -> list[Row]:
    """By which doors a call was seen, and what each of them recorded."""
    names = ("transport", "call_id", "decision", "status")
    return [{name: getattr(call, name) for name in names} for call in joined.calls]


class Builder:
    def __init__(self) -> None:
        self._calls: dict[_Key, Call] = {}
        self._places: dict[_Key, _Place] = {}
        self._items: list[tuple[_Place, Item]] = []
        self._latest: dict[str, str] = {}
        self._count = 0
        self._servers: dict[str, str] = {}
        self._by_tool_id: dict[str, list[Row]] = {}

    def take(self, event: Plain) -> None:
        kind, call = event["type"], event.get("call")
        place = self._place(event)
        if not isinstance(call, dict):
            self._item(kind, event, place)
            return
        shim_id, call_id = event["source"]["shim_id"], call["call_id"]
        if is_foreign(call_id, shim_id):
            return
        if kind == "breaker_trip":
            self._item(kind, event, place)
            return
        known = self._calls.get((event["run_id"], shim_id, call_id))
        if known is None:
            if kind == "hint_issued":
                return
            known = begin(event, Call)
            self._calls[known.key], self._places[known.key] = known, place
        known.hear(event)
        if kind == "tool_call_start":
            self._servers.setdefault(shim_id, call["server_name"])
            for name in call_ids(call.get("call_context")):
                self._by_tool_id.setdefault(name, []).append(call)

    def _place(self, event: Row) -> _Place:
        """Where it stands in time. What one shim reports never moves before what it reported earlier, though the clock
        was set back in between."""
        shim_id = event["source"]["shim_id"]
        moment = self._latest[shim_id] = max(self._latest.get(shim_id, ""), str(event["ts"]))
        self._count += 1
        return moment, self._count

    def _item(self, kind: str, event: Row, place: _Place) -> None:
        item: Item = {"at": event["ts"], "kind": kind, "shim_id": event["source"]["shim_id"]}
        item.update({name: event[name] for name in _TOLD if name in event})
        if kind == "breaker_trip":
            item["call_id"] = event["call"]["call_id"]
        self._items.append((place, item))

    def items(self) -> list[Item]:
        for _, item in self._items:
            if item["shim_id"] in self._servers:
                item["server_name"] = self._servers[item["shim_id"]]
            if item["kind"] == "agent_event" and (call := self._recorded(item["agent"].get("data"))) is not None:
                item["call_id"] = call["call_id"]
        # What happened in the same millisecond stays in the order of the chain.
        placed = sorted([*self._items, *map(self._told, self.joined())], key=lambda entry: entry[0])
        return [item for _, item in placed]

    def joined(self) -> list[JoinedCall]:
        """The doors of a call in the order of time too, whichever journal the daemon has read first."""
        return join(sorted(self._calls.values(), key=lambda call: self._places[call.key]))

    def _told(self, joined: JoinedCall) -> tuple[_Place, Item]:
        first, call = joined.calls[0], joined.standing
        item = {"at": first.created_at, "kind": "call", **as_row(call), "state": call.state, "doors": doors(joined)}
        return self._places[first.key], item

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
