"""The tests of a suggested policy: for each tool a call that is let through, for each limit one that breaks it.

Only what the engine has confirmed is written. Free texts are replaced: a test copies nothing that a person wrote.
"""

from __future__ import annotations

import re
from typing import Any

from msgspec import json, structs

from subluminal.contracts.jsontext import quote
from subluminal.control.suggest.evidence import Call, Run, escaped
from subluminal.control.suggest.fitting import Suggestion
from subluminal.control.suggest.judging import Judge
from subluminal.control.suggest.limits.limit import Limit
from subluminal.control.suggest.tokens import HOME, WORKSPACE, is_copyable, shown_places
from subluminal.control.suggest.wording import flow

# Calls of a tool that are tried as an example; the shortest come first.
_TRIED = 40
SECRET = "a secret as"
_DIGIT, _LETTER = re.compile("[0-9]"), re.compile("[A-Za-z]")


def cases_text(suggestion: Suggestion, runs: list[Run], policy_name: str) -> str:
    judge = Judge(suggestion.snapshot)
    lines = [
        f"# What {policy_name} lets through and refuses. Relative paths: run it in the root of a repository.",
        f"policy: {flow(policy_name)}",
        "tests:",
    ]
    calls = _by_tool(runs)
    for name in suggestion.draft.tools:
        example = _example(calls.get(name, []), suggestion, judge)
        if example is not None:
            lines += _let_through(example)
            for drafted in suggestion.draft.rules:
                if drafted.about is not None and drafted.about[:2] == name and drafted.limit is not None:
                    rule_id, key = drafted.rule["rule_id"], drafted.about[2]
                    lines += _refused(example, rule_id, key, drafted.limit.unknown, judge)
                    if drafted.limit.kind == "path":
                        lines += _refused(example, "secrets-", key, [".ssh/id_rsa"], judge)
    unseen = Call("unseen-server", "unseen_tool", {}, 2, 0)
    lines += _case("what was never seen is refused", unseen, f"{{action: BLOCK, rule_id: {judge.alone(unseen)}}}")
    return "\n".join(lines) + "\n"


def _by_tool(runs: list[Run]) -> dict[tuple[str, str], list[Call]]:
    found: dict[tuple[str, str], list[Call]] = {}
    for run in runs:
        for call in run.calls:
            if call.learn:
                found.setdefault((call.server_name, call.tool_name), []).append(call)
    return found


def _example(calls: list[Call], suggestion: Suggestion, judge: Judge) -> Call | None:
    """The first call that is let through when its free texts are others, and that names no place of a person."""
    shortest = sorted(calls, key=lambda call: (call.size, json.encode(call.args, order="deterministic"), call.at_ms))
    for call in shortest[:_TRIED]:
        args = {key: _plain(value, call, escaped(key), suggestion) for key, value in call.args.items()}
        made = structs.replace(call, args=args, size=len(json.encode(args)), at_ms=0)
        if _is_copyable(args) and judge.alone(made) is None:
            return made
    return None


def _plain(value: Any, call: Call, path: str, suggestion: Suggestion) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item, call, f"{path}.{escaped(key)}", suggestion) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item, call, path + "[]", suggestion) for item in value[:3]]
    if not isinstance(value, str):
        return value
    limit = suggestion.draft.limits.get((call.server_name, call.tool_name, path))
    return _stand_in(value, limit)


def _stand_in(value: str, limit: Limit | None) -> str:
    """A value of the same kind that was not copied from a run, unless `SUPPORT` runs had it."""
    if limit is None or limit.kind == "text":
        return "7" if value.isdigit() else "text" if value else ""
    if limit.kind == "path":
        (_, entries), *_ = limit.predicates
        here = [entry for entry in entries if not entry.startswith("~")]
        return "example.txt" if here[:1] == ["."] else here[0] if here else value
    if limit.kind == "host":
        return f"https://{limit.examples[0].removeprefix('*.')}/"
    if limit.kind in ("programs", "lines") and limit.examples:
        return limit.examples[0]
    if limit.kind == "email":
        return "someone@" + value.rpartition("@")[2]
    if limit.kind == "sql":
        return value.split(None, 1)[0] + " 1"
    if limit.kind == "heads":
        head = next((head for head in limit.heads if value.startswith(head)), "")
        return head + _LETTER.sub("a", _DIGIT.sub("7", value[len(head) :]))
    return value


def _is_copyable(value: Any) -> bool:
    if isinstance(value, dict):
        return all(key.isprintable() and _is_copyable(item) for key, item in value.items())
    if isinstance(value, list):
        return all(map(_is_copyable, value))
    return not isinstance(value, str) or (is_copyable(value) and HOME not in value and not value.startswith("~"))


def _let_through(call: Call) -> list[str]:
    return _case(f"{call.tool_name} on {call.server_name}, as it was used", call, "ALLOW")


def _refused(example: Call, rule_id: str, key: str, unknown: list[str], judge: Judge) -> list[str]:
    if not unknown or "." in key.replace("\\.", "") or "\\" in key:
        return []
    value: Any = [unknown[0]] if key.endswith("[]") else unknown[0]
    args = {**example.args, key.removesuffix("[]"): value}
    made = structs.replace(example, args=args, size=len(json.encode(args)))
    by = judge.alone(made)
    if by is None or not (by == rule_id or (rule_id.endswith("-") and by.startswith(rule_id))):
        return []
    name = (
        f"{example.tool_name} on {example.server_name} with {SECRET if by.startswith('secrets-') else 'another'} {key}"
    )
    return _case(name, made, f"{{action: BLOCK, rule_id: {by}}}")


def _case(name: str, call: Call, expect: str) -> list[str]:
    said = flow({"server_name": call.server_name, "tool_name": call.tool_name, "args": _shown(call.args)})
    return [f"  - name: {quote(name)}", f"    calls: [{said[:-1]}, expect: {expect}}}]"]


def _shown(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _shown(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_shown(item) for item in value]
    return shown_places(value) if isinstance(value, str) and WORKSPACE in value else value
