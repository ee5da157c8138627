"""A recording turned into a trace bundle, and its reports. Every file but events.jsonl appears whole or not at all.

While the run is on, the directory has no manifest: its journals are the record, and `open_bundle` reads them as they
are. `seal` writes the manifest last and only then removes the journals, so a reader finds the one or the other.
"""

from __future__ import annotations

import os
import re
import shutil
from typing import Any

import msgspec

from subluminal.contracts.jsontext import escaped
from subluminal.host.files import replace_file
from subluminal.ledger.store.chain import GENESIS, link
from subluminal.ledger.store.policies import find_snapshot
from subluminal.ledger.trace.bundle import MAX_FILES, FileEntry, Manifest, entry_of, new_manifest
from subluminal.ledger.trace.run_directory import EVENTS, JOURNALS

_HASH = re.compile("[0-9a-f]{64}")


def write_json(path: str, value: Any) -> None:
    text = escaped(msgspec.json.encode(value).decode()).encode()
    replace_file(path, msgspec.json.format(text, indent=2) + b"\n")


def write_policies(directory: str, hashes: list[str], snapshots: str) -> list[str]:
    """The compiled policies that are known, as `policies/<hash>.json`; returns their names."""
    names = []
    for policy_hash in sorted(filter(_HASH.fullmatch, hashes))[: MAX_FILES - 1]:
        name = f"policies/{policy_hash}.json"
        path = os.path.join(directory, name)
        if not os.path.exists(path):
            snapshot = find_snapshot(snapshots, policy_hash)
            if snapshot is None:
                continue
            os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
            replace_file(path, snapshot)
        names.append(name)
    return names


def seal(directory: str, run_id: str, policies: list[str]) -> Manifest:
    """Write the manifest of a recording that is closed; then its journals can go."""
    head, count = GENESIS, 0
    with open(os.path.join(directory, EVENTS), "rb") as file:
        for line in file:
            head, count = link(head, line.removesuffix(b"\n")), count + 1
    files = {name: _entry(os.path.join(directory, name)) for name in (EVENTS, *policies)}
    manifest = new_manifest(run_id, count, head, files)
    write_json(os.path.join(directory, "manifest.json"), manifest)
    shutil.rmtree(os.path.join(directory, JOURNALS), ignore_errors=True)
    return manifest


def _entry(path: str) -> FileEntry:
    with open(path, "rb") as file:
        return entry_of(file)
