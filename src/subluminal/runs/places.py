"""Where the rules of the policies in force are written, for reports that point at a line of the repository."""

from __future__ import annotations

import os
from collections.abc import Mapping
from urllib.parse import quote

from subluminal.contracts.errors import SubluminalError
from subluminal.host.identity import repository_root
from subluminal.policy.compile.snapshot import read_source
from subluminal.policy.document.tree import Mapping as Table
from subluminal.policy.document.tree import Scalar, Sequence, parse_document
from subluminal.policy.sources import find_policies


def rule_places(environ: Mapping[str, str], cwd: str) -> dict[str, tuple[str, int]]:
    """rule_id -> (address relative to the repository, line). Policies outside the repository have no place in it."""
    root = os.path.realpath(repository_root(cwd) or cwd)
    places: dict[str, tuple[str, int]] = {}
    for source in find_policies(environ, cwd):
        if source.path is None:
            continue
        relative = os.path.relpath(os.path.realpath(source.path), root)
        if not relative.startswith(".." + os.sep):
            for rule_id, line in _rules(source.path):
                places.setdefault(rule_id, (quote(relative.replace(os.sep, "/")), line))
    return places


def _rules(path: str) -> list[tuple[str, int]]:
    try:
        document = parse_document(read_source(path), path)
    except SubluminalError:
        return []  # the run says so itself
    rules = document.get("rules") if isinstance(document, Table) else None
    found = []
    for rule in rules.items if isinstance(rules, Sequence) else []:
        rule_id = rule.get("rule_id") if isinstance(rule, Table) else None
        if isinstance(rule_id, Scalar) and isinstance(rule_id.value, str):
            found.append((rule_id.value, rule.line))
    return found
