"""Policies for the page: what is in force in a directory, with its comments and what each rule has done; and what
changed between two versions."""

from __future__ import annotations

import difflib
import json
import os
from typing import Any

from subluminal.contracts.errors import LedgerError, SubluminalError
from subluminal.contracts.identity import Identity
from subluminal.host.home import ledger_db, snapshot_dir
from subluminal.ledger.read.deeds import deeds, policy_versions
from subluminal.ledger.read.ledger import Ledger, open_ledger
from subluminal.ledger.read.policies import read_snapshot, stored_text
from subluminal.ledger.store.policies import find_snapshot
from subluminal.policy.compile.snapshot import read_source
from subluminal.policy.diff.snapshots import diff_snapshots
from subluminal.policy.document.tree import Mapping, Scalar, Sequence, decode_text, parse_document
from subluminal.policy.in_force import InForce, policies_in_force

# Of a difference that nobody would read to its end.
MAX_LINES = 2_000
_CHANGE = ("severity", "direction", "change", "rule_id", "summary")
_FINDING = ("level", "code", "message", "fix", "line")


def policies(home: str, directory: str, who: dict[str, str]) -> dict[str, Any]:
    """As a run that nobody named a policy for finds them: what a terminal's environment says is not known here."""
    identity = Identity("page", who.get("agent_id", "unknown"), who.get("client", "unknown"), who.get("env", "unknown"))
    environ = {"SUB_HOME": home, "HOME": os.path.expanduser("~")}
    found = policies_in_force(environ, directory, identity)
    with open_ledger(ledger_db(home)) as ledger:
        told = [{"order": order, **_told(ledger, one)} for order, one in enumerate(found, 1)]
        return {"directory": directory, "policies": told, "versions": policy_versions(ledger)}


def _told(ledger: Ledger, one: InForce) -> dict[str, Any]:
    facts = one.as_dict()
    findings = [{name: finding.get(name) or "" for name in _FINDING} for finding in facts.pop("findings")]
    parts = _parts(one)
    rule_ids = [part["rule_id"] for part in parts if part["rule_id"] is not None]
    done = deeds(ledger, rule_ids, observed=facts["mode"] == "observe")
    for part in parts:
        part["deeds"] = done.get(part["rule_id"])
    return {**facts, "findings": [{**each, "line": each["line"] or 0} for each in findings], "parts": parts}


def _parts(one: InForce) -> list[dict[str, Any]]:
    """The text of the file: what stands before its rules, then each rule with the comments above it."""
    if one.source.path is None:
        return []
    try:
        source = read_source(one.source.path)
        text = decode_text(source)
    except SubluminalError:
        return []
    try:
        starts = _rule_lines(source, one.source.path)
    except SubluminalError:
        starts = []
    lines = text.splitlines()
    bounds = [(_with_comments(lines, line), rule_id) for rule_id, line in starts]
    begins: list[tuple[int, str | None]] = [(0, None), *bounds]
    ends = [start for start, _ in bounds] + [len(lines)]
    parts = [_part(rule_id, lines, start, end) for (start, rule_id), end in zip(begins, ends, strict=True)]
    return [part for part in parts if part["text"].strip()]


def _part(rule_id: str | None, lines: list[str], start: int, end: int) -> dict[str, Any]:
    return {"rule_id": rule_id, "line": start + 1, "text": "\n".join(lines[start:end]), "deeds": None}


def _rule_lines(source: bytes, path: str) -> list[tuple[str, int]]:
    """Rules that stand one below the other. Where several share a line, there is nothing to divide."""
    document = parse_document(source, path)
    rules = document.get("rules") if isinstance(document, Mapping) else None
    found: list[tuple[str, int]] = []
    for rule in rules.items if isinstance(rules, Sequence) else []:
        rule_id = rule.get("rule_id") if isinstance(rule, Mapping) else None
        if isinstance(rule_id, Scalar) and isinstance(rule_id.value, str):
            found.append((rule_id.value, rule.line))
    return found if len({line for _, line in found}) == len(found) else []


def _with_comments(lines: list[str], line: int) -> int:
    """Where a rule begins (from 0): a comment right above it is about it."""
    start = line - 1
    while start > 0 and lines[start - 1].lstrip().startswith("#"):
        start -= 1
    return start


def policy_diff(home: str, old_hash: str, new_hash: str) -> dict[str, Any]:
    with open_ledger(ledger_db(home)) as ledger:
        old, new = (_snapshot(home, ledger, policy_hash) for policy_hash in (old_hash, new_hash))
    changes = [change.as_dict() for change in diff_snapshots(old, new)]
    return {
        "old": _named(old),
        "new": _named(new),
        "changes": [{name: change[name] for name in _CHANGE} for change in changes],
        "lines": _lines(old, new),
    }


def _snapshot(home: str, ledger: Ledger, policy_hash: str) -> dict[str, Any]:
    text = stored_text(ledger, policy_hash) or find_snapshot(snapshot_dir(home), policy_hash)
    if text is not None:
        return read_snapshot(text, policy_hash)
    sentence = f"The text of policy version {policy_hash[:12]!r} is not here."
    raise LedgerError(sentence, hint="The ledger keeps those that were in force while it listened.")


def _named(snapshot: dict[str, Any]) -> dict[str, str]:
    names = {"policy_id": "policy_id", "policy_version": "version", "policy_hash": "policy_hash"}
    return {name: str(snapshot.get(key, "")) for name, key in names.items()}


def _lines(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    before, after = (json.dumps(one, indent=2, ensure_ascii=False).split("\n") for one in (old, new))
    found = list(difflib.unified_diff(before, after, lineterm="", n=3))[2:]
    return found if len(found) <= MAX_LINES else [*found[:MAX_LINES], f"... {len(found) - MAX_LINES} more lines"]
