"""The policy that decided, as the ledger has kept it."""

from __future__ import annotations

from typing import Any

import msgspec

from subluminal.ledger.read.ledger import Ledger
from subluminal.ledger.store.policies import is_snapshot


def stored_text(ledger: Ledger, policy_hash: str) -> bytes | None:
    """Only a text that has the hash is believed; None: the ledger has none."""
    sql = "SELECT rules_json FROM policy_versions WHERE rules_hash = ? AND rules_json IS NOT NULL"
    texts = (str(text).encode() for (text,) in ledger.connection.execute(sql, (policy_hash,)))
    return next((text for text in texts if is_snapshot(text, policy_hash)), None)


def stored_snapshot(ledger: Ledger, policy_hash: str) -> dict[str, Any] | None:
    text = stored_text(ledger, policy_hash)
    return None if text is None else read_snapshot(text, policy_hash)


def read_snapshot(text: bytes, policy_hash: str) -> dict[str, Any]:
    """With its hash in it, as whoever compiles a policy has it."""
    return {"policy_hash": policy_hash, **msgspec.json.decode(text, type=dict[str, Any])}
