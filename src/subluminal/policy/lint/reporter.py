"""Reports of the linter: a path into the bundle in, a finding with its place in the document out.

Rules are judged with their times in milliseconds (`spelled_out`), and people read of the field that they wrote: what
is reported of `window_ms` stands at `window`, and says `window`, where that is in the file.
"""

from __future__ import annotations

import re

from subluminal.policy.document.tree import Mapping, Node, Sequence
from subluminal.policy.lint.findings import ERROR, NOTE, WARNING, Finding

Path = tuple[str | int, ...]

_MILLISECONDS = re.compile(r"\b([a-z_]+)_ms\b")


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
        place, around = self._find(self.base + path)
        message, fix = _as_written(message, around), _as_written(fix, around)
        self.findings.append(Finding(level, code, message, fix, self.filename, place.line, place.column, self.rule_id))

    def place(self, path: Path) -> Node:
        return self._find(path)[0]

    def _find(self, path: Path) -> tuple[Node, Mapping | None]:
        """The node to point at, and the innermost mapping on the way to it."""
        node, place = self.root, self.root
        around = None
        for step in path:
            if isinstance(node, Mapping):
                around = node
                key = str(step) if step in node.items else str(step).removesuffix("_ms")
                if key not in node.items:
                    break
                place, node = node.items[key]
            elif isinstance(node, Sequence) and isinstance(step, int) and step < len(node.items):
                place = node = node.items[step]
            else:
                break
        return place, node if isinstance(node, Mapping) else around


def _as_written(text: str, around: Mapping | None) -> str:
    if around is None or "_ms" not in text:
        return text
    return _MILLISECONDS.sub(lambda found: found[1] if found[1] in around.items else found[0], text)
