"""Tables of figures: printed, and kept as Markdown in bench/results/ for tools/paste_figures.py."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

RESULTS = Path(__file__).resolve().parent / "results"


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [f"| {' | '.join(header)} |", "|---" * len(header) + "|"]
    lines += [f"| {' | '.join(map(str, row))} |" for row in rows]
    return "\n".join(lines)


def flat(report: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    """A nested report as rows of a name and a figure."""
    for name, figure in report.items():
        if isinstance(figure, Mapping):
            yield from flat(figure, f"{prefix}{name}, ")
        else:
            yield prefix + str(name), figure


def save(name: str, text: str) -> None:
    """Replaces what an earlier run has left."""
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.md").write_text(text.rstrip("\n") + "\n", encoding="utf-8")
