"""Which files below a directory are policies, and which are their tests.

A repository is full of YAML and JSON that is neither. A file counts by its name (`*.test.yaml`), by its place
(`.subluminal/`), or because it speaks of what only a policy speaks of; a slip in one of these words hides none of the
others. What is compiled or generated (snapshots, schemas) is no source.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from subluminal.contracts.errors import PolicyError
from subluminal.host.home import DIRECTORY
from subluminal.policy.compile.snapshot import read_source
from subluminal.policy.edit.schema import SCHEMA_SUFFIX
from subluminal.policy.replay.cases import SUFFIXES

_SOURCES = (".yaml", ".yml", ".json")
_SKIPPED = frozenset((".git", ".venv", "node_modules", "__pycache__", "snapshots"))
_WORDS = (b"policy_id", b"rule_id", b"decision_on_error")
_TEST_WORDS = (b"tool_name", b"expect")


def is_test(path: str) -> bool:
    return path.endswith(SUFFIXES)


def speaks_of_policy(source: bytes) -> bool:
    return any(word in source for word in _WORDS)


def policy_files(directory: str) -> list[str]:
    """Policies and tests below a directory, sorted; links to directories are not followed."""
    found = []
    for place, names, files in os.walk(directory):
        names[:] = sorted(name for name in names if name not in _SKIPPED)
        found += [path for path in _sources(place, files) if _counts(path)]
    return found


def tests_beside(policy: str) -> list[str]:
    """The tests that a policy has by its name."""
    stem = os.path.splitext(policy)[0]
    return [stem + suffix for suffix in SUFFIXES if os.path.isfile(stem + suffix)]


def _sources(place: str, files: list[str]) -> Iterator[str]:
    for name in sorted(files):
        if name.endswith(_SOURCES) and not name.endswith(SCHEMA_SUFFIX):
            yield os.path.join(place, name)


def _counts(path: str) -> bool:
    own = os.path.basename(os.path.dirname(os.path.abspath(path))) == DIRECTORY
    if own and os.path.splitext(os.path.basename(path))[0] == "policy":
        return True
    try:
        source = read_source(path)
    except PolicyError:
        return own
    if b'"snapshot_format"' in source or b'"$defs"' in source:
        return False
    return any(word in source for word in _TEST_WORDS) if is_test(path) else speaks_of_policy(source)
