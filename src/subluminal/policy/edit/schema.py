"""The JSON Schemas of contract B that this package carries, and how a policy file names one for editors.

A policy says in its first line where its schema is, by a name beside it: no address that needs a network, and no path
of one machine in a file that a team shares. So `sub policy init` writes the schema next to the policy.
"""

from __future__ import annotations

import os

_HERE = os.path.dirname(os.path.abspath(__file__))

# Beside every policy of a directory; `sub policy lint` takes no file of this ending for a policy.
SCHEMA_FILE = "policy.schema.json"
SCHEMA_SUFFIX = ".schema.json"


def schema_bytes(*, snapshot: bool = False) -> bytes:
    """What people write, or what is compiled from it."""
    name = "policy-snapshot.json" if snapshot else "policy-bundle.json"
    with open(os.path.join(_HERE, name), "rb") as file:
        return file.read()


def naming_its_schema(policy: bytes) -> bytes:
    """The policy with a first line that editors' YAML servers read."""
    return f"# yaml-language-server: $schema={SCHEMA_FILE}\n".encode() + policy


def stale_schema(policy: str) -> str | None:
    """The schema beside a policy, if another version of ours wrote it; a file of someone else's making is theirs."""
    path = os.path.join(os.path.dirname(policy), SCHEMA_FILE)
    try:
        with open(path, "rb") as file:
            content = file.read(1 << 20)
    except OSError:
        return None
    return path if b'"urn:subluminal:' in content and content != schema_bytes() else None
