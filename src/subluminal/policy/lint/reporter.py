"""Reports of the linter: a path into the bundle in, a finding with its place in the document out."""

from __future__ import annotations

from subluminal.policy.document.tree import Mapping, Node, Sequence
from subluminal.policy.lint.findings import ERROR, NOTE, WARNING, Finding

Path = tuple[str | int, ...]


class Linter:
    """Reports against a document; the nearest existing place above a path stands for a missing one."""

    def __init__(self, filename: str, root: Node) -> None:
        self.filename = filename
        self.root = root
        self.findings: list[Finding] = []
        self.rule_id: str | None = None
        self.base: Path = ()

    def error(self, path: Path, code: str, message: str, fix: str) -> None:
        self._report(ERROR, path, code, message, fix)

    def warn(self, path: Path, code: str, message: str, fix: str) -> None:
        self._report(WARNING, path, code, message, fix)

    def note(self, path: Path, code: str, message: str, fix: str) -> None:
        self._report(NOTE, path, code, message, fix)

    def _report(self, level: str, path: Path, code: str, message: str, fix: str) -> None:
        node = self.place(self.base + path)
        self.findings.append(Finding(level, code, message, fix, self.filename, node.line, node.column, self.rule_id))

    def place(self, path: Path) -> Node:
        node, place = self.root, self.root
        for step in path:
            if isinstance(node, Mapping) and step in node.items:
                place, node = node.items[str(step)]
            elif isinstance(node, Sequence) and isinstance(step, int) and step < len(node.items):
                place = node = node.items[step]
            else:
                break
        return place
