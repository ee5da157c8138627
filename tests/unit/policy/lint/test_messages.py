"""What people are told about broken bundles: each file of the corpus and the exact words beside it.

A changed sentence is a deliberate change: run with UPDATE_GOLDENS=1 and review the difference.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from harness import places
from subluminal.policy.lint.load import load_bundle

CORPUS = places.FIXTURES / "policies" / "bad"
BUNDLES = sorted(path for path in CORPUS.iterdir() if path.suffix in (".yaml", ".json"))


def messages(path: Path) -> str:
    findings = load_bundle(path.read_bytes(), path.name).findings
    return "".join(f"{finding.text()}\n    fix: {finding.fix}\n" for finding in findings)


@pytest.mark.parametrize("path", BUNDLES, ids=lambda path: path.name)
def test_a_broken_bundle_is_described_in_the_words_on_file(path: Path) -> None:
    golden = path.with_name(path.name + ".txt")
    if os.environ.get("UPDATE_GOLDENS"):
        golden.write_text(messages(path))
    assert messages(path) == golden.read_text()


@pytest.mark.parametrize("path", BUNDLES, ids=lambda path: path.name)
def test_every_finding_has_a_place_in_the_file_and_a_fix(path: Path) -> None:
    findings = load_bundle(path.read_bytes(), path.name).findings
    lines = path.read_bytes().count(b"\n") + 1
    assert findings
    for finding in findings:
        assert 1 <= finding.line <= lines + 1
        assert finding.column >= 1
        assert finding.fix
        assert finding.text().isprintable()


def test_the_corpus_and_the_goldens_are_complete() -> None:
    names = {path.name for path in BUNDLES}
    assert {path.name.removesuffix(".txt") for path in CORPUS.glob("*.txt")} == names
    assert len(names) > 25
