"""A bundle to the snapshot that shims obey (§2.6): defaults stated, all spelled out, globs in normal form, hashed.

`policy_hash` is the SHA-256 of the snapshot's canonical bytes without itself, so formatting, comments, key order and
spelled-out defaults do not change it; rule order and every value do.
"""

from __future__ import annotations

from typing import Any

from subluminal.contracts.canonical import canonical_bytes
from subluminal.contracts.digest import sha256_hex_once
from subluminal.contracts.policy import SNAPSHOT_FORMAT
from subluminal.contracts.vocabulary import MAX_LEGS
from subluminal.policy.lint.cover import normal_match
from subluminal.policy.lint.load import checked_bundle


def compile_bundle(source: bytes, filename: str) -> dict[str, Any]:
    """The snapshot; raises InvalidPolicy (a PolicyError) with all findings."""
    return snapshot_of(checked_bundle(source, filename))


def snapshot_of(bundle: dict[str, Any]) -> dict[str, Any]:
    """The snapshot of a bundle that `load` has checked."""
    # What says nothing is not stated, so that spelling it out does not change the hash.
    idle = (("max_legs", MAX_LEGS), ("changed_tools", "allow"), ("hide_denied_tools", False), ("check_schemas", "none"))
    defaults = {key: value for key, value in bundle["defaults"].items() if (key, value) not in idle}
    snapshot = {"snapshot_format": SNAPSHOT_FORMAT, **bundle, "defaults": defaults, "rules": _normal(bundle["rules"])}
    snapshot["policy_hash"] = sha256_hex_once(snapshot_bytes(snapshot))
    return snapshot


def snapshot_bytes(snapshot: dict[str, Any]) -> bytes:
    """What `policy_hash` is the hash of."""
    return canonical_bytes({key: value for key, value in snapshot.items() if key != "policy_hash"})


def _normal(rules: list[dict[str, Any]]) -> list[dict[str, Any]]:
    matches = ("match", "unless")
    return [{**rule, **{name: normal_match(rule[name]) for name in matches if name in rule}} for rule in rules]
