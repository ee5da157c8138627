"""A run's timeline (`ledger.read.timeline`) drawn for a person. What was recorded is not told again as the agent's."""

from __future__ import annotations

from typing import Any

from subluminal.cli.render.call_lines import INDENT, call_lines, wrapped
from subluminal.cli.render.columns import PIPE_CELLS, cut, pad
from subluminal.cli.render.moments import between_ms, clock, date_and_clock, duration
from subluminal.cli.render.output import paint
from subluminal.cli.render.settings import changes_told, promote_told, settings_told
from subluminal.contracts.short_ids import short
from subluminal.contracts.vocabulary import POLICY_INVALID
from subluminal.ledger.read.ledger import Row, known
from subluminal.reports.printable import printable
from subluminal.reports.usage import usage_told

Item = dict[str, Any]

_STATUS_COLOURS = {"SUCCEEDED": "green", "RUNNING": "cyan", "CANCELLED": "yellow"}
_MAX_NAMES = 3


def lines(run: Row, items: list[Item], columns: int | None) -> list[str]:
    refused = any(item["kind"] == "call" and item["reason_code"] == POLICY_INVALID for item in items)
    found = [*_head(run, columns, not_loaded=refused), ""]
    for item, again in _grouped(_joined(items)):
        if item["kind"] == "policy_loaded":
            found += _other(item, columns, _policy(item))
        elif item["kind"] == "call":
            found += call_lines(item, columns)
            if again:
                times = f"{len(again) + 1} times, the last at {clock(again[-1]['at'])}"
                found.append(INDENT + printable(f"{times} ({short(again[-1]['call_id'])})"))
            if len(item["doors"]) > 1:
                found.append(INDENT + printable("seen by " + ", ".join(map(door, item["doors"]))))
        else:
            found += _other(item, columns)
    return found


def door(seen: Row) -> str:
    """One door through which a call went, and what it decided."""
    return f"{seen['transport'] or 'unknown'} ({seen['decision'] or 'no decision known'})"


def _head(run: Row, columns: int | None, *, not_loaded: bool) -> list[str]:
    took = between_ms(run["started_at"], run["ended_at"])
    counts = (
        f"{run['calls_total']}: {run['calls_allowed']} allowed, {run['calls_blocked']} blocked,"
        f" {run['calls_throttled']} throttled, {run['errors_total']} errors"
    )
    facts = [
        ("agent", f"{known(run['agent_id'])} ({run['client']}, {run['env']}), for {known(run['principal'])}"),
        ("started", date_and_clock(run["started_at"]) + (f", took {duration(took)}" if took is not None else "")),
        ("policy", "not loaded: every call was refused until it was" if not_loaded else _policy_of(run)),
        ("calls", counts),
    ]
    if run["usage"] is not None:
        facts.append(("model", usage_told(run["usage"])))
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


def _grouped(items: list[Item]) -> list[tuple[Item, list[Item]]]:
    """Refusals that are alike and follow on each other are told once, with those that came again."""
    found: list[tuple[Item, list[Item]]] = []
    for item in items:
        if found and _alike(found[-1][0], item):
            found[-1][1].append(item)
        else:
            found.append((item, []))
    return found


_SAME = ("server_name", "tool_name", "args_preview", "decision", "rule_id", "reason_code", "summary")


def _alike(one: Item, other: Item) -> bool:
    if one["kind"] != "call" or other["kind"] != "call" or one["decision"] in (None, "ALLOW"):
        return False
    return len(one["doors"]) == len(other["doors"]) == 1 and all(one[name] == other[name] for name in _SAME)


def _is_words(item: Item) -> bool:
    agent = item["agent"] if item["kind"] == "agent_event" else {}
    return agent.get("kind") == "TextOutput" and bool(agent.get("text"))


def _other(item: Item, columns: int | None, told: tuple[str, str, str | None] | None = None) -> list[str]:
    word, text, colour = told or _told(item)
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
        text = f"{server} ({item['run']['mode']}, policy {policy['policy_id']} {policy['policy_version']})"
        return "start", text, "blue"
    if kind == "run_end":
        closed = " (its end was recorded by ledgerd)" if item.get("closed_by") else ""
        return "end", f"{server} {item['run']['status']}{closed}", "blue"
    if kind == "breaker_trip":
        breaker = item["breaker"]
        return "breaker", f"{breaker['rule_id']} tripped ({breaker['reason_code']}, scope {breaker['scope']})", "yellow"
    if kind == "secret_injection":
        secret = item["secret"]
        done = "given as" if secret["success"] else "NOT given as"
        return "secret", f"{secret['secret_ref']} {done} {secret['inject_as']}", None if secret["success"] else "red"
    if kind == "tools_seen":
        told = changes_told(item["tools"])
        return ("tools", told, "red") if told else ("", "", None)
    if kind == "promote":
        return "promote", promote_told(item["promote"]), "yellow"
    if kind == "settings_change":
        return "settings", settings_told(item["settings"]), "red"
    if kind == "agent_event":
        return _agent(item)
    return "", "", None


def _policy(item: Item) -> tuple[str, str, str | None]:
    """What is new against the policy that the shim had before."""
    load, policy, before = item.get("load") or {}, item["policy"], item.get("before")
    server = item.get("server_name") or item["shim_id"]
    if not load.get("ok", True):
        return "policy", f"{server}: not loaded from {load.get('origin')}: {load.get('error')}", "red"
    name = policy["policy_id"]
    if before is None:
        return "policy", f"{server}: {name} {policy['policy_version']} loaded", "blue"
    if before["policy_hash"] == policy["policy_hash"]:
        return "policy", f"{server}: {name} read again, unchanged", "bright_black"
    versions = f"{before['policy_version']} to {policy['policy_version']}"
    if before["policy_version"] == policy["policy_version"]:
        versions = f"{policy['policy_version']}, changed"
    return "policy", f"{server}: {name} {versions} ({_rules_told(item)})", "blue"


def _rules_told(item: Item) -> str:
    rules = item.get("rules")
    if rules is None:  # not known any more, or never here
        return f"{item['before']['policy_hash'][:8]} to {item['policy']['policy_hash'][:8]}"
    told = [f"{word} {_names(rules[word])}" for word in ("added", "removed", "changed") if rules[word]]
    return "; ".join(told) or "its rules are the same"


def _names(names: list[str]) -> str:
    more = f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
    return ", ".join(names[:_MAX_NAMES]) + more


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
    if kind == "Status" and data.get("order") == "kill":
        return "killed", f"by the operator: {agent.get('message')}", "bright_red"
    if kind == "Status" and str(agent.get("message") or "").startswith("completion"):
        return "agent", str(agent["message"]), "blue"
    return "", "", None
